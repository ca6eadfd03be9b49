// What a disk does inline and what by its engine, on tmpfs and on files in the page cache.
#include <algorithm>
#include <array>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/support/block/holding_channel.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/file/file_disk.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using testing::FileDisk;
using testing::HoldingChannel;
using testing::RunOn;
using testing::TempFile;
using testing::TestRequest;

constexpr uint64_t kSize = 4 << 20;
constexpr uint32_t kPage = 4096;

// Why this machine has no tmpfs to try; null: it has.
const char* NoTmpfs(const TempFile& file) {
  struct statfs system;
  const bool is_tmpfs = fstatfs(file.fd(), &system) == 0 && system.f_type == TMPFS_MAGIC;
  return is_tmpfs ? nullptr : "/dev/shm is no tmpfs here";
}

std::string PageText(uint64_t page) {
  std::string text(kPage, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(page * 41 + i * 7 + i / 512);
  return text;
}

class TmpfsInlineTest : public ::testing::TestWithParam<std::pair<Engine, CacheMode>> {
 protected:
  void SetUp() override {
    if (const char* reason = NoTmpfs(file_)) GTEST_SKIP() << reason;
    const auto [engine, cache] = GetParam();
    const auto waiter =
        engine == Engine::kIoUring ? IoThread::Waiter::kUring : IoThread::Waiter::kEpoll;
    if (engine == Engine::kIoUring) {
      if (const auto status = testing::UringStatus(); !status.ok()) {
        GTEST_SKIP() << status.message();
      }
    }
    disk_ = std::make_unique<FileDisk>(
        FileConfig{.path = file_.path(), .cache = cache, .aio = engine}, waiter);
    if (cache == CacheMode::kNone && absl::IsInvalidArgument(disk_->status())) {
      GTEST_SKIP() << disk_->status().message();  // before Linux 6.6
    }
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  }
  uint64_t served_inline() const { return disk_->Count("served_inline"); }

  TempFile file_{kSize};
  std::unique_ptr<FileDisk> disk_;
};

TEST_P(TmpfsInlineTest, ReadsAndWritesAreServedInline) {
  uint64_t expected = 0;
  for (const auto& lengths : std::vector<std::vector<uint32_t>>{
           {kPage}, {512, 1024, 512}, std::vector<uint32_t>(32, 2048), {64 << 10}}) {
    // Whatever the memory's alignment: tmpfs copies.
    TestRequest write(BlockOp::kWrite, 8192, lengths, 1), read(BlockOp::kRead, 8192, lengths, 3);
    const std::string text =
        PageText(lengths.size()).substr(0, 512) + std::string(write.Text().size() - 512, 'w');
    EXPECT_EQ(disk_->Run(write.Set(text)), 0);
    EXPECT_EQ(file_.Content(8192, text.size()), text);
    EXPECT_EQ(disk_->Run(read), 0);
    EXPECT_EQ(read.Text(), text);
    EXPECT_EQ(served_inline(), expected += 2);
  }
  EXPECT_EQ(disk_->Count("reads"), 4u);
  EXPECT_EQ(disk_->Count("writes"), 4u);
  EXPECT_EQ(disk_->Count("bytes_read"), disk_->Count("bytes_written"));
  EXPECT_EQ(disk_->Count("bounced"), 0u);
}

TEST_P(TmpfsInlineTest, AllElseGoesToTheEngine) {
  TestRequest large(BlockOp::kWrite, 0, {(64 << 10) + kPage}), flush(BlockOp::kFlush, 0);
  TestRequest durable(BlockOp::kWrite, 1 << 20, {kPage}), discard(BlockOp::kDiscard, 2 << 20);
  TestRequest zeroes(BlockOp::kWriteZeroes, 3 << 20), past(BlockOp::kRead, kSize, {kPage});
  file_.Fill(2 << 20, std::string(2 << 20, 'x'));
  durable.durable = true;
  discard.length = zeroes.length = kPage;
  large.Set(std::string((64 << 10) + kPage, 'l'));
  durable.Set(std::string(kPage, 'd'));
  disk_->Run({&large, &flush, &durable, &discard, &zeroes, &past});
  for (const TestRequest* request : {&large, &flush, &durable, &discard, &zeroes}) {
    EXPECT_EQ(request->result, 0);
  }
  EXPECT_EQ(past.result, -EINVAL);
  EXPECT_EQ(file_.Content(0, (64 << 10) + kPage), large.Text());
  EXPECT_EQ(file_.Content(1 << 20, kPage), durable.Text());
  EXPECT_EQ(file_.Content(2 << 20, kPage), std::string(kPage, '\0'));
  EXPECT_EQ(file_.Content(3 << 20, kPage), std::string(kPage, '\0'));
  EXPECT_EQ(served_inline(), 0u);
  // The discard is over, so writes are inline again.
  TestRequest write(BlockOp::kWrite, 0, {kPage});
  EXPECT_EQ(disk_->Run(write), 0);
  EXPECT_EQ(served_inline(), 1u);
}

TEST_P(TmpfsInlineTest, AReadPastTheEndGetsZeroes) {
  file_.Fill(0, std::string(3 * kPage, 'x'));
  file_.Resize(6144);
  TestRequest across(BlockOp::kRead, kPage, {kPage}), behind(BlockOp::kRead, 8192, {kPage});
  disk_->Run({&across.Set(std::string(kPage, '?')), &behind.Set(std::string(kPage, '?'))});
  EXPECT_EQ(across.result, 0);
  EXPECT_EQ(across.Text(), std::string(2048, 'x') + std::string(2048, '\0'));
  EXPECT_EQ(behind.result, 0);
  EXPECT_EQ(behind.Text(), std::string(kPage, '\0'));
  EXPECT_EQ(disk_->Count("reads"), 2u);
}

TEST_P(TmpfsInlineTest, ABurstDoesNotHoldTheThreadUp) {
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  for (uint64_t page = 0; page < 200; ++page) {
    file_.Fill(page * kPage, PageText(page));
    requests.push_back(
        std::make_unique<TestRequest>(BlockOp::kRead, page * kPage, std::vector<uint32_t>{kPage}));
    all.push_back(requests.back().get());
  }
  // It runs in the turn after the one that takes them all, and again.
  uint64_t seen = 0;
  TaskOf<std::function<void()>>* again = nullptr;
  TaskOf<std::function<void()>> look([&] {
    const uint64_t served = served_inline();
    if (served != 0 && seen == 0) seen = served;
    if (served < 200) disk_->io_thread().Post(*again);
  });
  again = &look;
  disk_->io_thread().Post(look);
  disk_->Run(all);
  RunOn(disk_->io_thread(), [] {});
  EXPECT_GT(seen, 0u);
  EXPECT_LT(seen, 200u);
  EXPECT_EQ(served_inline(), 200u);
  for (uint64_t page = 0; page < 200; ++page) EXPECT_EQ(requests[page]->Text(), PageText(page));
}

INSTANTIATE_TEST_SUITE_P(With, TmpfsInlineTest,
                         ::testing::Values(std::pair(Engine::kIoUring, CacheMode::kWriteback),
                                           std::pair(Engine::kIoUring, CacheMode::kNone),
                                           std::pair(Engine::kNative, CacheMode::kNone),
                                           std::pair(Engine::kThreads, CacheMode::kWriteback)),
                         [](const auto& info) {
                           return absl::StrFormat("%s_%s", EngineName(info.param.first),
                                                  CacheModeName(info.param.second));
                         });

TEST(InlineTest, NothingIsInlineWhereTheUserSaysSo) {
  const TempFile file(kSize);
  FileDisk disk({.path = file.path(), .cache = CacheMode::kWriteback, .inline_io = false},
                IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  TestRequest write(BlockOp::kWrite, 0, {kPage}), read(BlockOp::kRead, 0, {kPage});
  EXPECT_EQ(disk.Run(write.Set(PageText(1))), 0);
  EXPECT_EQ(disk.Run(read), 0);
  EXPECT_EQ(read.Text(), PageText(1));
  EXPECT_EQ(disk.Count("served_inline"), 0u);
}

// For traces: a request that may be served inline is not handed over before the end of the turn.
TEST(InlineTest, OnlyAnEngineAloneHandsOverAtOnce) {
  struct Read : BlockRequest {
    testing::BoundedEvent is_done;
  };
  const TempFile file(kSize);
  for (const bool inline_io : {false, true}) {
    FileDisk disk({.path = file.path(),
                   .cache = CacheMode::kWriteback,
                   .aio = Engine::kThreads,
                   .inline_io = inline_io},
                  IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    std::array<std::byte, kPage> page = {};
    const Segment segment = {.host = page.data(), .length = kPage, .region = 0};
    Read read;
    read.op = BlockOp::kRead;
    read.segments = {&segment, 1};
    read.done = [](BlockRequest& request) { static_cast<Read&>(request).is_done.Notify(); };
    RunOn(disk.io_thread(), [&] {
      const uint64_t before = disk.io_thread().handed_over_at_once();
      disk.Submit(read);
      EXPECT_EQ(disk.io_thread().handed_over_at_once() - before, inline_io ? 0u : 1u);
    });
    read.is_done.WaitOrAbort();
  }
}

TEST(InlineTest, AWriteBesideADiscardGoesToTheEngine) {
  TempFile file(kSize);
  FileTarget target;
  target.fd = UniqueFd(testing::Must(fcntl(file.fd(), F_DUPFD_CLOEXEC, 0), "dup"));
  target.size = kSize;
  target.inline_io = InlineIo::kMemory;
  FileCounters counters;
  auto io_thread = IoThread::Start("test", IoThread::Waiter::kEpoll);
  ASSERT_TRUE(io_thread.ok());
  std::unique_ptr<HoldingChannel> channel;
  BlockRequest discard = {.op = BlockOp::kDiscard, .length = kPage, .done = [](BlockRequest&) {}};
  std::array<std::byte, kPage> page = {};
  const Segment segment = {.host = page.data(), .length = kPage, .region = 0};
  BlockRequest write = discard;
  write.op = BlockOp::kWrite;
  write.segments = {&segment, 1};
  RunOn(**io_thread, [&] {
    channel = std::make_unique<HoldingChannel>(**io_thread, target, counters);
    channel->Submit(discard);
    channel->Submit(write);
    ASSERT_EQ(channel->held(), 2u);
    channel->CompleteFirst(0);
    channel->CompleteFirst(kPage);
    channel->Submit(write);
    EXPECT_EQ(channel->held(), 0u);
    EXPECT_EQ(counters.served_inline.Get(), 0u);  // not from within Submit
  });
  testing::LetTurn(**io_thread, 1);
  RunOn(**io_thread, [&] { channel.reset(); });
  EXPECT_EQ(counters.served_inline.Get(), 1u);
}

// A file on a disk, with its pages in the page cache.
class CachedInlineTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPages = 512;

  CachedInlineTest() {
    for (uint64_t page = 0; page < kPages; ++page) file_.Fill(page * kPage, PageText(page));
    fdatasync(file_.fd());
  }
  void Open(CacheMode cache) {
    disk_ = std::make_unique<FileDisk>(FileConfig{.path = file_.path(), .cache = cache},
                                       IoThread::Waiter::kEpoll);
  }
  const char* NoNowait() const {
    char byte;
    const iovec vector = {.iov_base = &byte, .iov_len = 1};
    return preadv2(file_.fd(), &vector, 1, 0, RWF_NOWAIT) == 1
               ? nullptr
               : "no RWF_NOWAIT where the tests are built";
  }
  // Puts its pages out of the page cache. Whether they are gone.
  bool Forget() const {
    posix_fadvise(file_.fd(), 0, 0, POSIX_FADV_DONTNEED);
    void* mapping = mmap(nullptr, kPages * kPage, PROT_READ, MAP_SHARED, file_.fd(), 0);
    std::vector<unsigned char> resident(kPages, 1);
    mincore(mapping, kPages * kPage, resident.data());
    munmap(mapping, kPages * kPage);
    return std::all_of(resident.begin(), resident.end(), [](auto bits) { return (bits & 1) == 0; });
  }
  // Every `stride`th page, all at once.
  void ReadPages(uint64_t stride) {
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> all;
    for (uint64_t page = 0; page < kPages; page += stride) {
      requests.push_back(std::make_unique<TestRequest>(BlockOp::kRead, page * kPage,
                                                       std::vector<uint32_t>{1024, 3072}));
      all.push_back(requests.back().get());
    }
    disk_->Run(all);
    for (const auto& request : requests) {
      EXPECT_EQ(request->result, 0);
      EXPECT_EQ(request->Text(), PageText(request->offset / kPage));
    }
  }

  TempFile file_{kPages * kPage, "."};
  std::unique_ptr<FileDisk> disk_;
};

TEST_F(CachedInlineTest, WhatIsInThePageCacheIsReadInline) {
  if (const char* reason = NoNowait()) GTEST_SKIP() << reason;
  Open(CacheMode::kWriteback);
  ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  uint64_t served_inline = 0;
  for (int tries = 0; tries < 5 && served_inline < kPages; ++tries) {  // the kernel may take pages
    const uint64_t before = disk_->Count("served_inline");
    ReadPages(1);
    served_inline = disk_->Count("served_inline") - before;
  }
  EXPECT_EQ(served_inline, kPages);
}

TEST_F(CachedInlineTest, WhatIsNotIsReadByTheEngine) {
  if (const char* reason = NoNowait()) GTEST_SKIP() << reason;
  Open(CacheMode::kWriteback);
  ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  if (!Forget()) GTEST_SKIP() << "the kernel keeps the file's pages";
  ReadPages(8);
  const uint64_t inline_cold = disk_->Count("served_inline");
  // A look begins to read ahead, and finds what a fast disk has brought before the look ends.
  if (inline_cold == kPages / 8) GTEST_SKIP() << "the disk brings pages while they are looked for";
  // Warm now, and found so after a few that the misses have made it skip.
  for (int round = 0; round < 3; ++round) ReadPages(8);
  EXPECT_GE(disk_->Count("served_inline"), inline_cold + 2 * kPages / 8);
}

TEST_F(CachedInlineTest, NothingIsInlineWithDirectAccess) {
  if (NoTmpfs(file_) == nullptr) GTEST_SKIP() << "on tmpfs direct access reads memory, too";
  Open(CacheMode::kNone);
  if (absl::IsInvalidArgument(disk_->status())) GTEST_SKIP() << disk_->status().message();
  ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  TestRequest read(BlockOp::kRead, 0, {kPage}), write(BlockOp::kWrite, 0, {kPage});
  EXPECT_EQ(disk_->Run(read), 0);
  EXPECT_EQ(read.Text(), PageText(0));
  EXPECT_EQ(disk_->Run(write.Set(PageText(7))), 0);
  EXPECT_EQ(disk_->Count("served_inline"), 0u);
}

}  // namespace
}  // namespace ringside
