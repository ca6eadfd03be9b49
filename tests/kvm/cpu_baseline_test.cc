// What a level of the x86-64 psABI leaves of what a host offers. The expected bits are written down
// here once more, from the psABI's table and the vendors' manuals.
#include "kvm/cpu_baseline.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

#include "kvm/cpu_features.h"
#include "kvm/cpuid.h"
#include "kvm/cpuid_check.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Leaves = std::vector<kvm_cpuid_entry2>;

constexpr uint32_t kOnes = ~uint32_t{0};
constexpr uint32_t kIntel[] = {0x756e6547, 0x6c65746e, 0x49656e69};  // EBX, ECX, EDX
constexpr uint32_t kAmd[] = {0x68747541, 0x444d4163, 0x69746e65};
constexpr CpuBaseline kLevels[] = {CpuBaseline::kX86_64V2, CpuBaseline::kX86_64V3,
                                   CpuBaseline::kX86_64V4};

kvm_cpuid_entry2 Leaf(uint32_t leaf, uint32_t subleaf, std::array<uint32_t, 4> registers) {
  kvm_cpuid_entry2 entry = {};
  entry.function = leaf;
  entry.index = subleaf;
  entry.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
  entry.eax = registers[0];
  entry.ebx = registers[1];
  entry.ecx = registers[2];
  entry.edx = registers[3];
  return entry;
}

// Size and place of a component of XSAVE; only those up to ZMM matter here.
std::array<uint32_t, 4> Component(uint32_t number, bool intel) {
  switch (number) {
    case 2:
      return {256, 576, kOnes, kOnes};
    case 5:
      return {64, intel ? 1088u : 832u, kOnes, kOnes};
    case 6:
      return {512, intel ? 1152u : 896u, kOnes, kOnes};
    case 7:
      return {1024, intel ? 1664u : 1408u, kOnes, kOnes};
    default:
      return {4096, 8192, kOnes, kOnes};
  }
}

// A host that has all there is, and more.
Leaves FullHost(bool intel = true) {
  Leaves host;
  const auto add = [&](uint32_t leaf) {
    for (uint32_t subleaf = 0; subleaf < 64; ++subleaf) {
      host.push_back(Leaf(leaf, subleaf, {kOnes, kOnes, kOnes, kOnes}));
      if (leaf == 0xd && subleaf >= 2) host.back() = Leaf(leaf, subleaf, Component(subleaf, intel));
    }
  };
  for (uint32_t leaf = 0; leaf < 0x40; ++leaf) add(leaf);
  for (uint32_t leaf = 0x40000000; leaf < 0x40000020; ++leaf) add(leaf);
  for (uint32_t leaf = 0x80000000; leaf < 0x80000040; ++leaf) add(leaf);
  for (uint32_t leaf = 0xc0000000; leaf < 0xc0000008; ++leaf) add(leaf);
  const uint32_t* vendor = intel ? kIntel : kAmd;
  host.front() = Leaf(0, 0, {kOnes, vendor[0], vendor[1], vendor[2]});
  return host;
}

Leaves Limited(const Leaves& host, CpuBaseline baseline) {
  const absl::StatusOr<Leaves> limited = LimitCpuid(host, baseline);
  EXPECT_TRUE(limited.ok()) << limited.status();
  return limited.value_or(Leaves{});
}

std::array<uint32_t, 4> Get(const Leaves& leaves, uint32_t leaf, uint32_t subleaf = 0) {
  const kvm_cpuid_entry2* entry = FindCpuid(leaves, leaf, subleaf);
  if (entry == nullptr) return {};
  return {entry->eax, entry->ebx, entry->ecx, entry->edx};
}

using Place = std::pair<uint32_t, uint32_t>;  // leaf, sub-leaf
using Expected = std::map<Place, std::array<uint32_t, 4>>;

// Of FullHost. What the host says of its caches, topology and name, all of it is left.
Expected ExpectedOf(CpuBaseline baseline) {
  Expected all = {
      {{0x0, 0}, {0x1f, kIntel[0], kIntel[1], kIntel[2]}},
      {{0x1, 0}, {kOnes, kOnes, 0x00b82201, 0x078bfbfd}},
      {{0x2, 0}, {kOnes, kOnes, kOnes, kOnes}},
      {{0x6, 0}, {0x4, 0, 0, 0}},
      {{0x7, 0}, {0, 0x2, 0, 0}},
      {{0x40000000, 0}, {0x40000001, kOnes, kOnes, kOnes}},
      {{0x40000001, 0}, {0x01007efb, 0, 0, 0}},
      {{0x80000000, 0}, {0x8000001e, kOnes, kOnes, kOnes}},
      {{0x80000001, 0}, {kOnes, kOnes, 0x00400001, 0x2bd3fbfd}},
      {{0x80000008, 0}, {0xffff30ff, 0, 0xf0ff, 0}},
  };
  for (uint32_t leaf = 0x80000002; leaf <= 0x80000006; ++leaf) {
    all[{leaf, 0}] = {kOnes, kOnes, kOnes, kOnes};
  }
  for (const uint32_t leaf : {0x4u, 0xbu, 0x1fu, 0x8000001du, 0x8000001eu}) {
    for (uint32_t i = 0; i < 64; ++i) all[{leaf, i}] = {kOnes, kOnes, kOnes, kOnes};
  }
  if (baseline == CpuBaseline::kX86_64V2) return all;
  all[{0x1, 0}][2] |= 0x34401000;  // FMA, MOVBE, XSAVE, AVX, F16C
  all[{0x7, 0}][1] |= 0x128;       // BMI1, AVX2, BMI2
  all[{0x80000001, 0}][2] |= 0x20;
  all[{0xd, 0}] = {0x7, 832, 832, 0};
  all[{0xd, 2}] = {256, 576, 0, 0};
  if (baseline == CpuBaseline::kX86_64V3) return all;
  all[{0x7, 0}][1] |= 0xd0030000;
  all[{0xd, 0}] = {0xe7, 2688, 2688, 0};
  all[{0xd, 5}] = {64, 1088, 0, 0};
  all[{0xd, 6}] = {512, 1152, 0, 0};
  all[{0xd, 7}] = {1024, 1664, 0, 0};
  return all;
}

class CpuBaselineTest : public ::testing::TestWithParam<CpuBaseline> {};
INSTANTIATE_TEST_SUITE_P(, CpuBaselineTest, ::testing::ValuesIn(kLevels), [](const auto& info) {
  return "V" + std::to_string(static_cast<int>(info.param) + 1);
});

TEST_P(CpuBaselineTest, NothingIsLeftButWhatIsOnTheList) {
  const Leaves limited = Limited(FullHost(), GetParam());
  const Expected expected = ExpectedOf(GetParam());
  std::set<Place> seen;
  for (const kvm_cpuid_entry2& entry : limited) {
    const Place place = {entry.function, entry.index};
    SCOPED_TRACE(::testing::Message() << std::hex << place.first << "." << place.second);
    EXPECT_TRUE(seen.insert(place).second) << "twice";
    const auto wanted = expected.find(place);
    ASSERT_NE(wanted, expected.end()) << "is not on the list";
    EXPECT_EQ(Get(limited, place.first, place.second), wanted->second);
  }
  EXPECT_EQ(seen.size(), expected.size());
}

TEST_P(CpuBaselineTest, EveryFeatureOfTheLevelIsMissedByName) {
  for (const CpuFeature& feature : CpuFeatures()) {
    const FeatureLevel level = static_cast<FeatureLevel>(static_cast<int>(GetParam()));
    Leaves host = FullHost();
    for (kvm_cpuid_entry2& entry : host) {
      if (entry.function != feature.word.leaf || entry.index != feature.word.subleaf) continue;
      RegisterOf(entry, feature.word.which) &= ~(uint32_t{1} << feature.bit);
    }
    const absl::Status status = LimitCpuid(host, GetParam()).status();
    if (feature.level > level) {
      EXPECT_EQ(status, absl::OkStatus()) << feature.name;
      continue;
    }
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << feature.name;
    EXPECT_THAT(status.message(),
                AllOf(HasSubstr(CpuBaselineName(GetParam())),
                      HasSubstr(std::string("does not offer, ") + feature.name + ": give a lower"),
                      Not(HasSubstr("\n"))));
  }
}

// Hosts that have the level, and by chance anything else.
TEST_P(CpuBaselineTest, WhatIsSavedOnAnyHostGoesOnOnAnyOther) {
  std::mt19937 random(1);
  const auto make = [&](bool intel) {
    Leaves host = FullHost(intel);
    const Leaves needed = Limited(host, GetParam());
    for (kvm_cpuid_entry2& entry : host) {
      if (entry.function == 0 || (entry.function == 0xd && entry.index >= 2)) continue;
      const auto least = Get(needed, entry.function, entry.index);
      for (size_t i = 0; i < least.size(); ++i) {
        RegisterOf(entry, static_cast<CpuidRegister>(i)) &=
            least[i] | static_cast<uint32_t>(random());
      }
    }
    return host;
  };
  for (int i = 0; i < 50; ++i) {
    const bool intel = i % 2 == 0;
    const Leaves one = make(intel), other = make(intel);
    EXPECT_NE(CheckCpuidIsSupported(one, other), absl::OkStatus()) << "they do differ";
    const Leaves saved = MakeCpuid(Limited(one, GetParam()), 0, 2, true);
    EXPECT_EQ(CheckCpuidIsSupported(saved, other), absl::OkStatus());
    EXPECT_THAT(CheckCpuidIsSupported(saved, make(!intel)).message(), HasSubstr("same vendor"));
  }
}

TEST(CpuBaselineRules, AmdHasItsComponentsElsewhere) {
  const Leaves limited = Limited(FullHost(false), CpuBaseline::kX86_64V4);
  EXPECT_EQ(Get(limited, 0xd), (std::array<uint32_t, 4>{0xe7, 2432, 2432, 0}));
}

TEST(CpuBaselineRules, TheHostsOwnIsLeftAsItIs) {
  const Leaves host = FullHost();
  EXPECT_EQ(Limited(host, CpuBaseline::kHost).size(), host.size());
  EXPECT_EQ(LimitCpuid({}, CpuBaseline::kHost).status(), absl::OkStatus());
}

TEST(CpuBaselineRules, AllThatIsMissingIsNamedAtOnce) {
  Leaves host = FullHost();
  std::erase_if(host, [](const kvm_cpuid_entry2& entry) { return entry.function == 7; });
  EXPECT_EQ(LimitCpuid(host, CpuBaseline::kX86_64V3).status().message(),
            "cpu-baseline x86-64-v3 needs what this host's KVM does not offer, tsc_adjust, bmi1, "
            "avx2, bmi2: give a lower one, or a host that has it");
}

}  // namespace
}  // namespace ringside
