#include "kvm/cpu_baseline.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <string>
#include <sys/ioctl.h>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "kvm/cpu_features.h"
#include "kvm/cpuid_check.h"

namespace ringside {
namespace {

constexpr uint32_t kAll = ~uint32_t{0};
constexpr uint32_t kXsaveLeaf = 0xd;
constexpr uint32_t kFirstPvLeaf = 0x40000000, kFirstExtendedLeaf = 0x80000000;

// Leaves of which something is left, with the bits that are no features; those that are come from
// CpuFeatures(). All others are gone, which reads as zeros (Intel SDM volume 2A, CPUID). Among them
// are these, each of which a guest finds only where the host has it: the PMU (0xa, 0x80000022),
// monitoring and allocation of caches (0xf, 0x10), SGX (0x12), processor trace (0x14), AMX (0x1d,
// 0x1e), SVM (0x8000000a), memory encryption (0x8000001f), and what mitigations go by (7.0
// EDX, 7.2, 0x80000008 EBX, 0x80000021).
struct KeptLeaves {
  uint32_t first, last;
  uint32_t first_subleaf, last_subleaf;
  uint32_t eax, ebx, ecx, edx;
};

// KVM's own features, those that Linux 5.10 has: clocks, time stolen, interrupts' ends, wake-ups,
// TLB flushes, interrupts between vCPUs, polling (Linux Documentation/virt/kvm/x86/cpuid.rst).
constexpr uint32_t kPvFeatures = CpuidBits({0, 1, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 24});
// AMD's copy of leaf 1 without VME, and MMXEXT and FXSR_OPT, as old as 64 bits there. Intel has
// zeros.
constexpr uint32_t kAmdEdx =
    CpuidBits({0, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 22, 23, 24, 25});
// TOPOEXT: AMD has it on every processor of x86-64-v2, and it is what makes leaves 0x8000001d and
// 0x8000001e valid. Intel has zero.
constexpr uint32_t kAmdEcx = CpuidBits({22});

constexpr auto kKept = std::to_array<KeptLeaves>({
    {0x0, 0x0, 0, 0, kAll, kAll, kAll, kAll},     // vendor
    {0x1, 0x1, 0, 0, kAll, kAll, 0, 0},           // family, model, stepping; APIC id
    {0x2, 0x2, 0, 0, kAll, kAll, kAll, kAll},     // caches
    {0x4, 0x4, 0, kAll, kAll, kAll, kAll, kAll},  // caches
    {0x6, 0x6, 0, 0, 0, 0, 0, 0},
    {0x7, 0x7, 0, 0, 0, 0, 0, 0},
    {0xb, 0xb, 0, kAll, kAll, kAll, kAll, kAll},        // topology, which MakeCpuid writes
    {kXsaveLeaf, kXsaveLeaf, 0, 0, 0, kAll, kAll, 0},   // which components; sizes
    {kXsaveLeaf, kXsaveLeaf, 2, 31, kAll, kAll, 0, 0},  // size and place of one
    {0x1f, 0x1f, 0, kAll, kAll, kAll, kAll, kAll},      // topology
    {kFirstPvLeaf, kFirstPvLeaf, 0, 0, kAll, kAll, kAll, kAll},
    {kFirstPvLeaf + 1, kFirstPvLeaf + 1, 0, 0, kPvFeatures, 0, 0, 0},
    {kFirstExtendedLeaf, kFirstExtendedLeaf, 0, 0, kAll, kAll, kAll, kAll},
    {0x80000001, 0x80000001, 0, 0, kAll, kAll, kAmdEcx, kAmdEdx},
    {0x80000002, 0x80000006, 0, 0, kAll, kAll, kAll, kAll},     // name; caches and TLBs
    {0x80000008, 0x80000008, 0, 0, kAll, 0, 0xf0ff, 0},         // address widths; cores
    {0x8000001d, 0x8000001e, 0, kAll, kAll, kAll, kAll, kAll},  // caches and topology of AMD
});

struct Level {
  const char* name;
  FeatureLevel features;
};
constexpr std::array<Level, 4> kLevels = {{{"host", FeatureLevel::kNone},
                                           {"x86-64-v2", FeatureLevel::kV2},
                                           {"x86-64-v3", FeatureLevel::kV3},
                                           {"x86-64-v4", FeatureLevel::kV4}}};

absl::Status CheckHasAll(std::span<const kvm_cpuid_entry2> supported, const Level& level) {
  std::vector<std::string> missing;
  for (const CpuFeature& feature : CpuFeatures()) {
    if (feature.level > level.features) continue;
    const bool has = (CpuidValue(supported, feature.word) >> feature.bit & 1) != 0;
    if (!has) missing.emplace_back(feature.name);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("cpu-baseline %s needs what this host's KVM does not offer, %s: give a lower "
                      "one, or a host that has it",
                      level.name, absl::StrJoin(missing, ", ")));
}

uint32_t FeaturesOf(const CpuidWord& word, FeatureLevel level) {
  uint32_t bits = 0;
  for (const CpuFeature& feature : CpuFeatures()) {
    if (feature.word == word && feature.level <= level) bits |= uint32_t{1} << feature.bit;
  }
  return bits;
}

bool IsOf(const kvm_cpuid_entry2& entry, const KeptLeaves& leaves) {
  const uint32_t subleaf = SubleafOf(entry);
  return leaves.first <= entry.function && entry.function <= leaves.last &&
         leaves.first_subleaf <= subleaf && subleaf <= leaves.last_subleaf;
}

void Limit(kvm_cpuid_entry2& entry, const KeptLeaves& kept, FeatureLevel level) {
  const std::array<uint32_t, 4> others = {kept.eax, kept.ebx, kept.ecx, kept.edx};
  for (size_t i = 0; i < others.size(); ++i) {
    const auto which = static_cast<CpuidRegister>(i);
    RegisterOf(entry, which) &=
        others[i] | FeaturesOf({entry.function, SubleafOf(entry), which}, level);
  }
}

// Leaf 0xd has a sub-leaf for each component, with its size in EAX and its place in EBX, and the
// size of them all in the first one, from its end that is farthest (Intel SDM volume 1, section
// 13.2). Sub-leaf 1 has other ways to save them, which are of no level.
void FitXsave(std::vector<kvm_cpuid_entry2>& entries) {
  constexpr uint32_t kLegacyAndHeader = 512 + 64;
  const uint32_t components = CpuidValue(entries, {kXsaveLeaf, 0, CpuidRegister::kEax});
  std::erase_if(entries, [=](const kvm_cpuid_entry2& entry) {
    return entry.function == kXsaveLeaf && (components >> SubleafOf(entry) & 1) == 0;
  });
  uint32_t size = kLegacyAndHeader;
  for (const kvm_cpuid_entry2& entry : entries) {
    if (entry.function == kXsaveLeaf && SubleafOf(entry) >= 2) {
      size = std::max(size, entry.eax + entry.ebx);
    }
  }
  for (kvm_cpuid_entry2& entry : entries) {
    if (entry.function == kXsaveLeaf && SubleafOf(entry) == 0) entry.ebx = entry.ecx = size;
  }
}

// 57 bits of a linear address are of LA57, which no level has; a processor without has 48.
void FitAddressWidths(kvm_cpuid_entry2& entry) {
  constexpr uint32_t kLinear = 0xff00, k48Bits = 48 << 8;
  if (entry.function == 0x80000008) entry.eax = (entry.eax & ~kLinear) | k48Bits;
}

// Leaf `first` says which leaf is the last of those that begin there.
void FitLastLeaf(std::vector<kvm_cpuid_entry2>& entries, uint32_t first, uint32_t end) {
  uint32_t last = first;
  for (const kvm_cpuid_entry2& entry : entries) {
    if (entry.function >= first && entry.function < end) last = std::max(last, entry.function);
  }
  for (kvm_cpuid_entry2& entry : entries) {
    if (entry.function == first) entry.eax = last;
  }
}

absl::StatusOr<std::vector<kvm_cpuid_entry2>> ReadCpuid(const KvmVcpu& vcpu) {
  constexpr size_t kMost = 256;
  constexpr size_t kBytes = sizeof(kvm_cpuid2) + kMost * sizeof(kvm_cpuid_entry2);
  std::vector<uint64_t> room(kBytes / sizeof(uint64_t) + 1);  // uint64_t for its alignment
  auto* const table = reinterpret_cast<kvm_cpuid2*>(room.data());
  table->nent = kMost;
  if (ioctl(vcpu.fd(), KVM_GET_CPUID2, table) != 0) {
    return ErrnoError(errno, "KVM_GET_CPUID2 failed");
  }
  const auto* const entries = reinterpret_cast<const kvm_cpuid_entry2*>(table + 1);
  return std::vector(entries, entries + table->nent);
}

}  // namespace

const char* CpuBaselineName(CpuBaseline baseline) {
  return kLevels[static_cast<size_t>(baseline)].name;
}

absl::StatusOr<std::vector<kvm_cpuid_entry2>> LimitCpuid(std::vector<kvm_cpuid_entry2> supported,
                                                         CpuBaseline baseline) {
  if (baseline == CpuBaseline::kHost) return supported;
  const Level& level = kLevels[static_cast<size_t>(baseline)];
  RINGSIDE_RETURN_IF_ERROR(CheckHasAll(supported, level));
  std::vector<kvm_cpuid_entry2> limited;
  for (kvm_cpuid_entry2 entry : supported) {
    const auto kept =
        std::ranges::find_if(kKept, [&](const KeptLeaves& leaves) { return IsOf(entry, leaves); });
    if (kept == kKept.end()) continue;
    Limit(entry, *kept, level.features);
    FitAddressWidths(entry);
    limited.push_back(entry);
  }
  FitXsave(limited);
  FitLastLeaf(limited, 0, kFirstPvLeaf);
  FitLastLeaf(limited, kFirstPvLeaf, kFirstExtendedLeaf);
  FitLastLeaf(limited, kFirstExtendedLeaf, std::numeric_limits<uint32_t>::max());
  return limited;
}

absl::Status CheckIsLimited(const KvmVcpu& vcpu, std::span<const kvm_cpuid_entry2> limited,
                            CpuBaseline baseline) {
  if (baseline == CpuBaseline::kHost) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<kvm_cpuid_entry2> seen, ReadCpuid(vcpu));
  const std::string more = FirstFeatureBeyond(seen, limited);
  if (more.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "cpu-baseline %s cannot be had here: this host's KVM shows its guests %s, too; use a host "
      "whose KVM has VMX or SVM",
      CpuBaselineName(baseline), more));
}

}  // namespace ringside
