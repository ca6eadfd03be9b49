// What a vCPU says of itself: KVM's supported features, with APIC id and topology made this
// machine's own (KVM passes on those of the host CPU the call happened to run on).
//
// The machine is one package of `cpus` cores with one thread each; APIC ids are 0 to cpus - 1.
// Sources: Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E.
#pragma once

#include <cstdint>
#include <vector>

#include "kvm/kvm_api.h"

namespace ringside {

// `tsc_deadline`: whether the local APIC has that timer, which older KVMs leave for us to say
// (api.rst, KVM_GET_SUPPORTED_CPUID).
std::vector<kvm_cpuid_entry2> MakeCpuid(std::vector<kvm_cpuid_entry2> supported, uint32_t apic_id,
                                        uint32_t cpus, bool tsc_deadline);

}  // namespace ringside
