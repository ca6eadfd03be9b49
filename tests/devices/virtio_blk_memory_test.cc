// What virtio-blk costs its host in memory: nothing while idle, no allocation on an I/O's way.
#include "tests/support/allocation_counter.h"
#include "tests/support/devices/virtio_blk_fixture.h"

namespace ringside::testing {
namespace {

class VirtioBlkMemoryTest : public VirtioBlkFixture {
 protected:
  void SetUp() override {
    if (!CanCountAllocations()) GTEST_SKIP() << "ThreadSanitizer has an operator new of its own";
  }
  uint64_t AllocationsOfTheIoThread() {
    uint64_t allocations = 0;
    RunOn(*threads_[0], [&] { allocations = AllocationsOfThisThread(); });
    return allocations;
  }
  // Every kind of request, in batches as deep as the ring, with few segments and with many.
  void RunEverything() {
    const std::vector<std::byte> small(512);
    const std::vector<std::byte> large(16384);
    for (const bool hold : {false, true}) {
      disk_->Hold(hold);
      const auto add = [&](int i) {
        switch (i % 6) {
          case 0:
            return driver().AddRead(0, 4096);
          case 1:
            return driver().AddWrite(0, large);
          case 2:
            return driver().AddFlush();
          case 3:
            return driver().AddRange(kBlkDiscard, {0, 1, 0});
          case 4:
            return driver().Add(kBlkGetId, 0, {}, 20);
          default:
            return driver().AddRead(0, 16384);
        }
      };
      for (int i = 0; i < 60; ++i) add(i);
      rig().Publish();
      Settle();
      disk_->ReleaseAll();
      for (int i = 0; i < 60; ++i) rig().Wait();
    }
  }
};

TEST_F(VirtioBlkMemoryTest, NothingIsAllocatedInTheSteadyState) {
  struct Form {
    bool event_idx, trace_latency;
  };
  for (const Form form : {Form{false, false}, {true, false}, {true, true}}) {
    Start({.driver = {.queue = {.size = 64,
                                .indirect = true,
                                .event_idx = form.event_idx,
                                .table_entries = 64},
                      .segment = 512},
           .trace_latency = form.trace_latency});
    disk_->KeepRecords(false);
    const uint64_t at_start = AllocationsOfTheIoThread();
    RunEverything();
    const uint64_t warm = AllocationsOfTheIoThread();
    EXPECT_GT(warm, at_start) << "the pool of segments grows once: the count counts";
    for (int round = 0; round < 20; ++round) RunEverything();
    EXPECT_EQ(AllocationsOfTheIoThread(), warm);
    EXPECT_TRUE(events_.reasons().empty());
    Reset();
  }
}

TEST_F(VirtioBlkMemoryTest, AnIdleQueueTouchesNoMemoryForItsRequests) {
  Make({.driver = {.queue = {.size = 256}, .max_bytes = 4096}});
  const MarkLargeBlocks marks;
  Activate();
  Settle();
  const std::span<const std::byte> slots = marks.largest();
  ASSERT_GE(slots.size(), 256u * sizeof(BlockRequest)) << "a slot for each descriptor";
  const auto touched = [&] {
    return slots.size() - static_cast<size_t>(std::ranges::count(slots, MarkLargeBlocks::kMark));
  };
  EXPECT_EQ(touched(), 0u);
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_GT(touched(), 0u) << "the marks are where the slots are";
  EXPECT_LE(touched(), slots.size() / 256);
}

// However deep a guest has once filled its queue: what it keeps is 512 KiB.
TEST_F(VirtioBlkMemoryTest, WhatADeepQueueOfLongRequestsTookIsGivenBack) {
  Start(
      {.driver = {.queue = {.size = 256, .indirect = true, .table_entries = 64}, .segment = 512}});
  disk_->KeepRecords(false);
  const auto run = [&](size_t count, auto meanwhile) {
    disk_->Hold(true);
    for (size_t i = 0; i < count; ++i) driver().AddRead(0, 16384);
    rig().Publish();
    ASSERT_TRUE(disk_->WaitForHeld(count));
    meanwhile();
    disk_->ReleaseAll();
    for (size_t i = 0; i < count; ++i) rig().Wait();
    Settle();
  };
  const int64_t before = LiveBytes();
  for (int round = 0; round < 3; ++round) {
    run(256, [&] { EXPECT_GT(LiveBytes() - before, 4 * int64_t{kMiB}) << "the count counts"; });
    EXPECT_LT(LiveBytes() - before, 640 * 1024);
  }
  const uint64_t warm = AllocationsOfTheIoThread();
  run(32, [] {});
  EXPECT_EQ(AllocationsOfTheIoThread(), warm) << "as many as are kept need nothing";
}

}  // namespace
}  // namespace ringside::testing
