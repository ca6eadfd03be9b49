// virtio-blk on real I/O threads with a driver that keeps the rules.
#include <deque>
#include <map>
#include <poll.h>
#include <random>
#include <thread>

#include "tests/support/devices/blk_workload.h"
#include "tests/support/devices/virtio_blk_fixture.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/races.h"

namespace ringside::testing {
namespace {

class VirtioBlkTest : public VirtioBlkFixture {};

struct Form {
  IoThread::Waiter waiter;
  bool indirect, event_idx;
};

class VirtioBlkFormTest : public VirtioBlkFixture, public ::testing::WithParamInterface<Form> {
 protected:
  void SetUp() override {
    if (GetParam().waiter != IoThread::Waiter::kUring) return;
    if (const absl::Status status = UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  }
  Setting setting() const {
    return {.waiter = GetParam().waiter,
            .driver = {.queue = {.size = 64,
                                 .indirect = GetParam().indirect,
                                 .event_idx = GetParam().event_idx}}};
  }
};
std::vector<Form> Forms() {
  std::vector<Form> forms;
  for (const auto waiter : {IoThread::Waiter::kEpoll, IoThread::Waiter::kUring}) {
    for (const bool indirect : {false, true}) {
      for (const bool event_idx : {false, true}) forms.push_back({waiter, indirect, event_idx});
    }
  }
  return forms;
}
INSTANTIATE_TEST_SUITE_P(, VirtioBlkFormTest, ::testing::ValuesIn(Forms()), [](const auto& form) {
  return std::string(form.param.waiter == IoThread::Waiter::kUring ? "Uring" : "Epoll") +
         (form.param.indirect ? "Indirect" : "Direct") +
         (form.param.event_idx ? "EventIdx" : "Flags");
});

TEST_P(VirtioBlkFormTest, EveryKindOfRequestIsAnswered) {
  Start(setting());
  const std::vector<std::byte> data = Pattern(8192, 1);
  EXPECT_EQ(rig().Run(driver().AddWrite(16, data)), kBlkOk);
  EXPECT_EQ(rig().written, 1u);
  EXPECT_EQ(disk_->Content(16 * 512, 8192), data);

  const uint16_t read = driver().AddRead(16, 8192);
  EXPECT_EQ(rig().Run(read), kBlkOk);
  EXPECT_EQ(rig().written, 8193u);
  EXPECT_EQ(Data(0, read, 8192), data);

  EXPECT_EQ(rig().Run(driver().AddFlush()), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddRange(kBlkDiscard, {.sector = 16, .sectors = 1})), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddRange(kBlkWriteZeroes, {17, 2, 1})), kBlkOk);
  EXPECT_EQ(disk_->Content(16 * 512, 3 * 512), std::vector<std::byte>(3 * 512));

  const uint16_t id = driver().Add(kBlkGetId, 0, {}, 20);
  EXPECT_EQ(rig().Run(id), kBlkOk);
  EXPECT_STREQ(reinterpret_cast<const char*>(driver().data(id, 20).data()), "disk-0");
  EXPECT_EQ(rig().Run(driver().Add(99, 0, {}, 20)), kBlkUnsupported);
  EXPECT_EQ(rig().Run(driver().AddRead(kDiskSize / 512, 512)), kBlkIoError);

  using Record = MemoryDisk::Record;
  const std::vector<Record> expected = {
      {BlockOp::kWrite, 16 * 512, 8192, 2, false, false},
      {BlockOp::kRead, 16 * 512, 8192, 2, false, false},
      {BlockOp::kFlush, 0, 0, 0, false, false},
      {BlockOp::kDiscard, 16 * 512, 512, 0, false, false},
      {BlockOp::kWriteZeroes, 17 * 512, 1024, 0, false, true},
  };
  EXPECT_TRUE(disk_->records() == expected);
  const QueueStats& stats = device_->stats(0);
  EXPECT_EQ(stats.reads.Get(), 1u);
  EXPECT_EQ(stats.writes.Get(), 1u);
  EXPECT_EQ(stats.flushes.Get(), 1u);
  EXPECT_EQ(stats.discards.Get(), 2u);
  EXPECT_EQ(stats.others.Get(), 3u);
  EXPECT_EQ(stats.requests(), 8u);
  EXPECT_EQ(stats.bytes_read.Get(), 8192u);
  EXPECT_EQ(stats.bytes_written.Get(), 8192u);
  EXPECT_EQ(stats.errors.Get(), 2u);
  EXPECT_TRUE(events_.reasons().empty());
}

TEST_P(VirtioBlkFormTest, SeveralQueuesOnSeveralThreadsLoseNothing) {
#ifdef RINGSIDE_TSAN
  constexpr int kRequests = 1000;
#else
  constexpr int kRequests = 3000;
#endif
  Setting many = setting();
  many.queues = 3;
  many.threads = 2;
  Start(many);
  constexpr uint64_t kShare = 2048;  // sectors
  std::vector<std::unique_ptr<BlkWorkload>> workloads;
  for (uint16_t i = 0; i < 3; ++i) {
    workloads.push_back(std::make_unique<BlkWorkload>(rig(i), i * kShare, kShare, i));
  }
  std::vector<std::thread> guests;
  for (const auto& workload : workloads) {
    guests.emplace_back([&workload] { workload->Run(kRequests); });
  }
  for (std::thread& guest : guests) guest.join();
  for (uint16_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(disk_->Content(i * kShare * 512, kShare * 512) == workloads[i]->shadow());
    EXPECT_EQ(device_->stats(i).errors.Get(), 0u);
  }
  EXPECT_EQ(disk_->channels(), 2u) << "one a thread";
  EXPECT_TRUE(events_.reasons().empty());
}

TEST_F(VirtioBlkTest, RequestsComeBackInTheOrderTheDiskIsDone) {
  Start({});
  disk_->Hold(true);
  std::vector<uint16_t> heads;
  for (int i = 0; i < 6; ++i) {
    heads.push_back(driver().AddWrite(i, Pattern(512, i)));
  }
  rig().Publish();
  ASSERT_TRUE(disk_->WaitForHeld(6));
  // Which of those that are left.
  for (const size_t i : {4, 0, 3, 1, 1, 0}) {
    disk_->Release(i);
    EXPECT_EQ(rig().Wait(), (UsedElement{heads[i], 1}));
    EXPECT_EQ(driver().status(heads[i]), kBlkOk);
    heads.erase(heads.begin() + static_cast<ptrdiff_t>(i));
  }
}

TEST_F(VirtioBlkTest, RequestsMayHaveMoreSegmentsThanAreInline) {
  Start({.driver = {.queue = {.size = 16, .indirect = true, .table_entries = 64},
                    .max_bytes = 16384,
                    .segment = 512}});
  disk_->Hold(true);
  // The second time heads descend, so that a request that wrote beyond its own place would hurt one
  // that is in flight; and the pool gives out what it got back.
  for (int wave = 0; wave < 3; ++wave) {
    struct Written {
      uint32_t sectors;
      int i;
    };
    std::map<uint32_t, Written> written;  // by head
    for (int i = 0; i < 16; ++i) {
      const auto sectors = static_cast<uint32_t>(2 + i);  // as many segments
      written[driver().AddWrite(32u * i, Pattern(sectors * 512, wave + i))] = {sectors, i};
    }
    rig().Publish();
    ASSERT_TRUE(disk_->WaitForHeld(16));
    disk_->ReleaseAll();
    for (int n = 0; n < 16; ++n) {
      const UsedElement used = rig().Wait();
      EXPECT_EQ(driver().status(used.head), kBlkOk);
      const auto [sectors, i] = written[used.head];
      EXPECT_EQ(disk_->Content(32u * i * 512, sectors * 512), Pattern(sectors * 512, wave + i));
    }
  }
  EXPECT_EQ(disk_->records()[15].segments, 17u);
}

TEST_F(VirtioBlkTest, ABatchCostsOnePublicationAndOneInterrupt) {
  for (const bool event_idx : {false, true}) {
    Start({.driver = {.queue = {.size = 128, .event_idx = event_idx}}});
    for (int i = 0; i < 40; ++i) driver().AddRead(i, 512);
    rig().Publish();
    for (int i = 0; i < 40; ++i) rig().Wait();
    Settle();
    EXPECT_EQ(rig().call.Clear(), 1u);
    EXPECT_EQ(device_->stats(0).batches.Get(), 1u);
    EXPECT_EQ(device_->stats(0).signals.total(), 1u);
    Reset();
  }
}

TEST_F(VirtioBlkTest, NoInterruptIsSentThatTheDriverDoesNotWant) {
  for (const bool event_idx : {false, true}) {
    Start({.driver = {.queue = {.size = 64, .event_idx = event_idx}}});
    rig().queue().DisableInterrupts();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    Settle();
    EXPECT_EQ(rig().call.Clear(), 0u);
    EXPECT_EQ(device_->stats(0).signals.total(), 0u);
    EXPECT_EQ(device_->stats(0).batches.Get(), 50u);
    rig().queue().EnableInterrupts();
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
    Settle();
    EXPECT_EQ(rig().call.Clear(), 1u);
    Reset();
  }
}

TEST_F(VirtioBlkTest, AnInterruptIsSentWhenTheIndexPassesTheEvent) {
  Start({.driver = {.queue = {.size = 64, .event_idx = true}}});
  rig().queue().ring().SetUsedEvent(5);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  Settle();
  EXPECT_EQ(rig().call.Clear(), 0u);
  for (int i = 0; i < 5; ++i) driver().AddRead(0, 512);
  rig().Publish();
  for (int i = 0; i < 5; ++i) rig().Wait();
  Settle();
  EXPECT_EQ(rig().call.Clear(), 1u);
}

TEST_F(VirtioBlkTest, AnErrorOfTheDiskIsAnAnswerAndNoEnd) {
  Start({});
  const std::map<int, uint8_t> statuses = {{EIO, kBlkIoError},
                                           {ENOSPC, kBlkIoError},
                                           {EINVAL, kBlkIoError},
                                           {EOPNOTSUPP, kBlkUnsupported}};
  for (const auto& [error, status] : statuses) {
    disk_->FailWith(error);
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), status);
    EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), status);
    EXPECT_EQ(rig().Run(driver().AddFlush()), status);
    EXPECT_EQ(rig().Run(driver().AddRange(kBlkDiscard, {0, 1, 0})), status);
    disk_->FailWith(0);
    EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  }
  EXPECT_EQ(device_->stats(0).errors.Get(), 16u);
  EXPECT_TRUE(events_.reasons().empty());
}

// OVMF flushes read-only disks while it boots.
TEST_F(VirtioBlkTest, AReadOnlyDiskIsFlushedButNotWritten) {
  Start({.info = {.size = kDiskSize, .read_only = true, .can_discard = true}});
  EXPECT_EQ(rig().Run(driver().AddFlush()), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddRead(0, 512)), kBlkOk);
  EXPECT_EQ(rig().Run(driver().AddWrite(0, Pattern(512, 1))), kBlkIoError);
  EXPECT_EQ(rig().Run(driver().AddRange(kBlkDiscard, {0, 1, 0})), kBlkIoError);
  EXPECT_EQ(rig().Run(driver().AddRange(kBlkWriteZeroes, {0, 1, 0})), kBlkIoError);
  EXPECT_EQ(disk_->submitted(), 1u) << "the read";
}

TEST_F(VirtioBlkTest, AThreadThatIsHeldUpHoldsUpItsOwnQueuesOnly) {
  Start({.queues = 4, .threads = 2});
  BoundedEvent held_up, go_on;
  TaskOf task([&] {
    held_up.Notify();
    go_on.WaitOrAbort();
  });
  threads_[0]->Post(task);
  held_up.WaitOrAbort();
  for (const int i : {0, 2}) {
    driver(i).AddRead(0, 512);
    rig(i).Publish();
  }
  for (const int i : {1, 3}) EXPECT_EQ(rig(i).Run(driver(i).AddRead(0, 512)), kBlkOk);
  for (const int i : {0, 2}) EXPECT_FALSE(rig(i).queue().HasUsed());
  go_on.Notify();
  for (const int i : {0, 2}) EXPECT_EQ(rig(i).Wait().written, 513u);
}

TEST_F(VirtioBlkTest, OnlyTheQueuesThatWereSetUpAreServed) {
  Make({.queues = 3, .threads = 2});
  const std::vector<QueueSetup> setups = {rig(2).Setup(2)};
  device_->Activate(features(), setups, events_);
  active_ = true;
  for (int i = 0; i < 3; ++i) {
    driver(i).AddRead(0, 512);
    rig(i).Publish();
  }
  EXPECT_EQ(rig(2).Wait().written, 513u);
  Settle();
  EXPECT_FALSE(rig(0).queue().HasUsed());
  EXPECT_FALSE(rig(1).queue().HasUsed());
  EXPECT_EQ(device_->stats(2).reads.Get(), 1u);
  EXPECT_EQ(device_->stats(0).requests(), 0u);
}

TEST_F(VirtioBlkTest, WhatWasPublishedBeforeTheActivationIsServed) {
  Make({});
  driver().AddRead(0, 512);
  rig().queue().Publish();  // and never kicked
  Activate();
  EXPECT_EQ(rig().Wait().written, 513u);
}

}  // namespace
}  // namespace ringside::testing
