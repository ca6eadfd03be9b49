// A disk in memory behind faults: what its user is told, what is on the disk then, and that no
// fault keeps a request for ever.
#include <array>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/clock.h"
#include "faults/fault_device.h"
#include "nvme/nvme_controllers.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/block/chained_request.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/recording_log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemoryDisk;
using testing::Pattern;
using testing::RunOn;
using testing::TestDisk;
using testing::TestRequest;

constexpr uint64_t kSize = 4 << 20;
constexpr uint64_t kBlock = 4096;

class FaultChannelTest : public ::testing::Test {
 protected:
  void Use(const std::string& text) {
    const auto script = ParseFaultScript(text, "test");
    ASSERT_TRUE(script.ok()) << script.status();
    auto memory = std::make_unique<MemoryDisk>(BlockInfo{.size = kSize});
    memory_ = memory.get();
    disk_ = std::make_unique<TestDisk>(
        std::make_unique<FaultDevice>(std::move(memory), *script, "the disk", Logger(&log_)),
        IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  }
  int Write(uint64_t offset, const std::string& text) {
    TestRequest write(BlockOp::kWrite, offset, {static_cast<uint32_t>(text.size())});
    return disk_->Run(write.Set(text));
  }
  int Flush() {
    TestRequest flush(BlockOp::kFlush, 0);
    return disk_->Run(flush);
  }
  std::string Content(uint64_t offset, size_t size) const {
    const std::vector<std::byte> bytes = memory_->Content(offset, size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  uint64_t Count(const std::string& name) const { return disk_->Count("fault_" + name); }

  testing::RecordingLog log_;
  MemoryDisk* memory_ = nullptr;
  std::unique_ptr<TestDisk> disk_;
};

TEST_F(FaultChannelTest, WhatMeetsNoFaultPassesAsItIs) {
  Use("write error=EIO offset=1M-2M");
  const std::string text = Pattern(2 * kBlock, 'a');
  EXPECT_EQ(Write(kBlock, text), 0);
  TestRequest read(BlockOp::kRead, kBlock, {512, 1536, 6144});
  EXPECT_EQ(disk_->Run(read), 0);
  EXPECT_EQ(read.Text(), text);
  EXPECT_EQ(memory_->records().back().segments, 3u);
  EXPECT_EQ(Count("errors"), 0u);
}

TEST_F(FaultChannelTest, AnErrorDoesNothing) {
  Use("write error=ENOSPC count=1\nflush error=EIO");
  EXPECT_EQ(Write(0, Pattern(kBlock, 'a')), -ENOSPC);
  EXPECT_EQ(Content(0, kBlock), std::string(kBlock, '\0'));
  EXPECT_EQ(Write(0, Pattern(kBlock, 'a')), 0);
  EXPECT_EQ(Flush(), -EIO);
  EXPECT_EQ(Count("errors"), 2u);
  EXPECT_EQ(memory_->submitted(), 1u);
}

TEST_F(FaultChannelTest, AShortTransferHasItsFirstPart) {
  Use("write short=1k count=1\nread short=1536 count=1\nzeroes short=512");
  const std::string text = Pattern(kBlock, 'b');
  TestRequest write(BlockOp::kWrite, 0, {512, 512, 512, 2560});
  EXPECT_EQ(disk_->Run(write.Set(text)), -EIO);
  EXPECT_EQ(Content(0, kBlock), text.substr(0, 1024) + std::string(kBlock - 1024, '\0'));
  EXPECT_EQ(Write(0, text), 0);
  TestRequest read(BlockOp::kRead, 0, {1024, 1024, 2048});
  read.Set(std::string(kBlock, '?'));
  EXPECT_EQ(disk_->Run(read), -EIO);
  EXPECT_EQ(read.Text(), text.substr(0, 1536) + std::string(kBlock - 1536, '?'));
  TestRequest zeroes(BlockOp::kWriteZeroes, 1024);
  zeroes.length = 2048;
  EXPECT_EQ(disk_->Run(zeroes), -EIO);
  EXPECT_EQ(Content(0, kBlock), text.substr(0, 1024) + std::string(512, '\0') + text.substr(1536));
  EXPECT_EQ(Count("short"), 3u);
}

TEST_F(FaultChannelTest, ATornWriteHasSomeOfItsSectors) {
  const std::string text = Pattern(16 * 512, 'c');
  const auto tear = [&](const std::string& seed) {
    Use("write torn\nseed=" + seed);
    TestRequest write(BlockOp::kWrite, 512, {100 * 8, 7392});
    EXPECT_EQ(disk_->Run(write.Set(text)), -EIO);
    std::string there;
    for (size_t at = 0; at < text.size(); at += 512) {
      const std::string sector = Content(512 + at, 512);
      EXPECT_TRUE(sector == text.substr(at, 512) || sector == std::string(512, '\0')) << at;
      there += sector[1] == '\0' ? '-' : 'x';
    }
    EXPECT_EQ(Content(0, 512) + Content(512 + text.size(), 512), std::string(1024, '\0'));
    return there;
  };
  const std::string first = tear("1");
  EXPECT_THAT(first, HasSubstr("x"));
  EXPECT_THAT(first, HasSubstr("-"));
  EXPECT_EQ(tear("1"), first);
  EXPECT_NE(tear("2"), first);
}

TEST_F(FaultChannelTest, ADelayIsWaitedForByItselfOnly) {
  Use("write delay=20ms");
  TestRequest write(BlockOp::kWrite, 0, {kBlock}), read(BlockOp::kRead, 0, {kBlock});
  const int64_t start_ns = MonotonicNs();
  EXPECT_EQ(disk_->Run(read), 0);
  EXPECT_EQ(memory_->submitted(), 1u);
  EXPECT_EQ(disk_->Run(write), 0);
  EXPECT_GE(MonotonicNs() - start_ns, 20'000'000);
  EXPECT_EQ(Count("delayed"), 1u);
}

TEST_F(FaultChannelTest, WhatHangsIsGivenUpWhenItIsRecalled) {
  Use("read hang");
  RequestOwner owner;
  testing::ChainedRequest read(1);
  read.op = BlockOp::kRead;
  read.owner = &owner;
  RunOn(disk_->io_thread(), [&] { read.Begin(disk_->channel()); });
  testing::LetTurn(disk_->io_thread());
  EXPECT_FALSE(read.all_done.HasBeenNotified());
  EXPECT_EQ(Count("hung"), 1u);
  RunOn(disk_->io_thread(), [&] { owner.recalls.store(true); });
  read.all_done.WaitOrAbort();
  EXPECT_EQ(read.result, -ECANCELED);
  EXPECT_EQ(memory_->submitted(), 0u);
}

TEST_F(FaultChannelTest, ACancelledChannelHoldsNothing) {
  Use("read hang\nwrite delay=1h\nflush reorder=8");
  TestRequest read(BlockOp::kRead, 0, {kBlock}), write(BlockOp::kWrite, 0, {kBlock});
  TestRequest flush(BlockOp::kFlush, 0);
  disk_->Run({&read, &write, &flush}, true);
  for (const TestRequest* request : {&read, &write, &flush}) {
    EXPECT_EQ(request->result, -ECANCELED);
  }
  EXPECT_EQ(memory_->submitted(), 0u);
}

TEST_F(FaultChannelTest, OthersAreOvertakenInAnOrderOfTheSeed) {
  const auto order = [this](const std::string& seed) {
    Use("write reorder=8\nseed=" + seed);
    std::vector<std::unique_ptr<TestRequest>> writes;
    std::vector<TestRequest*> all;
    for (uint64_t i = 0; i < 8; ++i) {
      writes.push_back(std::make_unique<TestRequest>(BlockOp::kWrite, i * kBlock,
                                                     std::vector<uint32_t>{kBlock}));
      all.push_back(writes.back().get());
    }
    disk_->Run(all);
    std::vector<uint64_t> offsets;
    for (const MemoryDisk::Record& record : memory_->records()) {
      offsets.push_back(record.offset / kBlock);
    }
    EXPECT_THAT(offsets, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    return offsets;
  };
  const auto first = order("1");
  EXPECT_FALSE(std::ranges::is_sorted(first));
  EXPECT_EQ(order("1"), first);
  EXPECT_NE(order("2"), first);
  // Fewer than eight wait for a while, and no longer.
  EXPECT_EQ(Write(0, Pattern(kBlock, 'x')), 0);
  EXPECT_EQ(Count("reordered"), 9u);
}

// 8 pages written and flushed, then 64 that are not; the next request cuts the power.
TEST_F(FaultChannelTest, ACutLosesNothingThatWasFlushed) {
  const auto cut = [this](const std::string& seed) {
    Use("cut after=73\nseed=" + seed);
    const std::string old_text = Pattern(kBlock, 'o'), new_text = Pattern(kBlock, 'n');
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(Write(i * kBlock, old_text), 0);
    EXPECT_EQ(Flush(), 0);
    for (uint64_t i = 4; i < 68; ++i) EXPECT_EQ(Write(i * kBlock, new_text), 0);
    EXPECT_EQ(Flush(), -EIO) << "the power went off before it";
    std::string fates;
    for (uint64_t i = 0; i < 68; ++i) {
      const std::string before = i < 8 ? old_text : std::string(kBlock, '\0');
      const std::string now = Content(i * kBlock, kBlock);
      fates += now == new_text ? 'n' : now == before ? 'o' : 't';
      for (uint64_t at = 0; at < kBlock; at += 512) {
        const std::string sector = now.substr(at, 512);
        EXPECT_TRUE(sector == before.substr(at, 512) ||
                    (i >= 4 && sector == new_text.substr(at, 512)))
            << i;
      }
    }
    EXPECT_EQ(fates.substr(0, 4), "oooo");
    EXPECT_EQ(Write(0, new_text), -EIO);
    TestRequest read(BlockOp::kRead, 0, {kBlock});
    EXPECT_EQ(disk_->Run(read), -EIO);
    EXPECT_EQ(Count("cuts"), 1u);
    EXPECT_EQ(Count("without_power"), 2u);
    return fates;
  };
  const std::string first = cut("1");
  EXPECT_THAT(first.substr(4), HasSubstr("n"));
  EXPECT_THAT(first.substr(4), HasSubstr("o"));
  EXPECT_THAT(first.substr(4), HasSubstr("t"));
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("disk 'the disk': its power is cut")));
  EXPECT_EQ(cut("1"), first);
  EXPECT_NE(cut("2"), first);
}

TEST_F(FaultChannelTest, ACutWaitsForWhatIsUnderWay) {
  Use("cut after=1");
  const std::string text = Pattern(kBlock, 'u');
  TestRequest write(BlockOp::kWrite, 0, {kBlock}), last(BlockOp::kFlush, 0);
  write.Set(text);
  memory_->Hold(true);
  std::thread user([&] { disk_->Run({&write, &last}); });
  ASSERT_TRUE(memory_->WaitForHeld(1));  // what the write overwrites is being read
  memory_->Hold(false);
  testing::LetTurn(disk_->io_thread());
  EXPECT_EQ(last.result, 1) << "it is not done";
  memory_->Release(0);
  user.join();
  EXPECT_EQ(write.result, -EIO);
  EXPECT_EQ(last.result, -EIO);
  EXPECT_EQ(Content(0, kBlock), std::string(kBlock, '\0')) << "it was not begun any more";
}

TEST_F(FaultChannelTest, ACutGivesUpWhatIsHeld) {
  Use("read hang\ncut after=0");
  TestRequest read(BlockOp::kRead, 0, {kBlock}), flush(BlockOp::kFlush, 0);
  disk_->Run({&read, &flush});
  EXPECT_EQ(read.result, -EIO);
  EXPECT_EQ(flush.result, -EIO);
}

TEST_F(FaultChannelTest, ACutIsCarriedOutThoughTheMachineEnds) {
  Use("cut after=40\nseed=4");
  const std::string text = Pattern(kBlock, 'e');
  for (uint64_t i = 0; i < 40; ++i) EXPECT_EQ(Write(i * kBlock, text), 0);
  TestRequest flush(BlockOp::kFlush, 0);
  disk_->Run({&flush}, true);
  EXPECT_EQ(flush.result, -EIO);
  int lost = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    if (Content(i * kBlock, kBlock) == std::string(kBlock, '\0')) ++lost;
  }
  EXPECT_GT(lost, 5);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr(absl::StrFormat(" %d lost ", lost))));
}

// Two threads write until long after the power is off.
TEST_F(FaultChannelTest, ACutIsOfAllThreads) {
  Use("cut after=300");
  const auto second = IoThread::Start("second");
  ASSERT_TRUE(second.ok()) << second.status();
  std::unique_ptr<BlockChannel> channel;
  RunOn(**second, [&] { channel = *disk_->device().Open(**second); });
  std::string text = Pattern(kBlock, 'w');
  const Segment page = {
      .host = reinterpret_cast<std::byte*>(text.data()), .length = kBlock, .region = 0};
  testing::ChainedRequest here(400), there(400);
  for (testing::ChainedRequest* request : {&here, &there}) {
    request->op = BlockOp::kWrite;
    request->segments = {&page, 1};
  }
  there.offset = kBlock;
  disk_->io_thread().RunAndWait([&] { here.Begin(disk_->channel()); });
  (*second)->RunAndWait([&] { there.Begin(*channel); });
  here.all_done.WaitOrAbort();
  there.all_done.WaitOrAbort();
  EXPECT_EQ(here.result, -EIO);
  EXPECT_EQ(there.result, -EIO);
  EXPECT_EQ(Count("cuts"), 1u);
  EXPECT_GE(Count("without_power"), 497u) << "all, but for one under way";
  for (uint64_t at = 0; at < 2 * kBlock; at += 512) {
    const std::string sector = Content(at, 512);
    EXPECT_TRUE(sector == text.substr(at % kBlock, 512) || sector == std::string(512, '\0')) << at;
  }
  RunOn(**second, [&] { channel.reset(); });
}

TEST_F(FaultChannelTest, AllocatesNothingInTheSteadyState) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  Use("read delay=0s\nwrite torn count=100\nzeroes reorder=2\ncut after=1000000");
  memory_->KeepRecords(false);
  std::array<uint64_t, 2> counts{};
  for (uint64_t& count : counts) {
    TestRequest read(BlockOp::kRead, 0, {kBlock}), write(BlockOp::kWrite, kBlock, {512, 1024});
    TestRequest flush(BlockOp::kFlush, 0);
    TestRequest zeroes(BlockOp::kWriteZeroes, 0), others(BlockOp::kWriteZeroes, kBlock);
    zeroes.length = others.length = kBlock;
    for (int i = 0; i < 200; ++i) disk_->Run({&read, &write, &flush, &zeroes, &others});
    RunOn(disk_->io_thread(), [&] { count = testing::AllocationsOfThisThread(); });
  }
  EXPECT_EQ(counts[0], counts[1]);
}

TEST(FaultConfigTest, IsRefusedWhereItCannotBe) {
  NvmeControllers controllers{Logger()};
  const BlockContext context = {.log = Logger(), .nvme = controllers};
  testing::TempFile script(0);
  script.Fill(0, "any hangs\n");
  FaultConfig config = {.backend = NullConfig{.size = kSize}, .script = script.path()};
  EXPECT_THAT(config.Open(context).status(), IsBadInput(script.path() + "', line 1", "'hangs'"));
  script.Fill(0, "cut      \n");
  EXPECT_TRUE(config.Open(context).ok());
  config.backend = NvmeConfig{.address = "0000:00:04.0"};
  EXPECT_THAT(config.Open(context).status(),
              IsBadInput(script.path(), "a cut cannot be had on 'nvme://0000:00:04.0/1'"));
}

}  // namespace
}  // namespace ringside
