#include "kvm/cpu_features.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_format.h"

namespace ringside {
namespace {

using enum CpuidRegister;
using enum FeatureLevel;

constexpr CpuidWord k1Ecx = {0x1, 0, kEcx};
constexpr CpuidWord k1Edx = {0x1, 0, kEdx};
constexpr CpuidWord k6Eax = {0x6, 0, kEax};
constexpr CpuidWord k7Ebx = {0x7, 0, kEbx};
constexpr CpuidWord k7Ecx = {0x7, 0, kEcx};
constexpr CpuidWord k7Edx = {0x7, 0, kEdx};
constexpr CpuidWord kXcr0 = {0xd, 0, kEax};
constexpr CpuidWord kXsave = {0xd, 1, kEax};
constexpr CpuidWord kExtendedEcx = {0x80000001, 0, kEcx};
constexpr CpuidWord kExtendedEdx = {0x80000001, 0, kEdx};

constexpr auto kFeatures = std::to_array<CpuFeature>({
    {k1Edx, 0, "fpu", kBasic},
    {k1Edx, 2, "de", kBasic},
    {k1Edx, 3, "pse", kBasic},
    {k1Edx, 4, "tsc", kBasic},
    {k1Edx, 5, "msr", kBasic},
    {k1Edx, 6, "pae", kBasic},
    {k1Edx, 7, "mce", kBasic},
    {k1Edx, 8, "cx8", kBasic},
    {k1Edx, 9, "apic", kBasic},
    {k1Edx, 11, "sep", kBasic},
    {k1Edx, 12, "mtrr", kBasic},
    {k1Edx, 13, "pge", kBasic},
    {k1Edx, 14, "mca", kBasic},
    {k1Edx, 15, "cmov", kBasic},
    {k1Edx, 16, "pat", kBasic},
    {k1Edx, 17, "pse36", kBasic},
    {k1Edx, 19, "clflush", kBasic},
    {k1Edx, 23, "mmx", kBasic},
    {k1Edx, 24, "fxsr", kBasic},
    {k1Edx, 25, "sse", kBasic},
    {k1Edx, 26, "sse2", kBasic},
    {k1Ecx, 21, "x2apic", kBasic},
    // Without it Linux takes the local APIC's timer for one that stops in deep idle states, and
    // there is no other one here that could wake a processor.
    {k6Eax, 2, "arat", kBasic},
    {k7Ebx, 1, "tsc_adjust", kBasic},
    {kExtendedEdx, 11, "syscall", kBasic},
    {kExtendedEdx, 20, "nx", kBasic},
    {kExtendedEdx, 27, "rdtscp", kBasic},
    {kExtendedEdx, 29, "lm", kBasic},

    {k1Ecx, 0, "pni", kV2},  // SSE3
    {k1Ecx, 9, "ssse3", kV2},
    {k1Ecx, 13, "cx16", kV2},
    {k1Ecx, 19, "sse4_1", kV2},
    {k1Ecx, 20, "sse4_2", kV2},
    {k1Ecx, 23, "popcnt", kV2},
    {kExtendedEcx, 0, "lahf_lm", kV2},

    {k1Ecx, 12, "fma", kV3},
    {k1Ecx, 22, "movbe", kV3},
    {k1Ecx, 26, "xsave", kV3},  // KVM adds OSXSAVE once the guest's CR4 has it
    {k1Ecx, 28, "avx", kV3},
    {k1Ecx, 29, "f16c", kV3},
    {k7Ebx, 3, "bmi1", kV3},
    {k7Ebx, 5, "avx2", kV3},
    {k7Ebx, 8, "bmi2", kV3},
    {kXcr0, 0, "the x87 state of xsave", kV3},
    {kXcr0, 1, "the SSE state of xsave", kV3},
    {kXcr0, 2, "the AVX state of xsave", kV3},
    {kExtendedEcx, 5, "abm", kV3},  // LZCNT

    {k7Ebx, 16, "avx512f", kV4},
    {k7Ebx, 17, "avx512dq", kV4},
    {k7Ebx, 28, "avx512cd", kV4},
    {k7Ebx, 30, "avx512bw", kV4},
    {k7Ebx, 31, "avx512vl", kV4},
    {kXcr0, 5, "the opmask state of xsave", kV4},
    {kXcr0, 6, "the ZMM_Hi256 state of xsave", kV4},
    {kXcr0, 7, "the Hi16_ZMM state of xsave", kV4},

    // Those that hosts of one fleet differ in most.
    {k1Edx, 1, "vme", kNone},  // of 8086 mode; firmware and emulators may have it off
    {k1Ecx, 1, "pclmulqdq", kNone},
    {k1Ecx, 5, "vmx", kNone},
    {k1Ecx, 17, "pcid", kNone},
    {k1Ecx, 25, "aes", kNone},
    {k1Ecx, 30, "rdrand", kNone},
    {k7Ebx, 0, "fsgsbase", kNone},
    {k7Ebx, 7, "smep", kNone},
    {k7Ebx, 9, "erms", kNone},
    {k7Ebx, 10, "invpcid", kNone},
    {k7Ebx, 18, "rdseed", kNone},
    {k7Ebx, 19, "adx", kNone},
    {k7Ebx, 20, "smap", kNone},
    {k7Ebx, 29, "sha_ni", kNone},
    {k7Ecx, 2, "umip", kNone},
    {k7Ecx, 3, "pku", kNone},
    {k7Ecx, 16, "la57", kNone},
    {k7Edx, 24, "amx_tile", kNone},
    {k7Edx, 26, "spec_ctrl", kNone},
    {k7Edx, 29, "arch_capabilities", kNone},
    {kXsave, 0, "xsaveopt", kNone},
    {kXsave, 1, "xsavec", kNone},
    {kXsave, 3, "xsaves", kNone},
    {kExtendedEcx, 2, "svm", kNone},
    {kExtendedEdx, 26, "pdpe1gb", kNone},
});

}  // namespace

std::span<const CpuFeature> CpuFeatures() {
  return kFeatures;
}

uint32_t SubleafOf(const kvm_cpuid_entry2& entry) {
  return (entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) != 0 ? entry.index : 0;
}

const kvm_cpuid_entry2* FindCpuid(std::span<const kvm_cpuid_entry2> entries, uint32_t leaf,
                                  uint32_t subleaf) {
  const auto found = std::ranges::find_if(entries, [=](const kvm_cpuid_entry2& entry) {
    return entry.function == leaf && SubleafOf(entry) == subleaf;
  });
  return found == entries.end() ? nullptr : &*found;
}

uint32_t& RegisterOf(kvm_cpuid_entry2& entry, CpuidRegister which) {
  const std::array registers = {&entry.eax, &entry.ebx, &entry.ecx, &entry.edx};
  return *registers[static_cast<size_t>(which)];
}

uint32_t CpuidValue(std::span<const kvm_cpuid_entry2> entries, const CpuidWord& word) {
  const kvm_cpuid_entry2* found = FindCpuid(entries, word.leaf, word.subleaf);
  if (found == nullptr) return 0;
  kvm_cpuid_entry2 entry = *found;
  return RegisterOf(entry, word.which);
}

std::string DescribeFeature(const CpuidWord& word, int bit) {
  constexpr std::array kRegisters = {"EAX", "EBX", "ECX", "EDX"};
  const std::string place = absl::StrFormat("CPUID %#x.%d %s, bit %d", word.leaf, word.subleaf,
                                            kRegisters[static_cast<size_t>(word.which)], bit);
  const auto named = std::ranges::find_if(kFeatures, [&](const CpuFeature& feature) {
    return feature.word == word && feature.bit == bit;
  });
  return named == kFeatures.end() ? place : absl::StrFormat("%s (%s)", named->name, place);
}

}  // namespace ringside
