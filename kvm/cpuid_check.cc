#include "kvm/cpuid_check.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/printable.h"
#include "base/status.h"
#include "kvm/cpu_features.h"

namespace ringside {
namespace {

using enum CpuidRegister;

struct CheckedWord {
  CpuidWord word;
  uint32_t ignored;  // not KVM's to offer, or changed by the guest itself as it runs
};

constexpr auto kWords = std::to_array<CheckedWord>({
    // MONITOR, the x2APIC and the deadline timer that KVM's local APIC has; OSXSAVE; a hypervisor.
    {{0x1, 0, kEcx}, CpuidBits({3, 21, 24, 27, 31})},
    {{0x1, 0, kEdx}, CpuidBits({9, 28})},  // the APIC's switch, and several CPUs
    {{0x7, 0, kEbx}, 0},
    {{0x7, 0, kEcx}, CpuidBits({4})},  // OSPKE
    {{0x7, 0, kEdx}, 0},
    {{0x7, 1, kEax}, 0},
    {{0xd, 0, kEax}, 0},
    {{0xd, 1, kEax}, 0},
    {{0x80000001, 0, kEcx}, CpuidBits({1})},  // several CPUs
    {{0x80000001, 0, kEdx}, CpuidBits({9})},
});

// "GenuineIntel", which leaf 0 has in EBX, EDX and ECX.
std::string VendorOf(std::span<const kvm_cpuid_entry2> entries) {
  const kvm_cpuid_entry2* leaf = FindCpuid(entries, 0, 0);
  if (leaf == nullptr) return "";
  const std::array words = {leaf->ebx, leaf->edx, leaf->ecx};
  std::string name(sizeof words, ' ');
  std::memcpy(name.data(), words.data(), sizeof words);
  return Printable(name);
}

absl::Status CheckVendor(std::span<const kvm_cpuid_entry2> saved,
                         std::span<const kvm_cpuid_entry2> supported) {
  const std::string was = VendorOf(saved), is = VendorOf(supported);
  if (was == is) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("the saved vCPU is by '%s' and this host's processor by '%s': restore on a "
                      "host of the same vendor",
                      was, is));
}

// KVM takes extended registers as this host's XSAVE has them in memory, and the guest's own areas
// are as the host had them that it saw (Intel SDM volume 1, section 13.4.3).
absl::Status CheckXsaveLayout(std::span<const kvm_cpuid_entry2> saved,
                              std::span<const kvm_cpuid_entry2> supported) {
  for (const kvm_cpuid_entry2& entry : saved) {
    if (entry.function != 0xd || SubleafOf(entry) < 2 || entry.eax == 0) continue;
    const kvm_cpuid_entry2* here = FindCpuid(supported, 0xd, SubleafOf(entry));
    if (here != nullptr && here->eax == entry.eax && here->ebx == entry.ebx) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "the saved vCPU has component %d of XSAVE as %d bytes at %d, and this host's KVM as %d at "
        "%d: restore on a host that has it in the same place",
        SubleafOf(entry), entry.eax, entry.ebx, here != nullptr ? here->eax : 0,
        here != nullptr ? here->ebx : 0));
  }
  return absl::OkStatus();
}

}  // namespace

std::string FirstFeatureBeyond(std::span<const kvm_cpuid_entry2> entries,
                               std::span<const kvm_cpuid_entry2> others) {
  for (const auto& [word, ignored] : kWords) {
    const uint32_t missing = CpuidValue(entries, word) & ~CpuidValue(others, word) & ~ignored;
    if (missing == 0) continue;
    return DescribeFeature(word, std::countr_zero(missing));
  }
  return "";
}

absl::Status CheckCpuidIsSupported(std::span<const kvm_cpuid_entry2> saved,
                                   std::span<const kvm_cpuid_entry2> supported) {
  RINGSIDE_RETURN_IF_ERROR(CheckVendor(saved, supported));
  if (const std::string missing = FirstFeatureBeyond(saved, supported); !missing.empty()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("the saved vCPU has %s, which this host's KVM does not offer: restore on a "
                        "host that has it",
                        missing));
  }
  return CheckXsaveLayout(saved, supported);
}

}  // namespace ringside
