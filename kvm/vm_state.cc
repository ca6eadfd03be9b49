#include "kvm/vm_state.h"

#include <cerrno>
#include <sys/ioctl.h>

#include "base/status.h"

namespace ringside {
namespace {

template <typename Value>
absl::Status Get(const KvmVm& vm, unsigned long request, const char* name, Value* value) {
  if (ioctl(vm.fd(), request, value) >= 0) return absl::OkStatus();
  return ErrnoError(errno, absl::StrFormat("%s failed", name));
}

template <typename Value>
absl::Status Set(const KvmVm& vm, unsigned long request, const char* name, Value* value) {
  if (ioctl(vm.fd(), request, value) >= 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      ErrnoError(errno, absl::StrFormat("%s refuses what was saved", name)).message());
}

}  // namespace

absl::StatusOr<VmState> SaveVm(KvmVm& vm, bool has_pit) {
  VmState state;
  RINGSIDE_RETURN_IF_ERROR(Get(vm, KVM_GET_CLOCK, "KVM_GET_CLOCK", &state.clock));
  constexpr std::array<uint32_t, 3> kChips = {KVM_IRQCHIP_PIC_MASTER, KVM_IRQCHIP_PIC_SLAVE,
                                              KVM_IRQCHIP_IOAPIC};
  for (size_t i = 0; i < kChips.size(); ++i) {
    state.irqchips[i].chip_id = kChips[i];
    RINGSIDE_RETURN_IF_ERROR(Get(vm, KVM_GET_IRQCHIP, "KVM_GET_IRQCHIP", &state.irqchips[i]));
  }
  if (has_pit) {
    RINGSIDE_RETURN_IF_ERROR(Get(vm, KVM_GET_PIT2, "KVM_GET_PIT2", &state.pit.emplace()));
  }
  return state;
}

absl::Status RestoreVm(const VmState& state, RestoreClock clock, KvmVm& vm) {
  if (state.pit.has_value()) {
    kvm_pit_state2 pit = *state.pit;
    RINGSIDE_RETURN_IF_ERROR(Set(vm, KVM_SET_PIT2, "KVM_SET_PIT2", &pit));
  }
  // With the real time it was saved at KVM adds what has passed since. All other flags are only
  // told, and refused (api.rst, KVM_SET_CLOCK).
  kvm_clock_data data = {};
  data.clock = state.clock.clock;
  if (clock == RestoreClock::kRan && (state.clock.flags & KVM_CLOCK_REALTIME) != 0) {
    data.flags = KVM_CLOCK_REALTIME;
    data.realtime = state.clock.realtime;
  }
  RINGSIDE_RETURN_IF_ERROR(Set(vm, KVM_SET_CLOCK, "KVM_SET_CLOCK", &data));
  for (const kvm_irqchip& chip : state.irqchips) {
    kvm_irqchip copy = chip;
    RINGSIDE_RETURN_IF_ERROR(Set(vm, KVM_SET_IRQCHIP, "KVM_SET_IRQCHIP", &copy));
  }
  return absl::OkStatus();
}

}  // namespace ringside
