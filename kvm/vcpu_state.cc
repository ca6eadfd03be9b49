#include "kvm/vcpu_state.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <linux/kvm_para.h>
#include <sys/ioctl.h>

#include "base/status.h"
#include "kvm/cpu_features.h"
#include "kvm/cpuid_check.h"
#include "kvm/msr_features.h"

namespace ringside {
namespace {

constexpr uint32_t kTsc = 0x10;
constexpr uint32_t kTscDeadline = 0x6e0;
constexpr uint32_t kLapicTimer = 0x320;  // offset of the LVT entry in the register page
constexpr uint32_t kTimerMode = 3 << 17, kTscDeadlineMode = 2 << 17;
constexpr CpuidWord kXsaveWord = {0x1, 0, CpuidRegister::kEcx};
constexpr uint32_t kXsaveBit = uint32_t{1} << 26;
// As many as one ioctl takes: fewer than the kernel's MAX_IO_MSRS.
constexpr size_t kMostMsrs = 255;

template <typename Value>
absl::Status Get(const KvmVcpu& vcpu, unsigned long request, const char* name, Value* value) {
  if (ioctl(vcpu.fd(), request, value) >= 0) return absl::OkStatus();
  return ErrnoError(errno, absl::StrFormat("%s failed", name));
}

// What is given comes from a file, so the user's is the fault where KVM finds it impossible.
template <typename Value>
absl::Status Set(const KvmVcpu& vcpu, unsigned long request, const char* name, Value* value) {
  if (ioctl(vcpu.fd(), request, value) >= 0) return absl::OkStatus();
  const int error = errno;
  const absl::Status status = ErrnoError(error, absl::StrFormat("%s refuses what was saved", name));
  return error == EINVAL ? absl::FailedPreconditionError(status.message()) : status;
}

// The deadline of the local APIC's timer belongs to a mode that the APIC must be in before, and to
// a TSC that must be right before; other MSRs come in the order in which KVM lists them.
bool ComesLast(const kvm_msr_entry& msr) {
  return msr.index == kTscDeadline;
}

absl::StatusOr<std::vector<kvm_msr_entry>> ReadMsrs(KvmVcpu& vcpu,
                                                    std::span<const uint32_t> indices) {
  std::vector<kvm_msr_entry> msrs;
  for (size_t next = 0; next < indices.size();) {
    const auto some = indices.subspan(next, std::min(indices.size() - next, kMostMsrs));
    std::vector<kvm_msr_entry> batch;
    for (const uint32_t index : some) batch.push_back({.index = index});
    RINGSIDE_ASSIGN_OR_RETURN(const int count, vcpu.GetMsrs(batch));
    const auto taken = static_cast<size_t>(count);
    msrs.insert(msrs.end(), batch.begin(), batch.begin() + count);
    // KVM stops at one that this vCPU does not have, and says so by how many it has read.
    next += taken + (taken < batch.size() ? 1 : 0);
  }
  return msrs;
}

// Where a deadline has passed and its interrupt is not in the APIC yet, KVM reads 0 for it. The
// time at which it was saved stands in its place, which is past at once.
void KeepPassedDeadline(VcpuState& state) {
  uint32_t timer;
  std::memcpy(&timer, &state.lapic.regs[kLapicTimer], sizeof timer);
  if ((timer & kTimerMode) != kTscDeadlineMode) return;
  const auto find = [&](uint32_t index) {
    return std::ranges::find(state.msrs, index, &kvm_msr_entry::index);
  };
  const auto deadline = find(kTscDeadline), tsc = find(kTsc);
  if (deadline == state.msrs.end() || tsc == state.msrs.end()) return;
  if (deadline->data == 0) deadline->data = tsc->data;
}

absl::Status WriteMsrs(const VcpuState& state, bool last, KvmVcpu& vcpu) {
  std::vector<kvm_msr_entry> some;
  for (const kvm_msr_entry& msr : state.msrs) {
    if (ComesLast(msr) == last) some.push_back(msr);
  }
  for (size_t next = 0; next < some.size();) {
    const std::span<const kvm_msr_entry> rest = std::span(some).subspan(next);
    const auto batch = rest.first(std::min(rest.size(), kMostMsrs));
    RINGSIDE_ASSIGN_OR_RETURN(const int taken, vcpu.SetMsrs(batch));
    next += static_cast<size_t>(taken);
    if (static_cast<size_t>(taken) == batch.size()) continue;
    const kvm_msr_entry& refused = some[next++];
    // One that is 0 there and is not here at all makes no difference.
    if (refused.data == 0) continue;
    // Nor does what the guest cannot see, such as the former host's ARCH_CAPABILITIES.
    if (!GuestHasMsr(state.cpuid, refused.index)) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "this host's KVM does not take MSR %#x with the saved value %#x: restore on a host like "
        "the one it was saved on",
        refused.index, refused.data));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<VcpuStateShape> VcpuStateShape::Of(const Kvm& kvm) {
  VcpuStateShape shape = OfTheSame(kvm);
  RINGSIDE_ASSIGN_OR_RETURN(shape.msrs, kvm.MsrsToSave());
  RINGSIDE_ASSIGN_OR_RETURN(shape.cpuid, kvm.SupportedCpuid());
  return shape;
}

VcpuStateShape VcpuStateShape::OfTheSame(const Kvm& kvm) {
  VcpuStateShape shape;
  const int xsave = kvm.Extension(KVM_CAP_XSAVE2);
  if (xsave > 0) shape.xsave_size = static_cast<size_t>(xsave);
  return shape;
}

absl::StatusOr<VcpuState> SaveVcpu(KvmVcpu& vcpu, const VcpuStateShape& shape) {
  VcpuState state;
  // First: KVM handles a pending INIT or SIPI in it, which changes all else.
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_MP_STATE, "KVM_GET_MP_STATE", &state.mp_state));
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_REGS, "KVM_GET_REGS", &state.registers));
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_SREGS, "KVM_GET_SREGS", &state.special));
  state.xsave.resize(shape.xsave_size);
  const bool large = shape.xsave_size > sizeof(kvm_xsave);
  RINGSIDE_RETURN_IF_ERROR(
      Get(vcpu, large ? KVM_GET_XSAVE2 : KVM_GET_XSAVE, "KVM_GET_XSAVE", state.xsave.data()));
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_XCRS, "KVM_GET_XCRS", &state.xcrs));
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_DEBUGREGS, "KVM_GET_DEBUGREGS", &state.debug));
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_LAPIC, "KVM_GET_LAPIC", &state.lapic));
  const int khz = ioctl(vcpu.fd(), KVM_GET_TSC_KHZ, 0);
  if (khz > 0) state.tsc_khz = static_cast<uint32_t>(khz);
  RINGSIDE_ASSIGN_OR_RETURN(state.msrs, ReadMsrs(vcpu, shape.msrs));
  KeepPassedDeadline(state);
  // Last: what is read before may put events into it.
  RINGSIDE_RETURN_IF_ERROR(Get(vcpu, KVM_GET_VCPU_EVENTS, "KVM_GET_VCPU_EVENTS", &state.events));
  return state;
}

absl::Status RestoreVcpu(const VcpuState& state, const VcpuStateShape& shape, KvmVcpu& vcpu) {
  if (state.xsave.size() != shape.xsave_size) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the saved vCPU has %d bytes of extended registers, and one of this host %d: restore on a "
        "host with the same processor and kernel",
        state.xsave.size(), shape.xsave_size));
  }
  if (!shape.cpuid.empty()) {
    RINGSIDE_RETURN_IF_ERROR(CheckCpuidIsSupported(state.cpuid, shape.cpuid));
  }
  // First: KVM checks the rest against it.
  RINGSIDE_RETURN_IF_ERROR(vcpu.SetCpuid(state.cpuid));
  if (state.tsc_khz != 0) RINGSIDE_RETURN_IF_ERROR(vcpu.SetTscKhz(state.tsc_khz));
  RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_MP_STATE, "KVM_SET_MP_STATE", &state.mp_state));
  // Drops what exceptions are pending: before the events.
  RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_REGS, "KVM_SET_REGS", &state.registers));
  // Has the APIC's mode: before the APIC.
  RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_SREGS, "KVM_SET_SREGS", &state.special));
  RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_XSAVE, "KVM_SET_XSAVE", state.xsave.data()));
  // A guest without XSAVE has XCR0 as it was at its reset, and a host may be without, too.
  if ((CpuidValue(state.cpuid, kXsaveWord) & kXsaveBit) != 0) {
    RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_XCRS, "KVM_SET_XCRS", &state.xcrs));
  }
  RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_DEBUGREGS, "KVM_SET_DEBUGREGS", &state.debug));
  RINGSIDE_RETURN_IF_ERROR(Set(vcpu, KVM_SET_LAPIC, "KVM_SET_LAPIC", &state.lapic));
  RINGSIDE_RETURN_IF_ERROR(WriteMsrs(state, false, vcpu));
  RINGSIDE_RETURN_IF_ERROR(WriteMsrs(state, true, vcpu));
  return Set(vcpu, KVM_SET_VCPU_EVENTS, "KVM_SET_VCPU_EVENTS", &state.events);
}

}  // namespace ringside
