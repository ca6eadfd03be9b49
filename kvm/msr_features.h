// Which MSRs a guest has only with a feature that its CPUID shows.
//
// KVM tells of some of them whatever the guest's CPUID says, with values of the host, and another
// host's KVM does not take those. As the guest cannot reach them, they need not be there.
//
// Sources: Intel SDM volume 4, tables 2-2 and following; AMD APM volume 2, appendix A.
#pragma once

#include <cstdint>
#include <span>

#include "kvm/kvm_api.h"

namespace ringside {

// Whether a guest with this CPUID can reach an MSR. One that is not known here it can.
bool GuestHasMsr(std::span<const kvm_cpuid_entry2> cpuid, uint32_t msr);

}  // namespace ringside
