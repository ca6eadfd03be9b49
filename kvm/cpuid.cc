#include "kvm/cpuid.h"

#include <algorithm>
#include <bit>

namespace ringside {
namespace {

constexpr unsigned kTscDeadlineBit = 24;             // leaf 1 ecx
constexpr uint32_t kHypervisor = uint32_t{1} << 31;  // leaf 1 ecx
constexpr uint32_t kVendorIntel = 0x756e6547;        // leaf 0 ebx: "Genu"ineIntel

struct Topology {
  uint32_t apic_id;
  uint32_t cpus;
  bool intel;  // else AMD or its kin, with core counts in the extended leaves

  // Bits of the APIC id that tell the package's cores apart.
  uint32_t id_bits() const { return std::bit_width(cpus - 1); }
  // APIC ids a package takes up.
  uint32_t ids() const { return uint32_t{1} << id_bits(); }
};

// Replaces bits [first, first + count) of `word`.
void SetBits(uint32_t& word, unsigned first, unsigned count, uint32_t value) {
  const uint32_t mask = ((uint32_t{1} << count) - 1) << first;
  word = (word & ~mask) | ((value << first) & mask);
}

// Leaf 4 and AMD's 0x8000001d: cores that share a cache. Levels 1 and 2 are a core's own.
void SetCacheTopology(kvm_cpuid_entry2& entry, const Topology& topology) {
  const uint32_t type = entry.eax & 0x1f;
  if (type == 0) return;  // no more caches
  const uint32_t level = entry.eax >> 5 & 7;
  SetBits(entry.eax, 14, 12, level >= 3 ? topology.ids() - 1 : 0);
  if (entry.function == 4) SetBits(entry.eax, 26, 6, std::min(topology.ids() - 1, 63u));  // cores
}

// Leaves 0xb and 0x1f: level 0 is threads of a core, level 1 cores of the package.
void SetExtendedTopology(kvm_cpuid_entry2& entry, const Topology& topology) {
  constexpr uint32_t kThreadLevel = 1 << 8;
  constexpr uint32_t kCoreLevel = 2 << 8;
  entry.edx = topology.apic_id;
  if (entry.index == 0) {
    entry.eax = 0;
    entry.ebx = 1;
    entry.ecx = kThreadLevel;
  } else if (entry.index == 1) {
    entry.eax = topology.id_bits();
    entry.ebx = topology.cpus;
    entry.ecx = kCoreLevel | 1;
  } else {
    entry.eax = 0;
    entry.ebx = 0;
    entry.ecx = entry.index;
  }
}

// KVM may offer fewer levels of 0xb and 0x1f than this machine has to describe.
void AddTopologyLevels(std::vector<kvm_cpuid_entry2>& entries, uint32_t function) {
  const bool present = std::erase_if(entries, [function](const kvm_cpuid_entry2& entry) {
                         return entry.function == function;
                       }) > 0;
  if (!present) return;
  for (uint32_t index = 0; index <= 2; ++index) {
    entries.push_back({.function = function,
                       .index = index,
                       .flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX,
                       .eax = 0,
                       .ebx = 0,
                       .ecx = 0,
                       .edx = 0,
                       .padding = {}});
  }
}

void SetLeaf(kvm_cpuid_entry2& entry, const Topology& topology) {
  const bool several = topology.cpus > 1;
  switch (entry.function) {
    case 0x1:
      entry.ecx |= kHypervisor;
      SetBits(entry.ebx, 24, 8, topology.apic_id);
      // Intel counts APIC ids that could be, AMD those that are.
      SetBits(entry.ebx, 16, 8, topology.intel ? std::min(topology.ids(), 255u) : topology.cpus);
      SetBits(entry.edx, 28, 1, several);  // HTT: the count in ebx is valid
      return;
    case 0x4:
    case 0x8000001d:
      SetCacheTopology(entry, topology);
      return;
    case 0xb:
    case 0x1f:
      SetExtendedTopology(entry, topology);
      return;
    case 0x80000001:
      if (!topology.intel) SetBits(entry.ecx, 1, 1, several);  // CmpLegacy: leaf 1 counts cores
      return;
    case 0x80000008:
      if (topology.intel) return;
      SetBits(entry.ecx, 0, 8, topology.cpus - 1);    // NC
      SetBits(entry.ecx, 12, 4, topology.id_bits());  // ApicIdSize
      return;
    case 0x8000001e:
      entry.eax = topology.apic_id;
      SetBits(entry.ebx, 0, 8, topology.apic_id);  // core id
      SetBits(entry.ebx, 8, 8, 0);                 // one thread a core
      entry.ecx = 0;                               // node 0 of one
      return;
    default:
      return;
  }
}

}  // namespace

std::vector<kvm_cpuid_entry2> MakeCpuid(std::vector<kvm_cpuid_entry2> supported, uint32_t apic_id,
                                        uint32_t cpus, bool tsc_deadline) {
  const bool intel = std::ranges::any_of(supported, [](const kvm_cpuid_entry2& entry) {
    return entry.function == 0 && entry.ebx == kVendorIntel;
  });
  const Topology topology = {.apic_id = apic_id, .cpus = cpus, .intel = intel};
  AddTopologyLevels(supported, 0xb);
  AddTopologyLevels(supported, 0x1f);
  for (kvm_cpuid_entry2& entry : supported) {
    SetLeaf(entry, topology);
    if (entry.function == 1) SetBits(entry.ecx, kTscDeadlineBit, 1, tsc_deadline);
  }
  return supported;
}

}  // namespace ringside
