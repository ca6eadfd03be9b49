// What KVM keeps of a machine beside its vCPUs: the clock, the interrupt controllers, the timer.
//
// Threads: as KvmVm. Errors name the ioctl.
// Spec: Linux Documentation/virt/kvm/api.rst.
#pragma once

#include <array>
#include <optional>

#include "absl/status/statusor.h"
#include "kvm/kvm.h"
#include "ringside/config.h"

namespace ringside {

struct VmState {
  kvm_clock_data clock = {};
  std::array<kvm_irqchip, 3> irqchips = {};  // both PICs, and the IOAPIC
  std::optional<kvm_pit_state2> pit;
};

// After all vCPUs: what their controllers have pending may still come here.
absl::StatusOr<VmState> SaveVm(KvmVm& vm, bool has_pit);

// Into a machine with its interrupt controllers, and a timer where there was one; after the vCPUs,
// and before devices, whose interrupts would be overwritten.
absl::Status RestoreVm(const VmState& state, RestoreClock clock, KvmVm& vm);

}  // namespace ringside
