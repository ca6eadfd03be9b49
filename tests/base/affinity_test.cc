// Where threads may run.
#include "base/affinity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/status.h"
#include "tests/support/cpus.h"

namespace ringside {
namespace {

using testing::AllowedCpus;
using ::testing::HasSubstr;

std::string ErrorOf(const std::vector<int>& cpus) {
  const absl::Status status = CheckHostCpus(cpus);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(status));
}

TEST(AffinityTest, WhatIsAllowedMayBeAskedFor) {
  EXPECT_TRUE(CheckHostCpus(AllowedCpus()).ok());
  EXPECT_TRUE(CheckHostCpus({}).ok());
}

TEST(AffinityTest, SaysWhichCpuCannotBe) {
  const int cpu = AllowedCpus().front();
  EXPECT_THAT(ErrorOf({cpu, 8000}), HasSubstr("CPU 8000 does not exist: this host has 0 to "));
  EXPECT_THAT(ErrorOf({1 << 20}), HasSubstr("CPU 1048576 does not exist"));
  EXPECT_THAT(ErrorOf({-1}), HasSubstr("CPU -1 does not exist"));
  EXPECT_THAT(ErrorOf({cpu, cpu}), HasSubstr("is named twice"));
}

TEST(AffinityTest, AThreadIsKeptWhereItIsPinned) {
  if (AllowedCpus().size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  std::thread([] {
    const std::vector<int> before = AllowedCpus();
    EXPECT_TRUE(PinThisThread({}).ok());
    EXPECT_EQ(AllowedCpus(), before);
    const std::vector<int> last = {before.back()};
    EXPECT_TRUE(PinThisThread(last).ok());
    EXPECT_EQ(AllowedCpus(), last);
    const std::vector<int> first = {before.front()};
    EXPECT_THAT(ErrorOf(first), HasSubstr("is not allowed to this process"));
  }).join();
}

}  // namespace
}  // namespace ringside
