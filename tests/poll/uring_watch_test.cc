// A ring's polls of eventfds.
#include <array>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "poll/uring.h"
#include "tests/support/descriptors.h"
#include "tests/support/poll/uring_ops.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using testing::DevNull;
using testing::Fired;
using testing::Pipe;
using testing::SpinUntil;
using testing::TestOp;
using testing::TurnUntil;
using testing::WaitForFd;
using testing::WriteEntry;

class UringWatch : public ::testing::TestWithParam<UringEntries> {
 protected:
  void SetUp() override {
    auto uring = Uring::Create(GetParam());
    if (!uring.ok()) GTEST_SKIP() << uring.status().message();
    uring_ = *std::move(uring);
  }
  void Watch(const EventFd& event, Fired* fired) {
    uring_->Watch(event.fd(), fired);
    uring_->Enter();
  }
  // Everything the kernel has to say is said after this.
  void Settle() {
    for (int i = 0; i < 5; ++i) {
      uring_->Enter();
      uring_->Reap();
    }
    ASSERT_TRUE(SpinUntil([&] {
      uring_->Enter();
      uring_->Reap();
      return !uring_->HasCompletions();
    }));
  }

  void ExpectFileGoneAfterUnwatch() {
    Pipe pipe;
    uring_->Watch(pipe.read_end.get());
    Settle();
    uring_->Unwatch(pipe.read_end.get());
    {
      const UniqueFd closed = std::move(pipe.read_end);
    }
    Settle();
    ASSERT_TRUE(WaitForFd(pipe.write_end.get(), POLLERR));
  }

  std::unique_ptr<Uring> uring_;
  EventFd event_ = *EventFd::Create();
  Fired fired_;
};

// The look before the sleep must see what the kernel has not yet made a completion of.
TEST_P(UringWatch, AWriteShowsInMemoryBeforeItReturns) {
  Watch(event_, &fired_);
  Settle();
  const uint64_t enters = uring_->enters();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(uring_->HasCompletions());
    event_.Signal();
    EXPECT_TRUE(uring_->HasCompletions());
    fired_.Clear();
    uring_->Reap();
    EXPECT_TRUE(fired_) << "write " << i;  // nobody reads, and yet each is seen
  }
  EXPECT_LE(uring_->enters() - enters, 100u);  // one a write
}

TEST_P(UringWatch, ManyWritesAreOneCompletion) {
  if (GetParam() == UringEntries::kWithCommands) return;  // each of this thread's writes is one
  Watch(event_, &fired_);
  Settle();
  const uint64_t enters = uring_->enters();
  for (int i = 0; i < 10'000; ++i) event_.Signal();
  EXPECT_EQ(uring_->enters(), enters);
  uring_->Reap();
  EXPECT_TRUE(fired_);
  EXPECT_FALSE(uring_->HasCompletions());
  EXPECT_EQ(uring_->enters(), enters + 1);
  EXPECT_EQ(event_.Clear(), 10'000u);
}

TEST_P(UringWatch, WhatWasWrittenBeforeTheWatchIsSeen) {
  event_.Signal();
  Watch(event_, &fired_);
  EXPECT_TRUE(TurnUntil(*uring_, [&] { return fired_; }));
}

TEST_P(UringWatch, AWatchIsArmedAndAWriteEndsTheSleep) {
  uring_->Watch(event_.fd(), &fired_);  // armed by what follows
  std::thread writer([&] { event_.Signal(); });
  ASSERT_TRUE(SpinUntil([&] {
    if (!fired_) uring_->Enter(Uring::kForever);
    uring_->Reap();
    return fired_;
  }));
  writer.join();
}

TEST_P(UringWatch, EachOfManyHasItsOwnFlag) {
  struct {
    EventFd event = *EventFd::Create();
    Fired fired;
  } watched[300];  // more than the submission ring holds
  for (auto& one : watched) uring_->Watch(one.event.fd(), &one.fired);
  Settle();
  for (auto& one : watched) {
    one.event.Signal();
    uring_->Reap();
    for (auto& other : watched) ASSERT_EQ(other.fired, &other == &one);
    one.fired.Clear();
  }
  for (auto& one : watched) one.event.Signal();  // more than the kernel takes at once
  Settle();
  for (auto& one : watched) EXPECT_TRUE(one.fired);
}

TEST_P(UringWatch, UnwatchedItsFlagIsLeftAloneAtOnce) {
  for (int submit_before = 0; submit_before < 2; ++submit_before) {
    fired_.Clear();
    Watch(event_, &fired_);
    Settle();
    event_.Signal();  // the completion waits already
    uring_->Unwatch(event_.fd());
    if (submit_before != 0) uring_->Enter();
    fired_.Clear();
    Settle();
    event_.Signal();
    EXPECT_FALSE(uring_->HasCompletions());
    EXPECT_FALSE(fired_);
    event_.Clear();
  }
  uring_->Unwatch(event_.fd());  // harmless
}

TEST_P(UringWatch, UnwatchedBeforeItWasArmedItNeverIs) {
  uring_->Watch(event_.fd(), &fired_);
  uring_->Unwatch(event_.fd());
  Settle();
  event_.Signal();
  EXPECT_FALSE(uring_->HasCompletions());
  EXPECT_FALSE(fired_);
}

// The old watch's last completions come when its place may have been given away, or its descriptor
// number.
TEST_P(UringWatch, WhatTheKernelStillSaysOfAnOldWatchIsNotTakenForANewOnes) {
  for (int round = 0; round < 3000; ++round) {
    Fired old_fired, new_fired;
    auto old_event = std::make_unique<EventFd>(*EventFd::Create());
    uring_->Watch(old_event->fd(), &old_fired);
    if (round % 2 == 0) uring_->Enter();
    if (round % 3 == 0) old_event->Signal();
    if (round % 5 == 0) uring_->Enter();
    old_fired.Clear();
    uring_->Unwatch(old_event->fd());
    if (round % 7 == 0) uring_->Enter();
    old_event.reset();
    const EventFd new_event = *EventFd::Create();
    uring_->Watch(new_event.fd(), &new_fired);
    Settle();
    ASSERT_FALSE(old_fired) << "round " << round;
    ASSERT_FALSE(new_fired) << "round " << round;
    new_event.Signal();
    // Not always at once.
    const auto fires = [&] {
      uring_->Reap();
      return bool{new_fired};
    };
    ASSERT_TRUE(SpinUntil(fires)) << "round " << round;
    uring_->Unwatch(new_event.fd());
  }
}

// The process's descriptor is not the file: what the ring keeps of it must go, too.
TEST_P(UringWatch, UnwatchedAndClosedTheFileIsGone) {
  for (int i = 0; i < 10; ++i) ExpectFileGoneAfterUnwatch();
}

// The watch that stays is an I/O thread's own, which is as old as the ring. Before Linux 6.13 a
// watch of a registered file would keep all later ones.
TEST_P(UringWatch, ClosedFilesAreGoneAlthoughAnOlderWatchStays) {
  Watch(event_, &fired_);
  Settle();
  for (int i = 0; i < 10; ++i) ASSERT_NO_FATAL_FAILURE(ExpectFileGoneAfterUnwatch());
  for (int i = 0; i < 10; ++i) {
    Pipe pipe;
    uring_->UnregisterFile(*uring_->RegisterFile(pipe.read_end.get()));
    {
      const UniqueFd closed = std::move(pipe.read_end);
    }
    Settle();
    ASSERT_TRUE(WaitForFd(pipe.write_end.get(), POLLERR));
  }
}

// Of an eventfd that is written whether anybody sleeps or not, as Linux AIO's is.
TEST_P(UringWatch, UnwantedWritesCostNothing) {
  uring_->Watch(event_.fd(), &fired_, Watching::kWhileWanted);
  Settle();
  uring_->Want(event_.fd(), false);
  event_.Signal();  // the poll of before
  Settle();
  const uint64_t enters = uring_->enters();
  for (int i = 0; i < 100; ++i) {
    event_.Signal();
    uring_->Enter();
    EXPECT_FALSE(uring_->HasCompletions());
  }
  EXPECT_EQ(uring_->enters(), enters);
}

TEST_P(UringWatch, WantedAgainNewWritesAreSeenAndOldOnesAreNot) {
  uring_->Watch(event_.fd(), &fired_, Watching::kWhileWanted);
  for (int round = 0; round < 10; ++round) {
    uring_->Want(event_.fd(), false);
    event_.Signal();
    Settle();
    event_.Signal();
    fired_.Clear();
    uring_->Want(event_.fd(), true);
    uring_->WantNow();
    Settle();
    EXPECT_FALSE(fired_);
    for (int i = 0; i < 3; ++i) {  // as long as it is wanted
      uring_->WantNow();
      event_.Signal();
      Settle();
      EXPECT_TRUE(fired_) << "write " << i;
      fired_.Clear();
    }
  }
}

TEST_P(UringWatch, AWriteBetweenTheWishAndTheSleepEndsTheSleep) {
  uring_->Watch(event_.fd(), &fired_, Watching::kWhileWanted);
  for (int round = 0; round < 10; ++round) {
    uring_->Want(event_.fd(), false);
    event_.Signal();
    Settle();
    fired_.Clear();
    uring_->Want(event_.fd(), true);
    event_.Signal();
    constexpr int64_t kLongNs = 5'000'000'000;
    const int64_t start_ns = MonotonicNs();
    for (int i = 0; i < 2 && !fired_; ++i) {
      uring_->Enter(kLongNs);
      uring_->Reap();
    }
    EXPECT_TRUE(fired_);
    EXPECT_LT(MonotonicNs() - start_ns, kLongNs);
  }
}

TEST_P(UringWatch, AWishIsPassedOnByACallThatSleepsOrAtOnceIfAsked) {
  uring_->Watch(event_.fd(), &fired_, Watching::kWhileWanted);
  Settle();
  uring_->Want(event_.fd(), false);
  event_.Signal();
  Settle();
  fired_.Clear();
  uring_->Want(event_.fd(), true);
  const uint64_t enters = uring_->enters();
  uring_->Enter();
  EXPECT_EQ(uring_->enters(), enters);
  event_.Signal();
  EXPECT_FALSE(uring_->HasCompletions());
  uring_->WantNow();
  uring_->Enter();
  EXPECT_TRUE(TurnUntil(*uring_, [&] { return fired_; }));
}

TEST_P(UringWatch, AWishThatIsTakenBackBeforeItIsPassedOnCostsNothing) {
  uring_->Watch(event_.fd(), &fired_, Watching::kWhileWanted);
  uring_->Want(event_.fd(), false);
  uring_->Enter();
  EXPECT_EQ(uring_->enters(), 0u);
  event_.Signal();
  EXPECT_FALSE(uring_->HasCompletions());
  uring_->Want(event_.fd(), true);
  uring_->Unwatch(event_.fd());
  event_.Signal();
  Settle();
  EXPECT_FALSE(fired_);
}

// The kernel ends a multishot poll that finds no room for its completion. Unless it is armed again
// the next write wakes nobody.
TEST_P(UringWatch, APollThatTheKernelEndsIsArmedAgain) {
  const UniqueFd null = DevNull();
  const int file = *uring_->RegisterFile(null.get());
  Watch(event_, &fired_);
  Settle();
  for (int round = 0; round < 3; ++round) {
    std::vector<TestOp> ops(6000);  // the completion ring holds 4096
    for (TestOp& op : ops) ASSERT_TRUE(uring_->Push(WriteEntry(file, "x", 1), op));
    uring_->Enter();
    event_.Signal();
    // A submission runs what the kernel has deferred, while there is no room.
    TestOp last;
    ASSERT_TRUE(uring_->Push(WriteEntry(file, "x", 1), last));
    uring_->Enter();
    fired_.Clear();
    ASSERT_TRUE(TurnUntil(*uring_, [&] { return last.done() && !uring_->HasCompletions(); }));
    EXPECT_TRUE(fired_);
    Settle();
    event_.Clear();
    Settle();
    fired_.Clear();
    event_.Signal();
    EXPECT_TRUE(uring_->HasCompletions());
    uring_->Reap();
    EXPECT_TRUE(fired_);
  }
}

// The same, with the watch taken away while it is ended.
TEST_P(UringWatch, APollThatTheKernelEndsWhileItIsUnwatchedGivesItsPlaceBack) {
  const UniqueFd null = DevNull();
  const int file = *uring_->RegisterFile(null.get());
  for (int round = 0; round < 3; ++round) {
    Watch(event_, &fired_);
    Settle();
    std::vector<TestOp> ops(6000);
    for (TestOp& op : ops) ASSERT_TRUE(uring_->Push(WriteEntry(file, "x", 1), op));
    uring_->Enter();
    event_.Signal();
    uring_->Unwatch(event_.fd());
    uring_->Enter();
    fired_.Clear();
    Settle();
    ASSERT_TRUE(ops.back().done());
    EXPECT_FALSE(fired_);
    event_.Signal();
    EXPECT_FALSE(uring_->HasCompletions());
    event_.Clear();
  }
}

INSTANTIATE_TEST_SUITE_P(With, UringWatch,
                         ::testing::Values(UringEntries::kUsual, UringEntries::kWithCommands),
                         [](const auto& entries) {
                           return entries.param == UringEntries::kUsual ? "Usual" : "WithCommands";
                         });

}  // namespace
}  // namespace ringside
