// What a restore costs at the least: KVM's own price, and nothing of a machine.
//
// Not here: devices, threads, a console, events, checks of the configuration or of the host. What
// KVM wants is asked of it in the same order and by the same calls as in a machine (kvm/), and the
// state is read and checked by the same code: none of that could be left out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "vmm/machine_state.h"

namespace ringside {

class BareMachine {
 public:
  virtual ~BareMachine() = default;
};
// One with one vCPU, which has gone on from the snapshot until its guest wrote to COM1, and stands
// since. The snapshot outlives it.
absl::StatusOr<std::unique_ptr<BareMachine>> GoOnBare(const Snapshot& snapshot);

// The same from a directory. Returns how many ns that took, from before the snapshot is opened.
// Taking it apart again is not in that time.
absl::StatusOr<int64_t> RestoreBare(const std::string& directory);

}  // namespace ringside
