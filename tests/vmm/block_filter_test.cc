// Filters of an embedder's own around a machine's disks, and what the reports say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/block/counting_filter.h"
#include "tests/support/count_of.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

using testing::CountingConfig;
using testing::CountOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kMiB = 1 << 20;

class BlockFilterTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineStatistics Run(const std::string& command_line, const std::vector<DiskConfig>& disks) {
    MachineConfig config = GuestConfig(console_, command_line);
    config.disks = disks;
    const auto machine = Machine::Create(config);
    EXPECT_TRUE(machine.ok()) << machine.status();
    if (!machine.ok() || !(*machine)->Start().ok()) return {};
    EXPECT_EQ((*machine)->Wait().kind, EndKind::kPowerOff);
    EXPECT_THAT(console_.Output(), Not(HasSubstr("FAIL")));
    return (*machine)->Statistics();
  }

  const TestConsole console_;
};

TEST_F(BlockFilterTest, CountsWhatTheQueueDoes) {
  const MachineStatistics statistics =
      Run("rw=randrw qd=8 runtime=100ms",
          {{.backend = CountingConfig{.backend = NullConfig{.size = 64 * kMiB}}}});
  ASSERT_EQ(statistics.disks.size(), 1u);
  const DiskStatistics& disk = statistics.disks[0];
  EXPECT_EQ(disk.path, "null");
  EXPECT_EQ(disk.engine, "null");
  EXPECT_GT(disk.queues[0].reads, 0u);
  EXPECT_EQ(CountOf(disk.counters, "reads"), disk.queues[0].reads);
  EXPECT_EQ(CountOf(disk.counters, "writes"), disk.queues[0].writes);
}

// Nothing in the reports knows these counters.
TEST_F(BlockFilterTest, OneAroundAnotherIsInTheReportsByItself) {
  const testing::TempFile plain(16 * kMiB), nested(16 * kMiB);
  const BlockBackend file = FileConfig{.path = nested.path(), .cache = CacheMode::kWriteback};
  const CountingConfig inner = {.backend = file, .prefix = "inner."};
  const MachineStatistics statistics =
      Run("disk=1", {{.backend = CountingConfig{.backend = FileConfig{.path = plain.path()},
                                                .prefix = "counted."}},
                     {.backend = CountingConfig{.backend = inner, .prefix = "outer."}}});
  const nlohmann::json disks = StatisticsJson(statistics)["disks"];
  ASSERT_EQ(disks.size(), 2u);
  EXPECT_EQ(disks[1]["path"], nested.path());
  EXPECT_EQ(disks[1]["cache"], "writeback");
  EXPECT_NE(disks[1]["aio"], "");
  EXPECT_GT(disks[0]["counters"]["counted.writes"], 100);
  const nlohmann::json& counters = disks[1]["counters"];
  for (const std::string name : {"reads", "writes", "flushes", "discards", "zeroes"}) {
    EXPECT_EQ(counters["outer." + name], counters["inner." + name]) << name;
    EXPECT_EQ(counters["outer." + name], counters[name]) << name;
  }
  EXPECT_GT(counters["outer.flushes"], 0);
}

TEST_F(BlockFilterTest, TakesOfTheHostWhatItHoldsTakes) {
  MachineConfig config = GuestConfig(console_, "");
  config.assigned = {{.address = "0000:0a:00.0"}};
  config.disks = {{.backend = CountingConfig{.backend = NvmeConfig{.address = "0000:0a:00.0"}}}};
  EXPECT_THAT(Machine::Create(config).status(),
              IsBadInput("0000:0a:00.0", "disk0 too (nvme://0000:0a:00.0/1)"));
}

class FaultMachineTest : public BlockFilterTest {};

// Requests that hang are with the disk; nothing of the machine waits for them.
TEST_F(FaultMachineTest, WhatHangsMovesAndEndsWithTheMachine) {
  testing::TempFile script(0);
  script.Fill(0, "read hang after=100\n");
  MachineConfig config = GuestConfig(console_, "rw=randread qd=8 runtime=60s wait=irq");
  config.io_threads = {{.id = "a"}, {.id = "b"}};
  config.disks = {{.backend = NullConfig{.size = 64 * kMiB}, .fault_script = script.path()}};
  const auto machine = Machine::Create(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  ASSERT_TRUE((*machine)->Start().ok());
  const auto hung = [&] {
    return CountOf((*machine)->Statistics().disks[0].counters, "fault_hung");
  };
  ASSERT_TRUE(testing::SpinUntil([&] { return hung() == 8; }));
  EXPECT_TRUE((*machine)->MoveQueue("disk0", 0, "b", testing::kWaitLimit).ok());
  EXPECT_TRUE(testing::SpinUntil([&] { return hung() == 16; })) << "begun anew on the other thread";
  EXPECT_TRUE(absl::IsDeadlineExceeded((*machine)->Pause(absl::Milliseconds(30))));
  (*machine)->Stop();
  EXPECT_EQ((*machine)->Wait().kind, EndKind::kStopped);
}

TEST_F(FaultMachineTest, AGuestSeesItsDiskFail) {
  testing::TempFile script(0);
  script.Fill(0, "write torn after=50\n");
  const testing::TempFile image(16 * kMiB);
  MachineConfig config = GuestConfig(console_, "disk=1");
  config.disks = {{.backend = FileConfig{.path = image.path()}, .fault_script = script.path()}};
  const GuestRun run = RunGuest(config, console_);
  EXPECT_THAT(run.output, HasSubstr("FAIL"));
}

}  // namespace
}  // namespace ringside
