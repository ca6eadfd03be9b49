// Whether this host offers what a saved vCPU was told it has.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "kvm/kvm_api.h"

namespace ringside {

// FailedPrecondition names the first feature of `saved` that is not in `supported`, KVM's own list,
// or says that the processors are not of one vendor, or lay out their extended registers
// differently.
absl::Status CheckCpuidIsSupported(std::span<const kvm_cpuid_entry2> saved,
                                   std::span<const kvm_cpuid_entry2> supported);

// The first feature of `entries` that is not in `others`, as a message names it; empty: none.
std::string FirstFeatureBeyond(std::span<const kvm_cpuid_entry2> entries,
                               std::span<const kvm_cpuid_entry2> others);

}  // namespace ringside
