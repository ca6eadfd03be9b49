#include <array>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "base/fd.h"
#include "poll/io_thread.h"
#include "tests/support/descriptors.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::DevNull;
using testing::LetTurn;
using testing::Pipe;
using testing::ReadAvailable;
using testing::RegularFile;
using testing::RunOn;
using testing::WaiterTest;

// Counts its calls; `then` runs in each. The count is the I/O thread's own.
class Watch final : public FdWatch {
 public:
  explicit Watch(
      int fd, std::function<void()> then = [] {}, uint32_t events = EPOLLIN)
      : FdWatch(fd, events), then_(std::move(then)) {}
  void Ready() override {
    ++count;
    then_();
  }
  int count = 0;

 private:
  const std::function<void()> then_;
};

class IoThreadWatch : public WaiterTest {
 protected:
  void SetUp() override {
    WaiterTest::SetUp();
    if (!IsSkipped()) io_thread_ = StartIoThread();
  }
  void Arm(Watch& watch) {
    RunOn(*io_thread_, [&] { io_thread_->Arm(watch); });
  }
  void Disarm(Watch& watch) {
    RunOn(*io_thread_, [&] { io_thread_->Disarm(watch); });
  }
  // After the I/O thread has had every chance to call it more often.
  int CountOf(const Watch& watch) {
    LetTurn(*io_thread_);
    int count = 0;
    RunOn(*io_thread_, [&] { count = watch.count; });
    return count;
  }

  std::unique_ptr<IoThread> io_thread_;
  EventFd event_ = *EventFd::Create();
};
RINGSIDE_WITH_BOTH_WAITERS(IoThreadWatch);

TEST_P(IoThreadWatch, ReadyIsCalledOnTheIoThreadWhenTheDescriptorBecomesReady) {
  BoundedEvent ready;
  std::thread::id thread;
  Watch watch(event_.fd(), [&] {
    thread = std::this_thread::get_id();
    ready.Notify();
  });
  Arm(watch);
  EXPECT_EQ(CountOf(watch), 0);
  event_.Signal();
  ready.WaitOrAbort();
  std::thread::id expected;
  RunOn(*io_thread_, [&] { expected = std::this_thread::get_id(); });
  EXPECT_EQ(thread, expected);
  Disarm(watch);
}

TEST_P(IoThreadWatch, ReadyWithoutAnotherArmIsTheLast) {
  BoundedEvent ready;
  Watch watch(event_.fd(), [&] {
    if (!ready.HasBeenNotified()) ready.Notify();
  });
  Arm(watch);
  event_.Signal();
  ready.WaitOrAbort();
  event_.Signal();  // readable all the time, and again
  EXPECT_EQ(CountOf(watch), 1);
  Disarm(watch);
}

TEST_P(IoThreadWatch, ArmedAgainItReportsWhatIsStillThere) {
  BoundedEvent third;
  Watch watch(event_.fd(), [&] {
    if (watch.count < 3) return io_thread_->Arm(watch);
    third.Notify();
  });
  Arm(watch);
  event_.Signal();  // once, and never cleared
  third.WaitOrAbort();
  EXPECT_EQ(CountOf(watch), 3);
  Disarm(watch);
}

TEST_P(IoThreadWatch, ArmingTwiceIsArmingOnce) {
  Watch watch(event_.fd());
  RunOn(*io_thread_, [&] {
    io_thread_->Arm(watch);
    io_thread_->Arm(watch);
  });
  event_.Signal();
  EXPECT_EQ(CountOf(watch), 1);
  Disarm(watch);
}

TEST_P(IoThreadWatch, DisarmedItIsSilentUntilArmed) {
  Watch watch(event_.fd());
  Arm(watch);
  Disarm(watch);
  Disarm(watch);  // harmless
  event_.Signal();
  EXPECT_EQ(CountOf(watch), 0);
  event_.Clear();
  Arm(watch);
  EXPECT_EQ(CountOf(watch), 0);
  event_.Signal();
  EXPECT_EQ(CountOf(watch), 1);
  Disarm(watch);
}

TEST_P(IoThreadWatch, DisarmReleasesTheDescriptorForTheNextWatch) {
  Watch first(event_.fd());
  Arm(first);
  Disarm(first);
  Watch second(event_.fd());
  Arm(second);
  EXPECT_EQ(CountOf(second), 0);  // refused by epoll it would count as always ready
  event_.Signal();
  EXPECT_EQ(CountOf(second), 1);
  EXPECT_EQ(first.count, 0);
  Disarm(second);
}

TEST_P(IoThreadWatch, WaitsForRoomToWriteAsWellAsForBytesToRead) {
  const Pipe pipe;
  fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  while (write(pipe.write_end.get(), "full", 4) > 0) {
  }
  Watch writable(pipe.write_end.get(), [] {}, EPOLLOUT);
  Arm(writable);
  EXPECT_EQ(CountOf(writable), 0);
  ReadAvailable(pipe.read_end.get());
  EXPECT_EQ(CountOf(writable), 1);
  Disarm(writable);
}

TEST_P(IoThreadWatch, AHangUpIsReady) {
  Pipe pipe;
  Watch watch(pipe.read_end.get());
  Arm(watch);
  EXPECT_EQ(CountOf(watch), 0);
  {
    const UniqueFd closed = std::move(pipe.write_end);
  }
  EXPECT_EQ(CountOf(watch), 1);
  Disarm(watch);
}

// Both are ready before the thread looks, and whoever comes first takes the other one away.
TEST_P(IoThreadWatch, AWatchDestroyedFromAnothersReadyIsNotCalled) {
  for (int round = 0; round < 30; ++round) {
    std::array<EventFd, 2> events = {*EventFd::Create(), *EventFd::Create()};
    std::array<std::unique_ptr<Watch>, 2> watches;
    int calls = 0;
    for (int i = 0; i < 2; ++i) {
      watches[i] = std::make_unique<Watch>(events[i].fd(), [&, i] {
        ++calls;
        io_thread_->Disarm(*watches[1 - i]);
        watches[1 - i].reset();
      });
    }
    RunOn(*io_thread_, [&] {
      for (int i = 0; i < 2; ++i) {
        io_thread_->Arm(*watches[i]);
        events[i].Signal();
      }
    });
    LetTurn(*io_thread_, 130);  // a thread kept awake looks at its epoll now and then only
    RunOn(*io_thread_, [&] {
      EXPECT_EQ(calls, 1);
      for (auto& watch : watches) {
        if (watch != nullptr) io_thread_->Disarm(*watch);
      }
    });
  }
}

TEST_P(IoThreadWatch, AWatchMayDestroyItselfInReady) {
  const UniqueFd file = RegularFile();
  for (const int fd : {event_.fd(), file.get()}) {
    event_.Signal();
    BoundedEvent gone;
    std::unique_ptr<Watch> watch;
    watch = std::make_unique<Watch>(fd, [&] {
      io_thread_->Disarm(*watch);
      BoundedEvent& done = gone;  // outlives the captures
      watch.reset();
      done.Notify();
    });
    Arm(*watch);
    gone.WaitOrAbort();
  }
}

// As for want of memory: the thread looks now and then instead, and does not spin.
TEST_P(IoThreadWatch, WhatTheKernelCannotWatchNowIsLookedAtNowAndThen) {
  constexpr int kClosed = 1'000'000;
  BoundedEvent three;
  Watch watch(kClosed, [&] {
    if (watch.count == 3) three.Notify();
    io_thread_->Arm(watch);
  });
  const absl::Time start = absl::Now();
  Arm(watch);
  three.WaitOrAbort();
  const int seen = CountOf(watch);
  const auto most =
      static_cast<int>((absl::Now() - start) / absl::Nanoseconds(IoThread::kRetryWatchNs)) + 1;
  EXPECT_LE(seen, most + 1);
  Disarm(watch);
  const int count = CountOf(watch);
  absl::SleepFor(absl::Nanoseconds(2 * IoThread::kRetryWatchNs));
  EXPECT_EQ(CountOf(watch), count);
}

class AlwaysReadyWatch : public IoThreadWatch {
 protected:
  const UniqueFd file_ = RegularFile();
  const UniqueFd null_ = DevNull();
};
RINGSIDE_WITH_BOTH_WAITERS(AlwaysReadyWatch);

TEST_P(AlwaysReadyWatch, WhatEpollRefusesIsReadyOnceForEachArm) {
  for (const int fd : {file_.get(), null_.get()}) {
    Watch watch(fd);
    Arm(watch);
    EXPECT_EQ(CountOf(watch), 1);
    Arm(watch);
    EXPECT_EQ(CountOf(watch), 2);
    RunOn(*io_thread_, [&] {
      io_thread_->Arm(watch);
      io_thread_->Arm(watch);
    });
    EXPECT_EQ(CountOf(watch), 3);
  }
}

TEST_P(AlwaysReadyWatch, DisarmedItIsNotCalled) {
  Watch first(file_.get()), second(file_.get()), third(null_.get());
  RunOn(*io_thread_, [&] {
    for (Watch* watch : {&first, &second, &third}) io_thread_->Arm(*watch);
    io_thread_->Disarm(second);
  });
  EXPECT_EQ(CountOf(first), 1);
  EXPECT_EQ(second.count, 0);
  EXPECT_EQ(third.count, 1);
  Arm(second);
  EXPECT_EQ(CountOf(second), 1);
}

TEST_P(AlwaysReadyWatch, DisarmedFromAnothersReadyItIsNotCalled) {
  Watch second(null_.get());
  Watch first(file_.get(), [&] { io_thread_->Disarm(second); });
  RunOn(*io_thread_, [&] {
    io_thread_->Arm(first);
    io_thread_->Arm(second);
  });
  EXPECT_EQ(CountOf(first), 1);
  EXPECT_EQ(second.count, 0);
}

TEST_P(AlwaysReadyWatch, ArmedAgainInReadyItGoesOnWithoutAnyoneWakingTheThread) {
  BoundedEvent last;
  Watch watch(file_.get(), [&] { watch.count < 100 ? io_thread_->Arm(watch) : last.Notify(); });
  Arm(watch);
  EXPECT_TRUE(last.Wait());
}

// Armed again in each Ready, as a reader of a large file does.
TEST_P(AlwaysReadyWatch, StarvesNeitherTheMailboxNorOtherWatches) {
  Watch file(file_.get(), [&] { io_thread_->Arm(file); });
  Watch null(null_.get(), [&] { io_thread_->Arm(null); });
  BoundedEvent event_came;
  Watch event(event_.fd(), [&] { event_came.Notify(); });
  Arm(file);
  Arm(null);
  Arm(event);
  EXPECT_GE(CountOf(file), 10);
  EXPECT_GE(CountOf(null), 10);
  event_.Signal();
  event_came.WaitOrAbort();
  Disarm(file);
  Disarm(null);
  Disarm(event);
  const int count = CountOf(file);
  EXPECT_EQ(CountOf(file), count);
}

// A copy between two such descriptors: each Ready arms the other watch.
TEST_P(AlwaysReadyWatch, TwoThatArmEachOtherLeaveTurnsToTheMailbox) {
  Watch* next = nullptr;
  Watch file(file_.get(), [&] { io_thread_->Arm(*next); });
  Watch null(null_.get(), [&] { io_thread_->Arm(file); });
  next = &null;
  Arm(file);
  EXPECT_GE(CountOf(file), 5);
  EXPECT_GE(CountOf(null), 5);
  RunOn(*io_thread_, [&] {  // at once: either would arm the other again
    io_thread_->Disarm(file);
    io_thread_->Disarm(null);
  });
}

}  // namespace
}  // namespace ringside
