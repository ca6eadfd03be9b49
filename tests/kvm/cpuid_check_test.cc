// What a saved vCPU was told it has, against what a host offers.
#include "kvm/cpuid_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

kvm_cpuid_entry2 Leaf(uint32_t function, uint32_t ebx, uint32_t ecx) {
  kvm_cpuid_entry2 entry = {};
  entry.function = function;
  entry.flags = function == 7 ? KVM_CPUID_FLAG_SIGNIFCANT_INDEX : 0;
  entry.ebx = ebx;
  entry.ecx = ecx;
  return entry;
}

TEST(CpuidCheckTest, WhatIsMissingIsNamed) {
  const std::vector<kvm_cpuid_entry2> host = {Leaf(1, 0, 0x1), Leaf(7, 1 << 3, 0)};
  EXPECT_EQ(CheckCpuidIsSupported(host, host), absl::OkStatus());
  const std::vector<kvm_cpuid_entry2> avx2 = {Leaf(1, 0, 0x1), Leaf(7, 1 << 3 | 1 << 5, 0)};
  EXPECT_THAT(CheckCpuidIsSupported(avx2, host).message(),
              HasSubstr("avx2 (CPUID 0x7.0 EBX, bit 5), which this host's KVM does not offer"));
  const std::vector<kvm_cpuid_entry2> unnamed = {Leaf(1, 0, 0x3)};
  EXPECT_THAT(CheckCpuidIsSupported(unnamed, host).message(),
              HasSubstr("has CPUID 0x1.0 ECX, bit 1,"));
  EXPECT_EQ(CheckCpuidIsSupported(host, avx2), absl::OkStatus()) << "more than was saved";
}

// A leaf that has no subleaves may have anything as its index, and a host may lack it.
TEST(CpuidCheckTest, LeavesAreFoundByWhatTheyAre) {
  kvm_cpuid_entry2 odd = Leaf(1, 0, 0x1);
  odd.index = 77;
  const std::vector<kvm_cpuid_entry2> saved = {Leaf(1, 0, 0x1)};
  EXPECT_EQ(CheckCpuidIsSupported(saved, std::vector{odd}), absl::OkStatus());
  EXPECT_THAT(CheckCpuidIsSupported(saved, {}).message(), HasSubstr("bit 0"));
}

// What KVM does not list, since its guests have it by other means.
TEST(CpuidCheckTest, WhatKvmDoesNotListIsNotMissed) {
  const std::vector<kvm_cpuid_entry2> host = {Leaf(1, 0, 0)};
  for (const int bit : {3, 21, 24, 27, 31}) {
    const std::vector<kvm_cpuid_entry2> saved = {Leaf(1, 0, uint32_t{1} << bit)};
    EXPECT_EQ(CheckCpuidIsSupported(saved, host), absl::OkStatus()) << bit;
  }
}

}  // namespace
}  // namespace ringside
