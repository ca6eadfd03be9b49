// What a restore costs at the least: KVM's own price, and nothing of a machine.
//
// Not here: devices, threads, a console, events, checks of the configuration or of the host. What
// KVM wants is asked of it in the same order and by the same calls as in a machine (kvm/), and the
// state is read and checked by the same code: none of that could be left out.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ringside {

// Goes on from the snapshot of a machine with one vCPU until its guest writes to COM1; returns how
// many ns that took, from before the snapshot is opened. Taking it apart again is not in that time.
absl::StatusOr<int64_t> RestoreBare(const std::string& directory);

}  // namespace ringside
