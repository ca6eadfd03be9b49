// Whether this host offers what a saved vCPU was told it has.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "kvm/kvm_api.h"

namespace ringside {

// FailedPrecondition names the first feature of `saved` that is not in `supported`, KVM's own list.
absl::Status CheckCpuidIsSupported(std::span<const kvm_cpuid_entry2> saved,
                                   std::span<const kvm_cpuid_entry2> supported);

}  // namespace ringside
