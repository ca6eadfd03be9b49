#include "vmm/host_probe.h"

#include <array>
#include <cstring>

#include "base/clock.h"
#include "base/status.h"
#include "boot/boot_cpu.h"
#include "devices/guest_memory.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr uint64_t kIterations = 10000;  // so that one exit to us does not count
constexpr uint64_t kCode = kHighMemoryStart;
// loop: dec ecx; jnz loop; hlt
constexpr std::array<uint8_t, 5> kLoop = {0xff, 0xc9, 0x75, 0xfc, 0xf4};
constexpr int kLoopInstructions = 2;

// Without an irqchip HLT comes back to us.
absl::Status RunLoop(KvmVcpu& vcpu, uint64_t iterations) {
  RINGSIDE_RETURN_IF_ERROR(SetBootRegisters(vcpu, {BootProtocol::kLinux, kCode, 0}));
  RINGSIDE_ASSIGN_OR_RETURN(kvm_regs registers, vcpu.GetRegisters());
  registers.rcx = iterations;
  RINGSIDE_RETURN_IF_ERROR(vcpu.SetRegisters(registers));
  const int error = vcpu.Run();
  if (error != 0) return ErrnoError(error, "the probe's KVM_RUN failed");
  if (vcpu.run().exit_reason != KVM_EXIT_HLT) {
    return absl::InternalError(
        absl::StrFormat("the probe ended with KVM exit %d instead of HLT", vcpu.run().exit_reason));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<double> MeasureRing0(const Kvm& kvm) {
  const GuestMemory::Range range = {0, kMinMemory};
  RINGSIDE_ASSIGN_OR_RETURN(const auto memory, GuestMemory::Create({&range, 1}));
  std::memcpy(memory->At(kCode, kLoop.size()), kLoop.data(), kLoop.size());
  WriteBootTables(*memory);

  RINGSIDE_ASSIGN_OR_RETURN(KvmVm vm, kvm.CreateVm());
  RINGSIDE_RETURN_IF_ERROR(vm.SetMemory(memory->regions()));
  RINGSIDE_RETURN_IF_ERROR(vm.SetIntelPages(kKvmTss, kKvmIdentityMap));
  RINGSIDE_ASSIGN_OR_RETURN(KvmVcpu vcpu, vm.CreateVcpu(0));
  RINGSIDE_ASSIGN_OR_RETURN(const auto cpuid, kvm.SupportedCpuid());
  RINGSIDE_RETURN_IF_ERROR(vcpu.SetCpuid(cpuid));  // long mode is refused without

  RINGSIDE_RETURN_IF_ERROR(RunLoop(vcpu, 1));  // page faults and KVM's own start
  const int64_t start = MonotonicNs();
  RINGSIDE_RETURN_IF_ERROR(RunLoop(vcpu, kIterations));
  return static_cast<double>(MonotonicNs() - start) / (kLoopInstructions * kIterations);
}

}  // namespace ringside
