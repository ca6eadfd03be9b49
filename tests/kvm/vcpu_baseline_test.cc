// What KVM makes of a processor that a baseline describes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "kvm/cpu_baseline.h"
#include "kvm/cpu_features.h"
#include "tests/support/kvm/vcpu_fixture.h"

namespace ringside {
namespace {

using Leaves = std::vector<kvm_cpuid_entry2>;

class VcpuBaselineTest : public testing::VcpuTest,
                         public ::testing::WithParamInterface<CpuBaseline> {
 protected:
  // KVM's list and all of the features that are known by name, which it takes though it may not
  // offer them: so the test is of every host.
  Leaves MoreThanSupported() const {
    Leaves leaves = *kvm_->SupportedCpuid();
    for (kvm_cpuid_entry2& leaf : leaves) {
      for (const CpuFeature& feature : CpuFeatures()) {
        if (feature.word.leaf != leaf.function || feature.word.subleaf != SubleafOf(leaf)) continue;
        RegisterOf(leaf, feature.word.which) |= uint32_t{1} << feature.bit;
      }
    }
    return leaves;
  }
};

// Where KVM has VMX or SVM. One that is without merges what the host has: it is found out.
TEST_P(VcpuBaselineTest, KvmKeepsToItOrIsFoundOut) {
  const absl::StatusOr<Leaves> limited = LimitCpuid(MoreThanSupported(), GetParam());
  ASSERT_TRUE(limited.ok()) << limited.status();
  const Leaves given = MakeCpuid(*limited, 0, 1, true);
  for (const CpuFeature& feature : CpuFeatures()) {
    const uint32_t has = CpuidValue(given, feature.word) >> feature.bit & 1;
    const auto level = static_cast<FeatureLevel>(GetParam());
    EXPECT_EQ(has, feature.level <= level ? 1u : 0u) << feature.name;
  }
  KvmVcpu vcpu = *vm_->CreateVcpu(0);
  ASSERT_EQ(vcpu.SetCpuid(given), absl::OkStatus());
  const absl::Status status = CheckIsLimited(vcpu, given, GetParam());
  const bool has_hardware =
      access("/sys/module/kvm_intel", F_OK) == 0 || access("/sys/module/kvm_amd", F_OK) == 0;
  if (has_hardware) {
    EXPECT_EQ(status, absl::OkStatus());
  } else if (!status.ok()) {
    EXPECT_THAT(status.message(), ::testing::HasSubstr(CpuBaselineName(GetParam())));
    EXPECT_THAT(status.message(), ::testing::HasSubstr("this host's KVM shows its guests"));
  }
  EXPECT_EQ(CheckIsLimited(vcpu, given, CpuBaseline::kHost), absl::OkStatus());
}

// What is found out: a vCPU that was given more.
TEST_P(VcpuBaselineTest, AVcpuThatHasMoreIsRefused) {
  const absl::StatusOr<Leaves> limited = LimitCpuid(MoreThanSupported(), GetParam());
  ASSERT_TRUE(limited.ok()) << limited.status();
  KvmVcpu vcpu = *vm_->CreateVcpu(0);
  ASSERT_EQ(vcpu.SetCpuid(MakeCpuid(MoreThanSupported(), 0, 1, true)), absl::OkStatus());
  EXPECT_THAT(CheckIsLimited(vcpu, *limited, GetParam()).message(),
              ::testing::HasSubstr("use a host whose KVM has VMX or SVM"));
}

INSTANTIATE_TEST_SUITE_P(, VcpuBaselineTest,
                         ::testing::Values(CpuBaseline::kX86_64V2, CpuBaseline::kX86_64V3,
                                           CpuBaseline::kX86_64V4),
                         [](const auto& info) {
                           return "V" + std::to_string(static_cast<int>(info.param) + 1);
                         });

}  // namespace
}  // namespace ringside
