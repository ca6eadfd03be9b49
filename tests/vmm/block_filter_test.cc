// Filters of an embedder's own around a machine's disks, and what the reports say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "command/statistics_report.h"
#include "tests/support/block/counting_filter.h"
#include "tests/support/count_of.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"

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
  const nlohmann::json disks = nlohmann::json::parse(StatisticsJsonText(statistics))["disks"];
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
  EXPECT_THAT(StatisticsTable(statistics),
              HasSubstr(", " + counters["outer.reads"].dump() + " outer.reads"));
}

TEST_F(BlockFilterTest, TakesOfTheHostWhatItHoldsTakes) {
  MachineConfig config = GuestConfig(console_, "");
  config.assigned = {{.address = "0000:0a:00.0"}};
  config.disks = {{.backend = CountingConfig{.backend = NvmeConfig{.address = "0000:0a:00.0"}}}};
  EXPECT_THAT(Machine::Create(config).status(),
              IsBadInput("0000:0a:00.0", "disk0 too (nvme://0000:0a:00.0/1)"));
}

}  // namespace
}  // namespace ringside
