// What every engine promises, on tmpfs and on a disk, with and without O_DIRECT; alone and together
// with what is served inline.
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <gtest/gtest.h>
#include <random>
#include <sys/resource.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/file/file_disk.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/races.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using testing::FileDisk;
using testing::Pattern;
using testing::RunOn;
using testing::TempFile;
using testing::TestRequest;

constexpr uint64_t kSize = uint64_t{8} << 20;

enum class Inline { kOff, kOn };

struct Setting {
  Engine engine;
  IoThread::Waiter waiter;
  CacheMode cache;
  const char* directory;
  Inline inline_io = Inline::kOff;
};

class EngineTest : public ::testing::TestWithParam<Setting> {
 protected:
  EngineTest() : file_(kSize, GetParam().directory) {}
  void SetUp() override {
    if (GetParam().waiter == IoThread::Waiter::kUring) {
      if (const auto status = testing::UringStatus(); !status.ok())
        GTEST_SKIP() << status.message();
    }
    Open();
    if (direct() && absl::IsInvalidArgument(disk_->status())) {
      GTEST_SKIP() << disk_->status().message();
    }
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  }
  void Open() {
    disk_.reset();
    disk_ = std::make_unique<FileDisk>(FileConfig{.path = file_.path(),
                                                  .cache = GetParam().cache,
                                                  .aio = GetParam().engine,
                                                  .inline_io = GetParam().inline_io == Inline::kOn},
                                       GetParam().waiter);
  }
  static bool direct() {
    return GetParam().cache == CacheMode::kNone || GetParam().cache == CacheMode::kDirectsync;
  }

  TempFile file_;
  std::unique_ptr<FileDisk> disk_;
};

TEST_P(EngineTest, IsTheEngineAskedFor) {
  EXPECT_EQ(disk_->device().Statistics().engine, EngineName(GetParam().engine));
}

TEST_P(EngineTest, WritesAndReadsOneSegmentAndMany) {
  for (const auto& lengths : std::vector<std::vector<uint32_t>>{{4096},
                                                                {4096, 8192, 4096},
                                                                std::vector<uint32_t>(9, 4096),
                                                                std::vector<uint32_t>(300, 4096),
                                                                {512 * 8},
                                                                {1 << 20}}) {
    TestRequest write(BlockOp::kWrite, 4096, lengths);
    const std::string text = Pattern(write.Text().size(), 'a');
    EXPECT_EQ(disk_->Run(write.Set(text)), 0);
    EXPECT_EQ(file_.Content(4096, text.size()), text);
    TestRequest read(BlockOp::kRead, 4096, lengths);
    EXPECT_EQ(disk_->Run(read), 0);
    EXPECT_EQ(read.Text(), text) << lengths.size() << " segments";
  }
  EXPECT_EQ(disk_->Count("bounced"), 0u);
  EXPECT_EQ(disk_->Count("errors"), 0u);
}

TEST_P(EngineTest, CopiesWhatDirectAccessRefuses) {
  // Odd addresses, odd lengths, and more than a bounce buffer.
  for (const auto& lengths : std::vector<std::vector<uint32_t>>{
           {4096}, {1, 4094, 1}, {300 << 10, 3, (1 << 20) - 3 - (300 << 10)}}) {
    TestRequest write(BlockOp::kWrite, 8192, lengths, 1);
    const std::string text = Pattern(write.Text().size(), 'b');
    EXPECT_EQ(disk_->Run(write.Set(text)), 0);
    EXPECT_EQ(file_.Content(8192, text.size()), text);
    TestRequest read(BlockOp::kRead, 8192, lengths, 3);
    EXPECT_EQ(disk_->Run(read), 0);
    EXPECT_EQ(read.Text(), text);
  }
  if (GetParam().inline_io == Inline::kOff) {
    EXPECT_EQ(disk_->Count("bounced"), direct() ? 6u : 0u);
    EXPECT_EQ(disk_->Count("served_inline"), 0u);
  }
}

TEST_P(EngineTest, MoreAreBouncedThanThereAreBuffers) {
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  for (uint64_t i = 0; i < 200; ++i) {
    requests.push_back(
        std::make_unique<TestRequest>(BlockOp::kWrite, i * 4096, std::vector<uint32_t>{4096}, 1));
    requests.back()->Set(std::string(4096, static_cast<char>('A' + i % 26)));
    all.push_back(requests.back().get());
  }
  disk_->Run(all);
  for (const auto& request : requests) EXPECT_EQ(request->result, 0);
  for (uint64_t i = 0; i < 200; ++i) {
    EXPECT_EQ(file_.Content(i * 4096, 4096), std::string(4096, static_cast<char>('A' + i % 26)));
  }
}

TEST_P(EngineTest, ThousandsAtOnce) {
  constexpr uint64_t kCount = 6000;  // more than a ring of io_uring or Linux AIO holds
  std::vector<std::unique_ptr<TestRequest>> requests;
  std::vector<TestRequest*> all;
  for (uint64_t i = 0; i < kCount; ++i) {
    const bool write = i < 2000;
    requests.push_back(std::make_unique<TestRequest>(write ? BlockOp::kWrite : BlockOp::kRead,
                                                     (write ? i : 2000 + i % 48) * 4096,
                                                     std::vector<uint32_t>{4096}));
    requests.back()->Set(std::string(4096, static_cast<char>(i)));
    all.push_back(requests.back().get());
  }
  disk_->Run(all);
  for (uint64_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(requests[i]->result, 0);
    if (i < 2000) {
      EXPECT_EQ(file_.Content(i * 4096, 4096), requests[i]->Text());
    } else {
      EXPECT_EQ(requests[i]->Text(), std::string(4096, '\0'));
    }
  }
}

TEST_P(EngineTest, ReadsZeroesWhereTheFileWasCut) {
  for (const uint64_t kept : {uint64_t{6000}, uint64_t{8192}, uint64_t{0}}) {
    file_.Resize(0);
    file_.Resize(kept);
    if (kept != 0) file_.Fill(0, std::string(kept, 'x'));
    TestRequest read(BlockOp::kRead, 4096, {4096, 4096});
    EXPECT_EQ(disk_->Run(read.Set(std::string(8192, '?'))), 0);
    const size_t there = kept > 4096 ? kept - 4096 : 0;
    EXPECT_EQ(read.Text(), std::string(there, 'x') + std::string(8192 - there, '\0'));
    TestRequest bounced(BlockOp::kRead, 4096, {4095, 4097}, 1);
    EXPECT_EQ(disk_->Run(bounced.Set(std::string(8192, '?'))), 0);
    EXPECT_EQ(bounced.Text(), read.Text());
  }
}

TEST_P(EngineTest, FlushesAndDurableWritesSucceed) {
  TestRequest write(BlockOp::kWrite, 0, {4096});
  write.durable = true;
  EXPECT_EQ(disk_->Run(write.Set(Pattern(4096, 'd'))), 0);
  TestRequest vector(BlockOp::kWrite, 4096, {4096, 4096});
  vector.durable = true;
  EXPECT_EQ(disk_->Run(vector.Set(Pattern(8192, 'e'))), 0);
  TestRequest flush(BlockOp::kFlush, 0);
  EXPECT_EQ(disk_->Run(flush), 0);
  EXPECT_EQ(file_.Content(4096, 8192), Pattern(8192, 'e'));
}

TEST_P(EngineTest, DiscardsAndWritesZeroes) {
  for (const bool durable : {false, true}) {
    for (const bool unmap : {false, true}) {
      file_.Fill(0, std::string(3 << 20, 'x'));
      TestRequest zeroes(BlockOp::kWriteZeroes, 4096);
      zeroes.length = 2 << 20;
      zeroes.unmap = unmap;
      zeroes.durable = durable;
      EXPECT_EQ(disk_->Run(zeroes), 0);
      EXPECT_EQ(file_.Content(0, 4096), std::string(4096, 'x'));
      EXPECT_EQ(file_.Content(4096, 2 << 20), std::string(2 << 20, '\0'));
      EXPECT_EQ(file_.Content(4096 + (2 << 20), 4096), std::string(4096, 'x'));
    }
    TestRequest discard(BlockOp::kDiscard, 0);
    discard.length = 4096;
    discard.durable = durable;
    EXPECT_EQ(disk_->Run(discard), 0);
    EXPECT_EQ(file_.Content(0, 4096), std::string(4096, '\0'));
  }
  EXPECT_EQ(std::filesystem::file_size(file_.path()), kSize);
}

TEST_P(EngineTest, RefusesWhatLiesBeyondTheEnd) {
  TestRequest past(BlockOp::kWrite, kSize - 4096, {8192});
  EXPECT_EQ(disk_->Run(past), -EINVAL);
  TestRequest wrapping(BlockOp::kRead, ~uint64_t{0} - 511, {512});
  EXPECT_EQ(disk_->Run(wrapping), -EINVAL);
  TestRequest discard(BlockOp::kDiscard, 512);
  discard.length = ~uint64_t{0} - 511;
  EXPECT_EQ(disk_->Run(discard), -EINVAL);
  EXPECT_EQ(std::filesystem::file_size(file_.path()), kSize);
  EXPECT_EQ(disk_->Count("errors"), 3u);
}

TEST_P(EngineTest, NothingToTransferIsDoneLater) {
  TestRequest empty(BlockOp::kRead, 0), flush(BlockOp::kFlush, 0), discard(BlockOp::kDiscard, 0);
  disk_->Run({&empty, &flush, &discard});
  EXPECT_EQ(empty.result | flush.result | discard.result, 0);
}

TEST_P(EngineTest, AllocatesNothingOnceWarm) {
  auto round = [&] {
    TestRequest single(BlockOp::kWrite, 0, {4096}),
        many(BlockOp::kRead, 8192, std::vector<uint32_t>(40, 4096));
    TestRequest odd(BlockOp::kWrite, 1 << 20, {4096}, 1), flush(BlockOp::kFlush, 0);
    TestRequest discard(BlockOp::kDiscard, 2 << 20);
    discard.length = 4096;
    disk_->Run({&single, &many, &odd, &flush, &discard});
  };
  // A worker thread or a slab may come late, each once: after at most a few windows there is one
  // without any. What allocates per request does so in all.
  uint64_t least = ~uint64_t{0};
  for (int window = 0; window < 40 && least != 0; ++window) {
    uint64_t before = 0, after = 0;
    RunOn(disk_->io_thread(), [&] { before = testing::AllocationsOfThisThread(); });
    for (int i = 0; i < 20; ++i) round();
    RunOn(disk_->io_thread(), [&] { after = testing::AllocationsOfThisThread(); });
    least = std::min(least, after - before);
  }
  EXPECT_EQ(least, 0u);
}

TEST_P(EngineTest, LeavesNoDescriptorBehind) {
  auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  disk_.reset();
  const auto before = count();
  for (int i = 0; i < 3; ++i) {
    Open();
    TestRequest read(BlockOp::kRead, 0, {4096});
    EXPECT_EQ(disk_->Run(read), 0);
    disk_.reset();
  }
  EXPECT_EQ(count(), before);
}

// Random requests in rounds, none of which overlap within a round, against a model in memory.
TEST_P(EngineTest, DoesWhatAModelInMemoryDoes) {
  constexpr uint32_t kBlock = 4096;
  constexpr uint64_t kBlocks = kSize / kBlock;
  std::mt19937 random(20261121);
  std::string model(kSize, '\0');
#if defined(RINGSIDE_TSAN) || defined(RINGSIDE_ASAN)
  const int turns = 12;
#else
  // The disk's journal makes discards slow there.
  const int turns = GetParam().directory[0] == '/' ? 40 : 12;
#endif
  for (int turn = 0; turn < turns; ++turn) {
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> all;
    std::vector<std::pair<TestRequest*, std::string>> expected;
    for (uint64_t block = random() % 4; block < kBlocks;) {
      const uint32_t blocks = std::min<uint32_t>(1 + random() % (random() % 16 == 0 ? 100 : 8),
                                                 static_cast<uint32_t>(kBlocks - block));
      const uint64_t offset = block * kBlock;
      const uint32_t size = blocks * kBlock;
      const auto what = static_cast<unsigned>(random() % 8);
      std::vector<uint32_t> lengths;
      const bool odd = random() % 8 == 0;
      for (uint32_t left = size; left != 0 && what < 6; left -= lengths.back()) {
        const uint32_t most = std::min<uint32_t>(left, 1 + random() % (8 * kBlock));
        lengths.push_back(odd || most < kBlock ? (odd ? most : std::min(left, kBlock))
                                               : most / kBlock * kBlock);
      }
      const BlockOp op = what < 3    ? BlockOp::kRead
                         : what < 6  ? BlockOp::kWrite
                         : what == 6 ? BlockOp::kDiscard
                                     : BlockOp::kWriteZeroes;
      auto& request = *requests.emplace_back(
          std::make_unique<TestRequest>(op, offset, lengths, odd ? random() % 64 : 0));
      request.durable = random() % 128 == 0;
      if (op == BlockOp::kRead) {
        expected.emplace_back(&request, model.substr(offset, size));
      } else if (op == BlockOp::kWrite) {
        const std::string text = Pattern(size, static_cast<char>(random()));
        request.Set(text);
        model.replace(offset, size, text);
      } else {
        request.length = size;
        request.unmap = random() % 2 == 0;
        model.replace(offset, size, size, '\0');
      }
      all.push_back(&request);
      block += blocks + random() % 8;
    }
    std::shuffle(all.begin(), all.end(), random);
    disk_->Run(all);
    for (const TestRequest* request : all) ASSERT_EQ(request->result, 0);
    for (const auto& [request, text] : expected) ASSERT_TRUE(request->Text() == text) << turn;
  }
  TestRequest flush(BlockOp::kFlush, 0);
  EXPECT_EQ(disk_->Run(flush), 0);
  EXPECT_TRUE(file_.Content(0, kSize) == model);
}

// With files limited to less than the disk, a write stops short and then fails.
TEST_P(EngineTest, AWriteThatStopsShortGoesOnAndReportsTheError) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit low = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  // Before the channel's threads: a kernel worker takes the limit over when it is made.
  setrlimit(RLIMIT_FSIZE, &low);
  Open();
  TestRequest write(BlockOp::kWrite, (1 << 20) - 8192, {4096, 4096, 4096, 4096});
  const int result = disk_->Run(write.Set(Pattern(16384, 's')));
  disk_.reset();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(result == -EFBIG || result == -ENOSPC) << result;
  EXPECT_EQ(file_.Content((1 << 20) - 8192, 8192), Pattern(16384, 's').substr(0, 8192));
}

std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const char* directory : testing::kTestDirectories) {
    for (const CacheMode cache : {CacheMode::kNone, CacheMode::kWriteback}) {
      settings.push_back({Engine::kIoUring, IoThread::Waiter::kUring, cache, directory});
      for (const auto waiter : {IoThread::Waiter::kUring, IoThread::Waiter::kEpoll}) {
        settings.push_back({Engine::kThreads, waiter, cache, directory});
        if (cache == CacheMode::kNone) {
          settings.push_back({Engine::kNative, waiter, cache, directory});
        }
      }
    }
  }
  settings.push_back({Engine::kIoUring, IoThread::Waiter::kUring, CacheMode::kUnsafe, "."});
  using enum IoThread::Waiter;
  for (const char* directory : testing::kTestDirectories) {
    for (const auto& [engine, waiter] :
         {std::pair(Engine::kIoUring, kUring), std::pair(Engine::kThreads, kEpoll)}) {
      settings.push_back({engine, waiter, CacheMode::kWriteback, directory, Inline::kOn});
    }
    settings.push_back({Engine::kNative, kUring, CacheMode::kNone, directory, Inline::kOn});
  }
  return settings;
}

INSTANTIATE_TEST_SUITE_P(With, EngineTest, ::testing::ValuesIn(Settings()),
                         [](const ::testing::TestParamInfo<Setting>& info) {
                           const Setting& setting = info.param;
                           return absl::StrFormat(
                               "%s_%s_%s_%s%s", EngineName(setting.engine),
                               setting.waiter == IoThread::Waiter::kUring ? "ring" : "epoll",
                               CacheModeName(setting.cache),
                               *setting.directory == '/' ? "tmpfs" : "disk",
                               setting.inline_io == Inline::kOn ? "_inline" : "");
                         });

}  // namespace
}  // namespace ringside
