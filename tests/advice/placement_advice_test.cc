// Interrupts and NUMA nodes: what is said of them, and what a run's report makes of it.
#include "advice/placement_advice.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "advice/disk_advice.h"
#include "command/placement_report.h"
#include "command/poll_report.h"
#include "tests/advice/fake_host.h"
#include "tests/advice/findings.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const std::vector<HostNode> kTwoNodes = {{0, 1, {0, 1}}, {1, 1, {2, 3, 6}}};

TEST(CpuListTest, WritesRanges) {
  EXPECT_EQ(CpuList({0, 1, 2, 5, 7, 8}, '+'), "0-2+5+7-8");
  EXPECT_EQ(CpuList({4}, ','), "4");
  EXPECT_EQ(CpuList({}, ','), "");
}

// ---- Interrupts ----

PciFacts OneInterrupt() {
  return {.address = "0000:00:02.0",
          .driver = "virtio-pci",
          .interrupts = {{.number = 36, .name = "virtio1-req.0", .cpus = {1}}}};
}

TEST(InterruptAdviceTest, OneInterruptHasAPlaceForTheThread) {
  EXPECT_THAT(InterruptAdvice(OneInterrupt(), {}),
              ElementsAre(FindsCommand(Verdict::kNote, "interrupts", "--iothread cpu=1")));
  EXPECT_THAT(InterruptAdvice(OneInterrupt(), {.io_thread_cpus = {0, 1}}),
              ElementsAre(FindsText(Verdict::kGood, "interrupts", "interrupt 36, virtio1-req.0")));
  EXPECT_THAT(InterruptAdvice(OneInterrupt(), {.io_thread_cpus = {0, 2}}),
              ElementsAre(FindsCommand(Verdict::kSlow, "interrupts",
                                       "echo 0,2 > /proc/irq/36/smp_affinity_list")));
}

TEST(InterruptAdviceTest, OneThatTheKernelKeepsIsNotMoved) {
  PciFacts device = OneInterrupt();
  device.driver = "nvme";
  EXPECT_THAT(InterruptAdvice(device, {.io_thread_cpus = {0}}),
              ElementsAre(FindsCommand(Verdict::kSlow, "interrupts", "--iothread cpu=1")));
}

TEST(InterruptAdviceTest, ManyAreKeptByTheKernel) {
  const PciFacts device = {.address = "0000:00:04.0",
                           .driver = "nvme",
                           .interrupts = {{.number = 25, .name = "nvme0q1", .cpus = {1}},
                                          {.number = 26, .name = "nvme0q2", .cpus = {0}}}};
  EXPECT_THAT(InterruptAdvice(device, {.io_thread_cpus = {7}}),
              ElementsAre(FindsText(Verdict::kGood, "interrupts",
                                    "2 interrupts for I/O, which the kernel keeps on processors "
                                    "0-1")));
}

TEST(InterruptAdviceTest, WhatIsNotKnownIsSaid) {
  EXPECT_THAT(InterruptAdvice({}, {}), ElementsAre(Finds(Verdict::kUnknown, "interrupts")));
}

// ---- Nodes ----

TEST(NodeAdviceTest, AHostOfOneNodeHasNoneToSpeakOf) {
  EXPECT_THAT(NodeAdvice(0, {}, {{0, 1, {0, 1}}}), IsEmpty());
  EXPECT_THAT(NodeAdvice(0, {}, {}), IsEmpty());
}

TEST(NodeAdviceTest, AllOnTheDisksNodeIsGood) {
  const Placement placement = {.io_thread_cpus = {3}, .memory_nodes = {1}};
  EXPECT_THAT(NodeAdvice(1, placement, kTwoNodes), ElementsAre(Finds(Verdict::kGood, "nodes")));
}

TEST(NodeAdviceTest, WhatIsElsewhereOrAnywhereIsSlow) {
  EXPECT_THAT(
      NodeAdvice(1, {}, kTwoNodes),
      UnorderedElementsAre(FindsCommand(Verdict::kSlow, "io-thread-node", "--iothread cpu=2-3+6"),
                           FindsCommand(Verdict::kSlow, "memory-node", "--memory-node 1")));
  EXPECT_THAT(NodeAdvice(1, {.io_thread_cpus = {0}, .memory_nodes = {1}}, kTwoNodes),
              UnorderedElementsAre(FindsText(Verdict::kSlow, "io-thread-node", "on node 0"),
                                   FindsText(Verdict::kSlow, "nodes", "runs on node 0")));
  EXPECT_THAT(NodeAdvice(1, {.io_thread_cpus = {0, 2}, .memory_nodes = {0, 1}}, kTwoNodes),
              UnorderedElementsAre(FindsText(Verdict::kSlow, "io-thread-node", "nodes 0 and 1"),
                                   FindsText(Verdict::kSlow, "memory-node", "nodes 0 and 1")));
}

TEST(NodeAdviceTest, ADiskWithoutANodeLeavesTheOthers) {
  EXPECT_THAT(NodeAdvice(std::nullopt, {.io_thread_cpus = {0}, .memory_nodes = {1}}, kTwoNodes),
              UnorderedElementsAre(Finds(Verdict::kUnknown, "nodes"),
                                   FindsText(Verdict::kSlow, "nodes", "memory is on node 1")));
}

TEST(NodeAdviceTest, BalancingIsInVainWhereAllIsPlaced) {
  DiskFacts facts = {.path = "x", .kind = DiskKindFound::kNvme};
  facts.nodes = kTwoNodes;
  facts.numa_balancing = 1;
  const Placement placement = {.memory_nodes = {1}};
  EXPECT_THAT(
      DiskAdvice(facts, placement),
      Contains(FindsCommand(Verdict::kSlow, "numa-balancing", "sysctl kernel.numa_balancing=0")));
  EXPECT_THAT(DiskAdvice(facts, {}), Not(Contains(IsAbout("numa-balancing"))));
  facts.numa_balancing = 0;
  EXPECT_THAT(DiskAdvice(facts, placement), Not(Contains(IsAbout("numa-balancing"))));
}

// ---- What --explain says ----

// A disk on node 1 of a host with two, which is not this one: its file's device is looked up there.
class PlacementReportTest : public ::testing::Test {
 protected:
  PlacementReportTest() {
    struct stat info;
    EXPECT_EQ(fstat(file_.fd(), &info), 0);
    host_.AddNode(0, "0-1");
    host_.AddNode(1, "2-3");
    host_.AddPci("pci0000:80/0000:80:04.0", "nvme", "1", {});
    host_.AddBlock("pci0000:80/0000:80:04.0/nvme/nvme0/nvme0n1",
                   std::to_string(major(info.st_dev)) + ":" + std::to_string(minor(info.st_dev)),
                   {});
    statistics_.io_threads.resize(2);
    statistics_.io_threads[0].id = "a";
    statistics_.io_threads[0].cpus = {0};
    statistics_.io_threads[1].id = "b";
    statistics_.io_threads[1].cpus = {2, 3};
    statistics_.disks = {{.id = "disk0", .path = file_.path(), .queues = {{.io_thread = "b"}}}};
  }

  const testing::TempFile file_{4096};
  testing::FakeHost host_;
  MachineStatistics statistics_;
};

TEST_F(PlacementReportTest, TellsOfADiskThatIsFarAway) {
  EXPECT_THAT(PlacementText(PlacementsOf(statistics_, {1}, host_.root())),
              HasSubstr("are on node 1"));
  EXPECT_THAT(PlacementText(PlacementsOf(statistics_, {0}, host_.root())),
              HasSubstr("disk0, " + file_.path() +
                        ": the disk's device is on node 1, and the guest's memory is on node 0: "
                        "what is read and written crosses between nodes (--memory-node 1)\n"));
  statistics_.disks[0].queues.push_back({.io_thread = "a"});
  EXPECT_THAT(PlacementText(PlacementsOf(statistics_, {1}, host_.root())),
              HasSubstr("its I/O thread may run on nodes 0 and 1"));
  statistics_.io_threads[0].cpus.clear();
  EXPECT_THAT(PlacementText(PlacementsOf(statistics_, {1}, host_.root())),
              HasSubstr("its I/O thread may run on any node"));
}

TEST_F(PlacementReportTest, JsonHasTheSame) {
  const std::string json =
      PollReportJson(statistics_, {}, PlacementsOf(statistics_, {0}, host_.root()));
  EXPECT_THAT(json, HasSubstr("\"device\": \"disk0\""));
  EXPECT_THAT(json, HasSubstr("\"option\": \"--memory-node 1\""));
}

}  // namespace
}  // namespace ringside
