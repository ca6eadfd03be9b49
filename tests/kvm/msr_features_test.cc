// Which MSRs come with features that a guest may lack.
#include "kvm/msr_features.h"

#include <gtest/gtest.h>
#include <vector>

namespace ringside {
namespace {

TEST(MsrFeaturesTest, AnMsrIsTheGuestsWithAnyOfItsFeatures) {
  constexpr uint32_t kSpecCtrl = 0x48, kArchCapabilities = 0x10a, kLastOfVmx = 0x491;
  const std::vector<kvm_cpuid_entry2> none;
  for (const uint32_t msr : {kSpecCtrl, kArchCapabilities, kLastOfVmx, 0xc0000103u}) {
    EXPECT_FALSE(GuestHasMsr(none, msr)) << msr;
  }
  kvm_cpuid_entry2 intel = {};
  intel.function = 7;
  intel.flags = KVM_CPUID_FLAG_SIGNIFCANT_INDEX;
  intel.edx = uint32_t{1} << 31;  // SSBD
  EXPECT_TRUE(GuestHasMsr(std::vector{intel}, kSpecCtrl));
  EXPECT_FALSE(GuestHasMsr(std::vector{intel}, kArchCapabilities));
  kvm_cpuid_entry2 amd = {};
  amd.function = 0x80000008;
  amd.ebx = uint32_t{1} << 14;  // IBRS
  EXPECT_TRUE(GuestHasMsr(std::vector{amd}, kSpecCtrl));
}

// TSC, APIC_BASE, EFER, and one that nobody has.
TEST(MsrFeaturesTest, AllOthersAreTheGuests) {
  for (const uint32_t msr : {0x10u, 0x1bu, 0xc0000080u, 0x12345u}) {
    EXPECT_TRUE(GuestHasMsr({}, msr)) << msr;
  }
}

}  // namespace
}  // namespace ringside
