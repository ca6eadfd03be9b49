// Where threads may run.
#include "base/affinity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/status.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

// Those of this thread.
std::vector<int> Allowed() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string ErrorOf(const std::vector<int>& cpus) {
  const absl::Status status = CheckHostCpus(cpus);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(Message(status));
}

TEST(AffinityTest, WhatIsAllowedMayBeAskedFor) {
  EXPECT_TRUE(CheckHostCpus(Allowed()).ok());
  EXPECT_TRUE(CheckHostCpus({}).ok());
}

TEST(AffinityTest, SaysWhichCpuCannotBe) {
  const int cpu = Allowed().front();
  EXPECT_THAT(ErrorOf({cpu, 8000}), HasSubstr("CPU 8000 cannot be; this host has 0 to "));
  EXPECT_THAT(ErrorOf({1 << 20}), HasSubstr("CPU 1048576 cannot be"));
  EXPECT_THAT(ErrorOf({-1}), HasSubstr("CPU -1 cannot be"));
  EXPECT_THAT(ErrorOf({cpu, cpu}), HasSubstr("is named twice"));
}

TEST(AffinityTest, AThreadIsKeptWhereItIsPinned) {
  if (Allowed().size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  std::thread([] {
    const std::vector<int> before = Allowed();
    EXPECT_TRUE(PinThisThread({}).ok());
    EXPECT_EQ(Allowed(), before);
    const std::vector<int> last = {before.back()};
    EXPECT_TRUE(PinThisThread(last).ok());
    EXPECT_EQ(Allowed(), last);
    const std::vector<int> first = {before.front()};
    EXPECT_THAT(ErrorOf(first), HasSubstr("is not allowed to this process"));
  }).join();
}

}  // namespace
}  // namespace ringside
