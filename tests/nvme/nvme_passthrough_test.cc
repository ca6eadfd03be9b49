// The way through the kernel's NVMe driver, as far as it goes without one: on /dev/null, which
// takes every io_uring command and does nothing, and on /dev/zero, which takes none. The rest is
// seen in the lab.
#include <fcntl.h>
#include <filesystem>
#include <gtest/gtest.h>

#include "nvme/nvme_command_ring.h"
#include "nvme/nvme_passthrough_device.h"
#include "nvme/nvme_passthrough_open.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/block/chained_request.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/count_of.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::RunOn;
using testing::TestDisk;
using testing::TestRequest;

NvmePassthroughDevice::Opened Opened(const char* path) {
  NvmePassthroughDevice::Opened opened;
  opened.file = UniqueFd(open(path, O_RDWR | O_CLOEXEC));
  opened.ns = {.id = 1, .volatile_cache = true, .info = {.size = 1 << 30}};
  opened.limits = LimitNamespace(opened.ns, {.most_kib = 128, .segments = 33, .align_mask = 3});
  return opened;
}

class NvmePassthroughChannelTest : public testing::WaiterTest {
 protected:
  void SetUp() override {
    if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  }
  void Start(NvmePassthroughDevice::Opened opened) {
    disk_ = std::make_unique<TestDisk>(std::make_unique<NvmePassthroughDevice>(std::move(opened)),
                                       GetParam());
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  }
  TestDisk& disk() { return *disk_; }
  uint64_t Count(std::string_view name) const { return disk_->Count(name); }
  // Whether commands go through the thread's ring.
  static bool is_shared() { return GetParam() == IoThread::Waiter::kUringWithCommands; }

 private:
  std::unique_ptr<TestDisk> disk_;
};

TEST_P(NvmePassthroughChannelTest, ARequestIsACommand) {
  Start(Opened("/dev/null"));
  TestRequest read(BlockOp::kRead, 0, {4096});
  TestRequest write(BlockOp::kWrite, 4096, {4096, 4096});
  TestRequest flush(BlockOp::kFlush, 0);
  disk().Run({&read, &write, &flush});
  EXPECT_EQ(read.result, 0);
  EXPECT_EQ(write.result, 0);
  EXPECT_EQ(flush.result, 0);
  EXPECT_EQ(Count("commands"), 3u);
  EXPECT_EQ(Count("bounced"), 0u);
  // One call took them all, and brought them back.
  EXPECT_EQ(Count("enters"), is_shared() ? 0u : 1u);
}

TEST_P(NvmePassthroughChannelTest, SplitsWhatOneCommandDoesNotTake) {
  Start(Opened("/dev/null"));
  TestRequest aligned(BlockOp::kRead, 0, {128 << 10});
  EXPECT_EQ(disk().Run(aligned), 0);
  EXPECT_EQ(Count("splits"), 0u);
  TestRequest longer(BlockOp::kWrite, 0, {512, (256 << 10) - 512});
  EXPECT_EQ(disk().Run(longer), 0);
  EXPECT_EQ(Count("splits"), 1u);
  EXPECT_EQ(Count("commands"), 1u + 2);
}

TEST_P(NvmePassthroughChannelTest, TheSmallestRequestsAreSplitAtTheBoundary) {
  NvmePassthroughDevice::Opened opened = Opened("/dev/null");
  opened.ns.boundary = 4096;
  Start(std::move(opened));
  TestRequest read(BlockOp::kRead, 2048, {4096});
  EXPECT_EQ(disk().Run(read), 0);
  EXPECT_EQ(Count("commands"), 2u);
}

// What the kernel has not been given it does not get, and nothing waits for a slot.
TEST_P(NvmePassthroughChannelTest, AfterCancelNothingIsSent) {
  Start(Opened("/dev/null"));
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> list;
  for (uint32_t i = 0; i < 300; ++i) {
    list.push_back(requests
                       .emplace_back(std::make_unique<TestRequest>(BlockOp::kRead, i * 4096,
                                                                   std::vector<uint32_t>{4096}))
                       .get());
  }
  disk().Run(list, /*cancel=*/true);
  for (const auto& request : requests) EXPECT_EQ(request->result, -ECANCELED);
  EXPECT_EQ(Count("enters"),
            is_shared() ? 0u : 1u);  // that which asks for the end of what there is
  TestRequest late(BlockOp::kFlush, 0);
  EXPECT_EQ(disk().Run(late), -ECANCELED);
}

// A buffer that begins within a page lies in one page more.
TEST_P(NvmePassthroughChannelTest, SplitsWhatTheKernelsQueueDoesNotTake) {
  NvmePassthroughDevice::Opened opened = Opened("/dev/null");
  opened.limits.most_pages = 16;
  Start(std::move(opened));
  TestRequest aligned(BlockOp::kRead, 0, {16 * 4096});
  EXPECT_EQ(disk().Run(aligned), 0);
  EXPECT_EQ(Count("commands"), 1u);
  TestRequest skewed(BlockOp::kRead, 0, {16 * 4096}, 512);
  EXPECT_EQ(disk().Run(skewed), 0);
  EXPECT_EQ(Count("commands"), 1u + 2);
}

TEST_P(NvmePassthroughChannelTest, DiscardsWholeBlocksAndFlushesADurableOne) {
  Start(Opened("/dev/null"));
  TestRequest discard(BlockOp::kDiscard, 100);
  discard.length = 900;
  EXPECT_EQ(disk().Run(discard), 0);
  EXPECT_EQ(Count("commands"), 0u);
  discard.length = 1000;
  discard.durable = true;
  EXPECT_EQ(disk().Run(discard), 0);
  EXPECT_EQ(Count("commands"), 2u);
  TestRequest zeroes(BlockOp::kWriteZeroes, 0);
  zeroes.length = 1 << 30;
  EXPECT_EQ(disk().Run(zeroes), 0);
  EXPECT_EQ(Count("commands"), 2u + (1 << 30) / (65536 * 512));
}

TEST_P(NvmePassthroughChannelTest, CopiesWhatTheKernelWouldRefuse) {
  Start(Opened("/dev/null"));
  // A block in 64 pages.
  testing::Pieces pieces;
  static std::array<std::byte, 64 * 4096> memory;
  for (size_t i = 0; i < 64; ++i) {
    pieces.list.push_back({.host = memory.data() + i * 4096, .length = 8, .region = 0});
  }
  TestRequest scattered(BlockOp::kRead, 0, pieces);
  EXPECT_EQ(disk().Run(scattered), 0);
  EXPECT_EQ(Count("commands"), 1u);
  EXPECT_EQ(Count("bounced"), 1u);
  // The kernel does that one.
  TestRequest odd(BlockOp::kRead, 0, {4096}, 1);
  EXPECT_EQ(disk().Run(odd), 0);
  EXPECT_EQ(Count("bounced"), 2u);
}

TEST_P(NvmePassthroughChannelTest, MoreThanItHasSlotsForWait) {
  Start(Opened("/dev/null"));
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  for (uint64_t i = 0; i < 1000; ++i) {
    requests.push_back(std::make_unique<TestRequest>(BlockOp::kRead, i * 4096,
                                                     std::vector<uint32_t>{(256 << 10) + 512}));
    all.push_back(requests.back().get());
  }
  disk().Run(all);
  for (const auto& request : requests) EXPECT_EQ(request->result, 0);
  EXPECT_EQ(Count("commands"), 3000u);
  EXPECT_EQ(Count("splits"), 1000u);
}

TEST_P(NvmePassthroughChannelTest, RefusesWhatCannotBe) {
  NvmePassthroughDevice::Opened opened = Opened("/dev/null");
  opened.ns.info.read_only = true;
  Start(std::move(opened));
  TestRequest beyond(BlockOp::kRead, 1 << 30, {512, 512});
  EXPECT_EQ(disk().Run(beyond), -EINVAL);
  TestRequest write(BlockOp::kWrite, 0, {512});
  EXPECT_EQ(disk().Run(write), -EROFS);
  EXPECT_EQ(Count("errors"), 2u);
  EXPECT_EQ(Count("commands"), 0u);
}

TEST_P(NvmePassthroughChannelTest, TheKernelsErrorsAreTheRequests) {
  Start(Opened("/dev/zero"));
  TestRequest read(BlockOp::kRead, 0, {4096});
  EXPECT_EQ(disk().Run(read), -EOPNOTSUPP);
  TestRequest split(BlockOp::kRead, 0, {1 << 20});
  EXPECT_EQ(disk().Run(split), -EOPNOTSUPP);
  EXPECT_EQ(Count("errors"), 2u);
  EXPECT_EQ(Count("resent"), 0u);
}

TEST_P(NvmePassthroughChannelTest, AllocatesNothingOnceItRuns) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  Start(Opened("/dev/null"));
  const auto allocations = [this] {
    uint64_t count = 0;
    RunOn(disk().io_thread(), [&] { count = testing::AllocationsOfThisThread(); });
    return count;
  };
  // One command, several, many vectors, and a copy.
  TestRequest one(BlockOp::kRead, 0, {4096});
  TestRequest split(BlockOp::kWrite, 0, {1 << 20});
  TestRequest scattered(BlockOp::kRead, 0, std::vector<uint32_t>(100, 512));
  disk().Run({&one, &split, &scattered});
  const uint64_t before = allocations();
  for (int i = 0; i < 100; ++i) disk().Run({&one, &split, &scattered});
  EXPECT_EQ(allocations(), before);
}

TEST_P(NvmePassthroughChannelTest, CountsOnAfterAnotherChannel) {
  NvmePassthroughDevice device(Opened("/dev/null"));
  const auto io_thread = StartIoThread();
  for (uint64_t times = 1; times <= 3; ++times) {
    std::unique_ptr<BlockChannel> channel;
    testing::ChainedRequest flush(1);
    flush.op = BlockOp::kFlush;
    RunOn(*io_thread, [&] {
      channel = *device.Open(*io_thread);
      flush.Begin(*channel);
    });
    flush.all_done.WaitOrAbort();
    RunOn(*io_thread, [&] { channel.reset(); });
    EXPECT_EQ(testing::CountOf(device.Statistics().counters, "commands"), times);
  }
}

INSTANTIATE_TEST_SUITE_P(With, NvmePassthroughChannelTest,
                         ::testing::Values(IoThread::Waiter::kEpoll, IoThread::Waiter::kUring,
                                           IoThread::Waiter::kUringWithCommands),
                         testing::WaiterParamName);

// The ring forbids all that it need not do.
TEST(NvmeCommandRingTest, MayAskForTheEndOfCommands) {
  if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  const UniqueFd file(open("/dev/null", O_RDWR | O_CLOEXEC));
  const EventFd wake = *EventFd::Create();
  auto ring = NvmeCommandRing::Create(file.get(), wake.fd(), 8);
  ASSERT_TRUE(ring.ok()) << ring.status();
  Counter enters;
  (*ring)->CancelAll();
  EXPECT_TRUE((*ring)->Enter(enters));
  int results = 0;
  (*ring)->Reap(enters, [&](uint64_t data, int32_t result) {
    ++results;
    EXPECT_EQ(data, NvmeCommandRing::kCancelling);
    EXPECT_TRUE(result >= 0 || result == -ENOENT) << result;
  });
  EXPECT_EQ(results, 1);
}

TEST(NvmePassthroughOpenTest, NamesOfANamespace) {
  EXPECT_EQ(NvmeBlockName("ng0n1"), "nvme0n1");
  EXPECT_EQ(NvmeBlockName("ng12n34"), "nvme12n34");
  EXPECT_EQ(NvmeGenericName("nvme0n1"), "ng0n1");
  for (const char* none : {"", "ng", "nvme0n1", "ngn1", "ng0", "nvme0", "xng0n1"}) {
    EXPECT_EQ(NvmeBlockName(none), "") << none;
  }
  EXPECT_EQ(NvmeGenericName("nvme0"), "");
  EXPECT_EQ(NvmeGenericName("sda"), "");
}

TEST(NvmePassthroughOpenTest, TheLeastLimitHolds) {
  NvmeNamespace ns = {.block_size = 4096, .most_bytes = 1 << 20};
  NvmeVectorLimits limits =
      LimitNamespace(ns, {.most_kib = 1022, .segments = 127, .align_mask = 511});
  EXPECT_EQ(limits.most_bytes, 1020u << 10);
  EXPECT_EQ(ns.most_bytes, limits.most_bytes);
  EXPECT_EQ(limits.most_pages, 127u);
  EXPECT_EQ(limits.block_size, 4096u);
  EXPECT_EQ(limits.alignment, 512u);
  ns.most_bytes = 1 << 17;
  limits = LimitNamespace(ns, {.most_kib = UINT32_MAX, .segments = UINT64_MAX, .align_mask = 3});
  EXPECT_EQ(limits.most_bytes, 1u << 17);
  EXPECT_EQ(limits.most_pages, UINT16_MAX);
}

absl::Status OpenStatus(const std::string& path) {
  return NvmePassthroughDevice::Create({.path = path}, Logger()).status();
}

TEST(NvmePassthroughOpenTest, SaysWhatToGiveInstead) {
  EXPECT_TRUE(absl::IsNotFound(OpenStatus("/dev/ng99n1")));
  EXPECT_THAT(OpenStatus("/dev/null"),
              IsBadInput("disk '/dev/null' is no NVMe namespace", "such as /dev/ng0n1"));
  EXPECT_THAT(OpenStatus("/proc/self/status"), IsBadInput("is no device", "path=FILE"));
  EXPECT_THAT(OpenStatus("/dev"), IsBadInput("disk '/dev' is no device", "/dev/ng0n1"));
  for (const auto& entry : std::filesystem::directory_iterator("/dev")) {
    if (!entry.is_block_file()) continue;
    EXPECT_THAT(OpenStatus(entry.path()), IsBadInput("is a block device", "give path=/dev/"));
    return;
  }
  GTEST_SKIP() << "there is no block device here";
}

}  // namespace
}  // namespace ringside
