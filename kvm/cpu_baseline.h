// A processor that many hosts have in common, so that a machine saved on one of them goes on on any
// other: of what KVM offers, only what is on an allow-list (docs/snapshots.md, "Another host").
//
// Sources: System V psABI for x86-64, section 3.1.1 (the levels); Intel SDM volume 2A, CPUID; AMD
// APM volume 3, appendix E.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kvm/kvm.h"
#include "ringside/config.h"

namespace ringside {

// "x86-64-v3"
const char* CpuBaselineName(CpuBaseline baseline);

// What is left of `supported`, KVM's own list, for MakeCpuid (kvm/cpuid.h). FailedPrecondition
// names the features of the baseline that are not in it.
absl::StatusOr<std::vector<kvm_cpuid_entry2>> LimitCpuid(std::vector<kvm_cpuid_entry2> supported,
                                                         CpuBaseline baseline);

// Of a vCPU that was given `limited`: FailedPrecondition if its guest sees more than that. A KVM
// without VMX or SVM cannot intercept the CPUID instruction everywhere, and says so by what it
// returns.
absl::Status CheckIsLimited(const KvmVcpu& vcpu, std::span<const kvm_cpuid_entry2> limited,
                            CpuBaseline baseline);

}  // namespace ringside
