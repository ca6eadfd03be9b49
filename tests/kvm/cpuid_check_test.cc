// What a saved vCPU was told it has, against what a host offers.
#include "kvm/cpuid_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
  const std::vector<kvm_cpuid_entry2> unnamed = {Leaf(1, 0, 0x5)};
  EXPECT_THAT(CheckCpuidIsSupported(unnamed, host).message(),
              HasSubstr("has CPUID 0x1.0 ECX, bit 2,"));
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

kvm_cpuid_entry2 Vendor(uint32_t ebx, uint32_t ecx, uint32_t edx) {
  kvm_cpuid_entry2 entry = {};
  entry.ebx = ebx;
  entry.ecx = ecx;
  entry.edx = edx;
  return entry;
}

TEST(CpuidCheckTest, AnotherVendorIsRefused) {
  const std::vector<kvm_cpuid_entry2> intel = {Vendor(0x756e6547, 0x6c65746e, 0x49656e69)};
  const std::vector<kvm_cpuid_entry2> amd = {Vendor(0x68747541, 0x444d4163, 0x69746e65)};
  EXPECT_EQ(CheckCpuidIsSupported(intel, intel), absl::OkStatus());
  EXPECT_EQ(CheckCpuidIsSupported(amd, intel).message(),
            "the saved vCPU is by 'AuthenticAMD' and this host's processor by 'GenuineIntel': "
            "restore on a host of the same vendor");
  // A state is data: what it says is not printed as it is.
  EXPECT_THAT(CheckCpuidIsSupported(std::vector{Vendor(0x1b5b1b5b, 0, 0)}, intel).message(),
              Not(HasSubstr("\x1b")));
}

// Extended registers go to KVM as they are in memory.
TEST(CpuidCheckTest, AnotherLayoutOfExtendedRegistersIsRefused) {
  kvm_cpuid_entry2 component = {};
  component.function = 0xd;
  component.index = 5;
  component.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
  component.eax = 64;
  component.ebx = 1088;
  const std::vector<kvm_cpuid_entry2> saved = {component};
  EXPECT_EQ(CheckCpuidIsSupported(saved, saved), absl::OkStatus());
  component.ebx = 832;
  EXPECT_THAT(CheckCpuidIsSupported(saved, std::vector{component}).message(),
              HasSubstr("component 5 of XSAVE as 64 bytes at 1088, and this host's KVM as 64 at "
                        "832: restore"));
  EXPECT_THAT(CheckCpuidIsSupported(saved, {}).message(), HasSubstr("as 0 at 0"));
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
