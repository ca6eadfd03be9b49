// Finds out whether this host's KVM runs the guest's kernel mode at the CPU's speed or interprets
// it: some cloud sandboxes offer a KVM whose ring 0 is some thousand times slower, where stock
// kernels never finish booting.
#pragma once

#include "absl/status/statusor.h"
#include "kvm/kvm.h"

namespace ringside {

// Nanoseconds an instruction in ring 0. Takes a few milliseconds at the worst.
absl::StatusOr<double> MeasureRing0(const Kvm& kvm);

// Hardware needs under 1 ns with the exit at the loop's end, a nested KVM on an emulated CPU some
// 10, KVM's instruction emulator 200 and more.
inline constexpr double kRing0NativeNs = 50;

}  // namespace ringside
