// What a file's channel begins in a turn, and what becomes of requests that are recalled.
#include "file/file_channel.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <sys/mman.h>
#include <type_traits>
#include <vector>

#include "tests/support/block/holding_channel.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using testing::HoldingChannel;
using testing::LetTurn;
using testing::RunOn;
using testing::TempFile;

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;
constexpr uint64_t kSize = 8 * kGiB;

// Nothing reads or writes it.
std::byte* Nowhere() {
  static void* const memory =
      mmap(nullptr, kGiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return static_cast<std::byte*>(memory);
}

struct Request : BlockRequest {
  Request(RequestOwner& whose, BlockOp what, uint64_t bytes) {
    op = what;
    owner = &whose;
    if (what == BlockOp::kRead || what == BlockOp::kWrite) {
      segment = {.host = Nowhere(), .length = static_cast<uint32_t>(bytes), .region = 0};
      segments = {&segment, 1};
    } else {
      length = bytes;
    }
    done = [](BlockRequest& request) { static_cast<Request&>(request).is_done = true; };
  }
  Segment segment;
  bool is_done = false;
};

class FileChannelTest : public ::testing::Test {
 protected:
  FileChannelTest() { target_.size = kSize; }
  ~FileChannelTest() override { Close(); }
  // Once nothing is in flight.
  void Close() {
    if (channel_ == nullptr) return;
    Recall();
    EXPECT_TRUE(testing::SpinUntil([&] {
      Turn();
      return OnThread([&] {
        while (channel_->held() > 0) {
          channel_->CompleteFirst(static_cast<int64_t>(channel_->step(0).length));
        }
        return std::ranges::all_of(requests_, [](const auto& each) { return each->is_done; });
      });
    }));
    RunOn(*io_thread_, [this] { channel_.reset(); });
  }
  void Open() {
    Close();
    RunOn(*io_thread_, [this] {
      owner_.recalls = false;
      channel_ = std::make_unique<HoldingChannel>(*io_thread_, target_, counters_);
    });
  }
  Request& Add(BlockOp op, uint64_t bytes) {
    return *requests_.emplace_back(std::make_unique<Request>(owner_, op, bytes));
  }
  // All of them, in one turn. What the engine has then.
  size_t SubmitAll() {
    size_t held = 0;
    RunOn(*io_thread_, [&] {
      for (const auto& request : requests_) channel_->Submit(*request);
      held = channel_->held();
    });
    return held;
  }
  void Recall() {
    RunOn(*io_thread_, [this] { owner_.recalls = true; });
  }
  void Turn() { LetTurn(*io_thread_, 1); }
  template <typename Function>
  std::invoke_result_t<Function> OnThread(Function function) {
    std::invoke_result_t<Function> result;
    RunOn(*io_thread_, [&] { result = function(); });
    return result;
  }
  void UseTmpfs() {
    file_ = std::make_unique<TempFile>(64 * kMiB);
    target_.fd = UniqueFd(testing::Must(fcntl(file_->fd(), F_DUPFD_CLOEXEC, 0), "dup"));
    target_.size = 64 * kMiB;
    target_.inline_io = InlineIo::kMemory;
  }
  size_t done(int result) const {
    size_t count = 0;
    for (const auto& request : requests_) count += request->is_done && request->result == result;
    return count;
  }

  std::unique_ptr<TempFile> file_;
  FileTarget target_;
  FileCounters counters_;
  RequestOwner owner_;
  std::unique_ptr<IoThread> io_thread_ = *IoThread::Start("test");
  std::unique_ptr<HoldingChannel> channel_;
  std::vector<std::unique_ptr<Request>> requests_;
};

TEST_F(FileChannelTest, ATurnBeginsSoManyBytesOfThePageCache) {
  Open();
  for (int i = 0; i < 16; ++i) Add(BlockOp::kRead, 64 * kKiB);
  EXPECT_EQ(SubmitAll(), 4u);
  // The others in the turns that follow, in their order.
  const bool all = testing::SpinUntil([&] {
    Turn();
    return OnThread([&] { return channel_->held() == 16; });
  });
  EXPECT_TRUE(all);
}

TEST_F(FileChannelTest, ATurnBeginsSoManyBytesOfDirectAccess) {
  target_.direct = true;
  Open();
  for (int i = 0; i < 16; ++i) Add(BlockOp::kWrite, 256 * kKiB);
  EXPECT_EQ(SubmitAll(), 4u);
}

TEST_F(FileChannelTest, ALargeTransferGoesInPartsAndOneIsUnderWay) {
  for (const bool direct : {false, true}) {
    target_.direct = direct;
    Open();
    requests_.clear();
    Request& request = Add(BlockOp::kRead, 3 * kMiB + 512);
    SubmitAll();
    uint64_t moved = 0;
    int parts = 0;
    while (!request.is_done) {
      Turn();
      RunOn(*io_thread_, [&] {
        if (channel_->held() == 0) return;
        EXPECT_EQ(channel_->held(), 1u);
        const FileStep step = channel_->step(0);
        EXPECT_EQ(step.offset, moved);
        EXPECT_LE(step.length, direct ? kMiB : 64 * kKiB);
        moved += step.length;
        ++parts;
        channel_->CompleteFirst(static_cast<int64_t>(step.length));
      });
    }
    EXPECT_EQ(request.result, 0);
    EXPECT_EQ(moved, 3 * kMiB + 512);
    EXPECT_EQ(parts, direct ? 4 : 49);
  }
}

TEST_F(FileChannelTest, LargeTransfersTakeTurns) {
  Open();
  for (int i = 0; i < 3; ++i) Add(BlockOp::kWrite, kMiB).offset = static_cast<uint64_t>(i) * kGiB;
  SubmitAll();
  std::vector<uint64_t> order;
  while (order.size() < 6) {
    Turn();
    RunOn(*io_thread_, [&] {
      if (channel_->held() == 0) return;
      order.push_back(channel_->step(0).offset / kGiB);
      channel_->CompleteFirst(static_cast<int64_t>(channel_->step(0).length));
    });
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{0, 1, 2, 0, 1, 2}));
  Close();
  EXPECT_EQ(done(-ECANCELED), 3u);
}

TEST_F(FileChannelTest, OneRangeIsAllocatedAtATimeAndInParts) {
  Open();
  for (int i = 0; i < 3; ++i) Add(BlockOp::kDiscard, kGiB);
  EXPECT_EQ(SubmitAll(), 1u);
  for (int i = 0; i < 12; ++i) {
    RunOn(*io_thread_, [&] {
      ASSERT_EQ(channel_->held(), 1u);
      EXPECT_EQ(channel_->step(0).length, 256 * kMiB);
      EXPECT_EQ(channel_->step(0).offset, static_cast<uint64_t>(i / 3) * 256 * kMiB);
      channel_->CompleteFirst(0);
    });
  }
  EXPECT_EQ(done(0), 3u);
}

// It need not cover what was written after it was begun.
TEST_F(FileChannelTest, OneFlushIsUnderWayAndThoseThatCameMeanwhileShareTheNext) {
  Open();
  for (int i = 0; i < 5; ++i) Add(BlockOp::kFlush, 0);
  EXPECT_EQ(SubmitAll(), 1u);
  RunOn(*io_thread_, [&] {
    channel_->CompleteFirst(0);
    ASSERT_EQ(channel_->held(), 1u);
  });
  EXPECT_EQ(done(0), 1u);
  RunOn(*io_thread_, [this] { channel_->CompleteFirst(-EIO); });
  EXPECT_TRUE(testing::SpinUntil([&] {
    Turn();
    return OnThread([&] { return done(-EIO) == 4; });
  }));
  EXPECT_EQ(OnThread([&] { return channel_->held(); }), 0u);
}

// The kernel tells once that pages were lost, and they may be those of whoever waits.
TEST_F(FileChannelTest, AFlushThatWaitedForOneThatFailsFailsToo) {
  Open();
  for (int i = 0; i < 3; ++i) Add(BlockOp::kFlush, 0);
  EXPECT_EQ(SubmitAll(), 1u);
  RunOn(*io_thread_, [&] {
    channel_->CompleteFirst(-EIO);
    EXPECT_EQ(channel_->held(), 0u) << "another was asked for";
  });
  EXPECT_TRUE(testing::SpinUntil([&] {
    Turn();
    return OnThread([&] { return done(-EIO) == 3; });
  }));
}

TEST_F(FileChannelTest, AFlushThatIsGivenUpTakesNoOtherAlong) {
  Open();
  for (int i = 0; i < 3; ++i) Add(BlockOp::kFlush, 0);
  SubmitAll();
  RunOn(*io_thread_, [this] {
    channel_->CompleteFirst(0);
    channel_->CompleteFirst(-ECANCELED);
    ASSERT_EQ(channel_->held(), 1u) << "of the one that had waited for that";
    channel_->CompleteFirst(0);
  });
  EXPECT_EQ(done(0), 2u);
  EXPECT_EQ(done(-ECANCELED), 1u);
}

TEST_F(FileChannelTest, FlushesThatWaitAreGivenBackWithoutOne) {
  Open();
  for (int i = 0; i < 3; ++i) Add(BlockOp::kFlush, 0);
  SubmitAll();
  Recall();
  RunOn(*io_thread_, [this] { channel_->CompleteFirst(0); });
  EXPECT_TRUE(testing::SpinUntil([&] {
    Turn();
    return OnThread([&] { return done(-ECANCELED) == 2; });
  }));
  EXPECT_EQ(done(0), 1u);
  EXPECT_EQ(OnThread([&] { return channel_->held(); }), 0u);
}

TEST_F(FileChannelTest, WhatIsRecalledEndsAtItsPartAndWhatWaitsIsNotBegun) {
  Open();
  for (int i = 0; i < 8; ++i) Add(BlockOp::kRead, 64 * kKiB);  // four of them wait
  Add(BlockOp::kWrite, kGiB);
  for (int i = 0; i < 2; ++i) Add(BlockOp::kWriteZeroes, kGiB);  // one waits
  RunOn(*io_thread_, [this] {
    for (const auto& request : requests_) channel_->Submit(*request);
    owner_.recalls = true;
    EXPECT_EQ(channel_->held(), 5u);
  });
  for (int i = 0; i < 5; ++i) {
    RunOn(*io_thread_, [&] {
      ASSERT_GT(channel_->held(), 0u);
      channel_->CompleteFirst(static_cast<int64_t>(channel_->step(0).length));
    });
  }
  EXPECT_TRUE(testing::SpinUntil([&] {
    Turn();
    return OnThread([&] { return done(0) + done(-ECANCELED) == requests_.size(); });
  }));
  EXPECT_EQ(OnThread([&] { return channel_->held(); }), 0u);
  EXPECT_EQ(done(0), 4u) << "what the engine had whole";
  EXPECT_EQ(counters_.errors.Get(), 0u);
  EXPECT_EQ(counters_.requests[0].Get(), 4u) << "what was recalled counts where it is done";
}

TEST_F(FileChannelTest, AFlushThatIsGivenUpIsNoFlushThatHasFailed) {
  Open();
  Add(BlockOp::kFlush, 0);
  SubmitAll();
  Recall();
  RunOn(*io_thread_, [this] { channel_->CompleteFirst(-ECANCELED); });
  EXPECT_EQ(done(-ECANCELED), 1u);
  Open();
  requests_.clear();
  Add(BlockOp::kFlush, 0);
  SubmitAll();
  RunOn(*io_thread_, [this] { channel_->CompleteFirst(0); });
  EXPECT_EQ(done(0), 1u);
}

// Where all is in memory the thread does all of it itself.
TEST_F(FileChannelTest, OfATmpfsNothingLargeGoesToTheEngine) {
  UseTmpfs();
  Open();
  std::vector<std::byte> memory(kMiB);
  std::vector<Segment> all(64, {.host = memory.data(), .length = kMiB, .region = 0});
  Request& request = Add(BlockOp::kRead, 0);
  request.segments = all;
  SubmitAll();
  EXPECT_TRUE(testing::SpinUntil([&] { return OnThread([&] { return request.is_done; }); }));
  EXPECT_EQ(request.result, 0);
  EXPECT_EQ(OnThread([&] { return channel_->held(); }), 0u);
  EXPECT_GE(io_thread_->stats().turns.Get(), 1024u) << "64 KiB a turn";
}

// The last parts of a transfer may end in one turn: nothing of the channel may be queued then.
TEST_F(FileChannelTest, MayCloseOnceTheLastPartsAreDone) {
  UseTmpfs();
  Open();
  std::vector<std::byte> memory(64 * kKiB);
  std::vector<Segment> all(301, {.host = memory.data(), .length = 2, .region = 0});
  all[0].length = 64 * kKiB;  // a turn's worth, and then more pieces than a part may have
  Request& request = Add(BlockOp::kRead, 0);
  request.segments = all;
  TaskOf close([this] { channel_.reset(); });
  struct Closes : RequestOwner {
    IoThread* io_thread;
    Task* close;
  } owner;
  owner.io_thread = io_thread_.get();
  owner.close = &close;
  request.owner = &owner;
  request.done = [](BlockRequest& done) {
    const auto& whose = static_cast<const Closes&>(*done.owner);
    static_cast<Request&>(done).is_done = true;
    whose.io_thread->Post(*whose.close);
  };
  SubmitAll();
  EXPECT_TRUE(testing::SpinUntil([&] {
    Turn();
    return OnThread([&] { return channel_ == nullptr; });
  }));
  EXPECT_TRUE(request.is_done);
  EXPECT_EQ(request.result, 0);
}

}  // namespace
}  // namespace ringside
