// Where CPUID has the features that are known here by name, and which level of processors each
// belongs to.
//
// Sources: Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E; System V psABI for x86-64,
// section 3.1.1 (the levels). Names are those of /proc/cpuinfo.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "kvm/kvm_api.h"

namespace ringside {

enum class CpuidRegister { kEax, kEbx, kEcx, kEdx };

// A register of CPUID whose bits are features.
struct CpuidWord {
  uint32_t leaf;
  uint32_t subleaf;
  CpuidRegister which;

  bool operator==(const CpuidWord&) const = default;
};

// In the order in which one includes the other.
enum class FeatureLevel {
  kBasic,  // KVM offers it to guests of every 64-bit host, by emulating it if need be
  kV2,
  kV3,
  kV4,
  kNone,  // of no level: known only so that messages can name it
};

struct CpuFeature {
  CpuidWord word;
  int bit;
  const char* name;
  FeatureLevel level;
};
std::span<const CpuFeature> CpuFeatures();

constexpr uint32_t CpuidBits(std::initializer_list<int> bits) {
  uint32_t mask = 0;
  for (const int bit : bits) mask |= uint32_t{1} << bit;
  return mask;
}

// Null if it is not there. A leaf without sub-leaves may have any index: it is found as 0.
const kvm_cpuid_entry2* FindCpuid(std::span<const kvm_cpuid_entry2> entries, uint32_t leaf,
                                  uint32_t subleaf);
// 0 if the leaf is not there, as a processor answers.
uint32_t CpuidValue(std::span<const kvm_cpuid_entry2> entries, const CpuidWord& word);
// The sub-leaf that an entry stands for.
uint32_t SubleafOf(const kvm_cpuid_entry2& entry);
uint32_t& RegisterOf(kvm_cpuid_entry2& entry, CpuidRegister which);
// "avx2 (CPUID 0x7.0 EBX, bit 5)", or the place alone of one without a name.
std::string DescribeFeature(const CpuidWord& word, int bit);

}  // namespace ringside
