#include "kvm/cpuid_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace ringside {
namespace {

enum class Register { kEax, kEbx, kEcx, kEdx };

// A register whose bits are features (Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E).
struct FeatureWord {
  uint32_t leaf;
  uint32_t subleaf;
  Register which;
  uint32_t ignored;  // not KVM's to offer, or changed by the guest itself as it runs
};

constexpr uint32_t Bits(std::initializer_list<int> bits) {
  uint32_t mask = 0;
  for (const int bit : bits) mask |= uint32_t{1} << bit;
  return mask;
}

constexpr std::array<FeatureWord, 10> kWords = {{
    // MONITOR, the x2APIC and the deadline timer that KVM's local APIC has; OSXSAVE; a hypervisor.
    {0x1, 0, Register::kEcx, Bits({3, 21, 24, 27, 31})},
    {0x1, 0, Register::kEdx, Bits({9, 28})},  // the APIC's switch, and several CPUs
    {0x7, 0, Register::kEbx, 0},
    {0x7, 0, Register::kEcx, Bits({4})},  // OSPKE
    {0x7, 0, Register::kEdx, 0},
    {0x7, 1, Register::kEax, 0},
    {0xd, 0, Register::kEax, 0},
    {0xd, 1, Register::kEax, 0},
    {0x80000001, 0, Register::kEcx, Bits({1})},  // several CPUs
    {0x80000001, 0, Register::kEdx, Bits({9})},
}};

struct FeatureName {
  uint32_t leaf;
  Register which;
  int bit;
  const char* name;
};
// As /proc/cpuinfo has them; those that hosts of one fleet differ in most.
constexpr std::array<FeatureName, 16> kNames = {{{0x1, Register::kEcx, 12, "fma"},
                                                 {0x1, Register::kEcx, 17, "pcid"},
                                                 {0x1, Register::kEcx, 25, "aes"},
                                                 {0x1, Register::kEcx, 26, "xsave"},
                                                 {0x1, Register::kEcx, 28, "avx"},
                                                 {0x1, Register::kEcx, 30, "rdrand"},
                                                 {0x7, Register::kEbx, 3, "bmi1"},
                                                 {0x7, Register::kEbx, 5, "avx2"},
                                                 {0x7, Register::kEbx, 8, "bmi2"},
                                                 {0x7, Register::kEbx, 16, "avx512f"},
                                                 {0x7, Register::kEbx, 18, "rdseed"},
                                                 {0x7, Register::kEbx, 29, "sha_ni"},
                                                 {0x7, Register::kEcx, 3, "pku"},
                                                 {0x7, Register::kEcx, 16, "la57"},
                                                 {0x7, Register::kEdx, 24, "amx_tile"},
                                                 {0x80000001, Register::kEdx, 26, "pdpe1gb"}}};

uint32_t Value(std::span<const kvm_cpuid_entry2> entries, const FeatureWord& word) {
  const auto found = std::ranges::find_if(entries, [&](const kvm_cpuid_entry2& entry) {
    const bool has_subleaves = (entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) != 0;
    return entry.function == word.leaf && (has_subleaves ? entry.index : 0) == word.subleaf;
  });
  if (found == entries.end()) return 0;
  const std::array<uint32_t, 4> registers = {found->eax, found->ebx, found->ecx, found->edx};
  return registers[static_cast<size_t>(word.which)];
}

std::string Describe(const FeatureWord& word, int bit) {
  constexpr std::array kRegisters = {"EAX", "EBX", "ECX", "EDX"};
  const auto named = std::ranges::find_if(kNames, [&](const FeatureName& each) {
    return each.leaf == word.leaf && each.which == word.which && each.bit == bit &&
           word.subleaf == 0;
  });
  const std::string place = absl::StrFormat("CPUID %#x.%d %s, bit %d", word.leaf, word.subleaf,
                                            kRegisters[static_cast<size_t>(word.which)], bit);
  return named == kNames.end() ? place : absl::StrFormat("%s (%s)", named->name, place);
}

}  // namespace

absl::Status CheckCpuidIsSupported(std::span<const kvm_cpuid_entry2> saved,
                                   std::span<const kvm_cpuid_entry2> supported) {
  for (const FeatureWord& word : kWords) {
    const uint32_t missing = Value(saved, word) & ~Value(supported, word) & ~word.ignored;
    if (missing == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("the saved vCPU has %s, which this host's KVM does not offer: restore on a "
                        "host that has it",
                        Describe(word, std::countr_zero(missing))));
  }
  return absl::OkStatus();
}

}  // namespace ringside
