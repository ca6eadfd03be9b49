// All that KVM keeps of a virtual CPU, to be taken from one that is paused and given to one that is
// new, on this host or another.
//
// Threads: as KvmVcpu. Errors name the ioctl, and what of a state a host does not take.
// Spec: Linux Documentation/virt/kvm/api.rst. The orders are KVM's own needs, see the .cc file.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/kvm.h"

namespace ringside {

struct VcpuState {
  std::vector<kvm_cpuid_entry2> cpuid;  // as it was given: KVM may tell of more than it offers
  uint32_t tsc_khz = 0;                 // 0: this KVM does not say
  kvm_mp_state mp_state = {};
  kvm_regs registers = {};
  kvm_sregs special = {};
  std::vector<uint8_t> xsave;  // as large as the host that saved it has it
  kvm_xcrs xcrs = {};
  kvm_debugregs debug = {};
  kvm_lapic_state lapic = {};
  std::vector<kvm_msr_entry> msrs;
  kvm_vcpu_events events = {};
};

// What a host's KVM has to be asked for, which is the same for all vCPUs.
struct VcpuStateShape {
  std::vector<uint32_t> msrs;
  std::vector<kvm_cpuid_entry2> cpuid;  // all that it offers; empty: a state's is not compared
  size_t xsave_size = sizeof(kvm_xsave);

  static absl::StatusOr<VcpuStateShape> Of(const Kvm& kvm);
  // Enough to restore what this very KVM had (KvmIdentity). What it offers is not asked for: that
  // takes 0.4 ms on a host that is a virtual machine itself, where CPUID is slow.
  static VcpuStateShape OfTheSame(const Kvm& kvm);
};

// All but its CPUID, which its maker knows. While no vCPU of the machine runs, and before VmState
// is saved: reading some of it has KVM settle what is pending.
absl::StatusOr<VcpuState> SaveVcpu(KvmVcpu& vcpu, const VcpuStateShape& shape);

// Into a vCPU that has not run, once the machine has its memory, which KVM writes clocks to.
// FailedPrecondition: this host's KVM or processor lacks what the state uses; says what.
// InvalidArgument: the state is none that SaveVcpu has made.
absl::Status RestoreVcpu(const VcpuState& state, const VcpuStateShape& shape, KvmVcpu& vcpu);

}  // namespace ringside
