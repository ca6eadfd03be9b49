#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "poll/io_thread.h"
#include "poll/uring.h"
#include "tests/support/descriptors.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/test_source.h"
#include "tests/support/poll/uring_ops.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::Must;
using testing::Pipe;
using testing::ReadEntry;
using testing::RegularFile;
using testing::RunOn;
using testing::TestHook;
using testing::TestOp;
using testing::TestSource;
using testing::TurnUntil;
using testing::UringStatus;
using testing::WriteEntry;

class UringTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto uring = Uring::Create();
    if (!uring.ok()) GTEST_SKIP() << uring.status().message();
    uring_ = *std::move(uring);
  }
  int Register(int fd) {
    const absl::StatusOr<int> index = uring_->RegisterFile(fd);
    EXPECT_TRUE(index.ok()) << index.status();
    return index.value_or(-1);
  }
  // Pushes one, and returns its result.
  int32_t Result(const io_uring_sqe& entry) {
    TestOp op;
    EXPECT_TRUE(uring_->Push(entry, op));
    if (!TurnUntil(*uring_, [&] { return op.done(); })) std::abort();
    EXPECT_EQ(op.results.size(), 1u);
    return op.results[0];
  }
  bool AllDone(const std::vector<TestOp>& ops) { return std::ranges::all_of(ops, &TestOp::done); }

  std::unique_ptr<Uring> uring_;
  char data_[16] = "";
};

TEST_F(UringTest, ReadsAndWritesAFileOnADisk) {
  char path[] = "/tmp/ringside_uring_XXXXXX";
  const UniqueFd fd(Must(mkostemp(path, O_CLOEXEC), path));
  unlink(path);
  const int file = Register(fd.get());
  EXPECT_EQ(Result(WriteEntry(file, "ring side", 9, 5)), 9);
  io_uring_sqe entry = {};
  io_uring_prep_fsync(&entry, file, IORING_FSYNC_DATASYNC);
  EXPECT_EQ(Result(entry), 0);
  char first[4] = "", second[16] = "";
  const iovec parts[] = {{first, 4}, {second, 16}};
  entry = {};
  io_uring_prep_readv(&entry, file, parts, 2, 5);
  EXPECT_EQ(Result(entry), 9);
  EXPECT_EQ(std::string(first, 4) + second, "ring side");
  const iovec out[] = {{first, 4}};
  entry = {};
  io_uring_prep_writev(&entry, file, out, 1, 100);
  EXPECT_EQ(Result(entry), 4);
  entry = {};
  io_uring_prep_fallocate(&entry, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 2);
  EXPECT_EQ(Result(entry), 0);
  EXPECT_EQ(Result(ReadEntry(file, data_, sizeof data_, 100)), 4);
  EXPECT_EQ(std::string(data_, 4), std::string("\0\0ng", 4));
}

TEST_F(UringTest, AnErrorIsANegativeErrno) {
  const UniqueFd fd(Must(open("/dev/null", O_RDONLY | O_CLOEXEC), "/dev/null"));
  const int file = Register(fd.get());
  EXPECT_EQ(Result(WriteEntry(file, "x", 1)), -EBADF);
  EXPECT_EQ(Result(ReadEntry(file, nullptr, 16)), 0);
  const UniqueFd memory = RegularFile("text");
  EXPECT_EQ(Result(ReadEntry(Register(memory.get()), nullptr, 16)), -EFAULT);
}

TEST_F(UringTest, WhatIsUnderWayOnAFileCanBeCancelled) {
  const Pipe pipe, other;
  const int file = Register(pipe.read_end.get());
  std::vector<TestOp> ops(3);
  TestOp of_another;
  for (TestOp& op : ops) ASSERT_TRUE(uring_->Push(ReadEntry(file, data_, 4), op));
  ASSERT_TRUE(uring_->Push(ReadEntry(Register(other.read_end.get()), data_, 4), of_another));
  uring_->CancelFile(file);
  EXPECT_TRUE(TurnUntil(*uring_, [&] { return AllDone(ops); }));
  for (const TestOp& op : ops) EXPECT_EQ(op.results, std::vector<int32_t>{-ECANCELED});
  EXPECT_FALSE(of_another.done());
}

// An operation waits where it would block, and the ring with it, without a system call a turn.
TEST_F(UringTest, AnOperationInFlightCompletesOnceWhenItCan) {
  const Pipe pipe;
  const int file = Register(pipe.read_end.get());
  TestOp op;
  ASSERT_TRUE(uring_->Push(ReadEntry(file, data_, 4), op));
  uring_->Enter();
  const uint64_t enters = uring_->enters();
  for (int i = 0; i < 1000; ++i) {
    uring_->Reap();
    uring_->Enter();
  }
  EXPECT_FALSE(uring_->HasCompletions());
  EXPECT_FALSE(op.done());
  EXPECT_EQ(uring_->enters(), enters);
  testing::WriteAll(pipe.write_end.get(), "done");
  EXPECT_TRUE(TurnUntil(*uring_, [&] { return op.done(); }));
  EXPECT_EQ(op.results, std::vector<int32_t>{4});
  EXPECT_FALSE(uring_->HasCompletions());
}

// Nothing is left behind where the thread sleeps.
TEST_F(UringTest, EnteringToSleepStartsWhatWasPushed) {
  const UniqueFd fd = RegularFile("text");
  const int file = Register(fd.get());
  std::vector<TestOp> ops(1000);
  for (TestOp& op : ops) ASSERT_TRUE(uring_->Push(ReadEntry(file, data_, 4), op));
  ASSERT_TRUE(testing::SpinUntil([&] {
    if (AllDone(ops)) return true;
    uring_->Enter(Uring::kForever);
    uring_->Reap();
    return false;
  }));
  for (const TestOp& op : ops) EXPECT_EQ(op.results, std::vector<int32_t>{4});
}

TEST_F(UringTest, MorePushesThanTheSubmissionRingHoldsCostASystemCallEach256) {
  const UniqueFd fd = RegularFile("text");
  const int file = Register(fd.get());
  std::vector<TestOp> ops(2000);
  const uint64_t enters = uring_->enters();
  for (TestOp& op : ops) ASSERT_TRUE(uring_->Push(ReadEntry(file, data_, 4), op));
  uring_->Enter();
  EXPECT_LE(uring_->enters() - enters, 8u);
  EXPECT_TRUE(TurnUntil(*uring_, [&] { return AllDone(ops); }));
  for (const TestOp& op : ops) EXPECT_EQ(op.results, std::vector<int32_t>{4});
}

TEST_F(UringTest, MoreCompletionsThanTheirRingHoldsAreAllDelivered) {
  const UniqueFd fd = testing::DevNull();
  const int file = Register(fd.get());
  std::vector<TestOp> ops(20'000);
  for (TestOp& op : ops) ASSERT_TRUE(uring_->Push(WriteEntry(file, data_, 7), op));
  uring_->Enter();
  size_t turns = 0;
  while (uring_->HasCompletions() && turns < ops.size()) {
    uring_->Reap();
    ++turns;
  }
  EXPECT_TRUE(AllDone(ops));  // HasCompletions has said so as long as there were any
  for (const TestOp& op : ops) ASSERT_EQ(op.results, std::vector<int32_t>{7});
}

// What a handler starts is for the next turn, however fast it completes.
TEST_F(UringTest, AHandlerMayPushAndDoesNotKeepReapFromReturning) {
  struct Chain final : UringOp {
    void Complete(int32_t) override {
      if (++count < 5000) pushed &= uring->Push(WriteEntry(file, "x", 1), *this);
      uring->Enter();
    }
    Uring* uring = nullptr;
    int file = 0;
    int count = 0;
    bool pushed = true;
  } chain;
  const UniqueFd fd = testing::DevNull();
  chain.uring = uring_.get();
  chain.file = Register(fd.get());
  ASSERT_TRUE(uring_->Push(WriteEntry(chain.file, "x", 1), chain));
  uring_->Enter();
  for (int turn = 1; turn <= 5000; ++turn) {
    ASSERT_TRUE(testing::SpinUntil([&] { return uring_->HasCompletions(); }));
    uring_->Reap();
    ASSERT_EQ(chain.count, turn);
  }
  EXPECT_TRUE(chain.pushed);
  EXPECT_FALSE(uring_->HasCompletions());
}

TEST_F(UringTest, OneThatIsRefusedDoesNotHoldUpTheOthersOfItsBatch) {
  const UniqueFd fd = testing::DevNull();
  const int file = Register(fd.get());
  std::vector<TestOp> ops(100);
  for (size_t i = 0; i < ops.size(); ++i) {
    io_uring_sqe entry = WriteEntry(file, data_, 7);
    if (i % 3 == 0) entry.opcode = IORING_OP_NOP;
    ASSERT_TRUE(uring_->Push(entry, ops[i]));
  }
  uring_->Enter();
  EXPECT_TRUE(testing::SpinUntil([&] {
    uring_->Reap();
    return AllDone(ops);
  }));
  for (size_t i = 0; i < ops.size(); ++i) {
    EXPECT_EQ(ops[i].results, std::vector<int32_t>{i % 3 == 0 ? -EACCES : 7});
  }
}

// Restrictions: what the process does not need, nobody can do with its ring.

TEST_F(UringTest, OtherOperationsAreRefused) {
  const UniqueFd fd = RegularFile("text");
  const int file = Register(fd.get());
  constexpr std::array kAllowed = {IORING_OP_READ,     IORING_OP_WRITE,       IORING_OP_READV,
                                   IORING_OP_WRITEV,   IORING_OP_FSYNC,       IORING_OP_FALLOCATE,
                                   IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL};
  for (int operation = 0; operation < IORING_OP_LAST; ++operation) {
    if (std::ranges::find(kAllowed, operation) != kAllowed.end()) continue;
    io_uring_sqe entry = {};
    entry.opcode = static_cast<uint8_t>(operation);
    entry.fd = file;
    EXPECT_EQ(Result(entry), -EACCES) << "operation " << operation;
  }
  EXPECT_EQ(Result(ReadEntry(file, data_, 4)), 4);
}

TEST_F(UringTest, MoreFilesThanItTakesIsAnErrorAndNothingElse) {
  const UniqueFd fd = RegularFile("text");
  std::vector<int> files;
  absl::StatusOr<int> file = uring_->RegisterFile(fd.get());
  for (; file.ok(); file = uring_->RegisterFile(fd.get())) {
    ASSERT_LT(files.size(), 2000u);
    files.push_back(*file);
  }
  EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted);
  for (const int index : files) uring_->UnregisterFile(index);
  EXPECT_EQ(Result(ReadEntry(Register(fd.get()), data_, 4)), 4);
}

TEST_F(UringTest, FilesThatAreNotRegisteredAreRefused) {
  const UniqueFd fd = RegularFile("text");
  const int file = Register(fd.get());
  EXPECT_EQ(Result(ReadEntry(file, data_, 4)), 4);
  for (const int index : {file + 1, 1 << 20, -1}) {
    EXPECT_EQ(Result(ReadEntry(index, data_, 4)), -EBADF) << index;
  }
  // Flags cannot make a descriptor of it.
  io_uring_sqe entry = ReadEntry(fd.get(), data_, 4);
  ASSERT_NE(fd.get(), file);
  EXPECT_EQ(Result(entry), -EBADF);
  for (const uint8_t flags : {IOSQE_ASYNC, IOSQE_IO_LINK, IOSQE_IO_DRAIN, IOSQE_BUFFER_SELECT}) {
    entry = ReadEntry(file, data_, 4);
    entry.flags = flags;
    EXPECT_EQ(Result(entry), -EACCES) << int{flags};
  }
  uring_->UnregisterFile(file);
  EXPECT_EQ(Result(ReadEntry(file, data_, 4)), -EBADF);
}

TEST_F(UringTest, FilesComeAndGoUpToALimit) {
  const UniqueFd first = RegularFile("first");
  const UniqueFd second = RegularFile("second");
  for (int i = 0; i < 5000; ++i) {
    const int file = Register((i % 2 == 0 ? first : second).get());
    ASSERT_EQ(Result(ReadEntry(file, data_, 16)), i % 2 == 0 ? 5 : 6);
    uring_->UnregisterFile(file);
  }
  EXPECT_FALSE(uring_->RegisterFile(1 << 20).ok());  // no such descriptor
  std::vector<int> files;
  absl::StatusOr<int> file = uring_->RegisterFile(first.get());
  for (; file.ok(); file = uring_->RegisterFile(first.get())) files.push_back(*file);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(files.size(), 256u);
  for (const int index : files) uring_->UnregisterFile(index);
  EXPECT_EQ(Result(ReadEntry(Register(second.get()), data_, 16)), 6);
}

// On an I/O thread: wherever a turn pushes something, the thread does not sleep before it is
// submitted. Nobody calls Enter here, and nobody posts after the push.
class UringOnIoThread : public UringTest {
 protected:
  void SetUp() override {
    UringTest::SetUp();
    if (IsSkipped()) return;
    io_thread_ = *IoThread::Start("test", IoThread::Waiter::kUring);
    RunOn(*io_thread_, [&] { op_.file = *io_thread_->uring()->RegisterFile(null_.get()); });
  }

  struct Op final : UringOp {
    void Complete(int32_t) override {
      if (left-- > 0) {
        Push(*uring);
      } else {
        done.Notify();
      }
    }
    void Push(Uring& on) {
      uring = &on;
      EXPECT_TRUE(on.Push(WriteEntry(file, "x", 1), *this));
    }
    BoundedEvent done;
    Uring* uring = nullptr;
    int file = 0;
    int left = 0;
  } op_;
  void Push() { op_.Push(*io_thread_->uring()); }

  const UniqueFd null_ = testing::DevNull();
  const EventFd wake_ = *EventFd::Create();
  std::unique_ptr<IoThread> io_thread_;
};

TEST_F(UringOnIoThread, PushedByATask) {
  RunOn(*io_thread_, [&] { Push(); });
  EXPECT_TRUE(op_.done.Wait());
}

TEST_F(UringOnIoThread, PushedByACompletion) {
  op_.left = 1000;
  RunOn(*io_thread_, [&] { Push(); });
  EXPECT_TRUE(op_.done.Wait());
}

TEST_F(UringOnIoThread, PushedByHooks) {
  TestHook publish([&] { Push(); });
  RunOn(*io_thread_, [&] { io_thread_->AtPublish(publish); });
  EXPECT_TRUE(op_.done.Wait());
  Op second;
  second.file = op_.file;
  TestHook submit([&] { second.Push(*io_thread_->uring()); });
  RunOn(*io_thread_, [&] { io_thread_->AtHandOver(submit); });
  EXPECT_TRUE(second.done.Wait());
}

TEST_F(UringOnIoThread, PushedByASource) {
  for (const Phase phase : {Phase::kComplete, Phase::kTake}) {
    Op op;
    op.file = op_.file;
    TestSource source(wake_, [&] { op.Push(*io_thread_->uring()); });
    RunOn(*io_thread_, [&] { ASSERT_TRUE(io_thread_->Attach(source, phase).ok()); });
    source.work = 1;
    wake_.Signal();
    EXPECT_TRUE(op.done.Wait());
    RunOn(*io_thread_, [&] { io_thread_->Detach(source); });
  }
}

TEST_F(UringOnIoThread, PushedByAWatch) {
  struct Watch final : FdWatch {
    Watch(int fd, std::function<void()> ready) : FdWatch(fd, EPOLLIN), ready(std::move(ready)) {}
    void Ready() override { ready(); }
    std::function<void()> ready;
  } watch(wake_.fd(), [&] { Push(); });
  RunOn(*io_thread_, [&] { io_thread_->Arm(watch); });
  wake_.Signal();
  EXPECT_TRUE(op_.done.Wait());
  RunOn(*io_thread_, [&] { io_thread_->Disarm(watch); });
}

}  // namespace
}  // namespace ringside
