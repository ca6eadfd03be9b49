// Sources that come and go, and hooks, from wherever a turn may call.
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/test_source.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using testing::LetTurn;
using testing::RunOn;
using testing::SpinUntil;
using testing::TestHook;
using testing::TestSource;
using testing::WaiterTest;

// Three sources of one phase, a, b and c, and x of the other one. Each logs its runs; `in_run` is
// what else a run does.
class SourceList : public WaiterTest {
 protected:
  void SetUp() override {
    WaiterTest::SetUp();
    if (IsSkipped()) return;
    io_thread_ = StartIoThread();
    RunOn(*io_thread_, [&] {
      for (const char name : std::string("abcx")) {
        Make(name);
        Attach(name);
      }
    });
  }
  void TearDown() override {
    if (io_thread_ == nullptr) return;
    RunOn(*io_thread_, [&] {
      for (const char name : std::string("abcx")) Remove(name);
    });
  }

  std::unique_ptr<TestSource>& Of(char name) { return sources_[name == 'x' ? 3 : name - 'a']; }
  // All of the following on the I/O thread.
  void Make(char name) {
    Of(name) = std::make_unique<TestSource>(wakes_[name == 'x' ? 3 : name - 'a'], [this, name] {
      order_ += name;
      in_run_(name);
    });
  }
  void Attach(char name) {
    ASSERT_TRUE(io_thread_->Attach(*Of(name), name == 'x' ? Phase::kTake : Phase::kComplete).ok());
  }
  void Detach(char name) { io_thread_->Detach(*Of(name)); }
  // As a reset or the removal of a device does.
  void Remove(char name) {
    if (Of(name) == nullptr) return;
    Detach(name);
    Of(name).reset();
  }

  // Gives each source that is there `work`, runs it and returns who ran.
  std::string Runs(std::function<void(char)> in_run, int work = 1) {
    RunOn(*io_thread_, [&] {
      in_run_ = std::move(in_run);
      order_.clear();
    });
    // At the end of a turn, so that the next one has everything from its beginning.
    TestHook start([&] {
      for (auto& source : sources_) {
        if (source != nullptr) source->work = work;
      }
    });
    RunOn(*io_thread_, [&] { io_thread_->AtHandOver(start); });
    LetTurn(*io_thread_);
    std::string order;
    RunOn(*io_thread_, [&] {
      order = order_;
      in_run_ = [](char) {};
    });
    return order;
  }
  // Whether a kick from outside reaches it.
  bool Wakes(char name) {
    std::atomic<int>& work = Of(name)->work;
    work = 1;
    wakes_[name == 'x' ? 3 : name - 'a'].Signal();
    const bool ran = SpinUntil([&] { return work.load() <= 0; });
    RunOn(*io_thread_, [] {});  // the run is over
    return ran;
  }

  std::unique_ptr<IoThread> io_thread_;
  EventFd wakes_[4] = {*EventFd::Create(), *EventFd::Create(), *EventFd::Create(),
                       *EventFd::Create()};
  std::unique_ptr<TestSource> sources_[4];
  std::function<void(char)> in_run_ = [](char) {};
  std::string order_;
};
RINGSIDE_WITH_BOTH_WAITERS(SourceList);

TEST_P(SourceList, RunsInTheOrderOfAttachmentCompletionsFirst) {
  EXPECT_EQ(Runs([](char) {}), "abcx");
}

TEST_P(SourceList, ASourceMayRemoveItselfFromItsRun) {
  for (const char name : std::string("bacx")) {
    std::string expected = Runs([](char) {});
    EXPECT_EQ(Runs([&](char running) {
                if (running == name) Remove(name);
              }),
              expected);
    std::erase(expected, name);
    EXPECT_EQ(Runs([](char) {}), expected);
  }
}

TEST_P(SourceList, ASourceMayRemoveTheNextOne) {
  EXPECT_EQ(Runs([&](char running) {
              if (running == 'a') Remove('b');
            }),
            "acx");
  EXPECT_EQ(Runs([&](char running) {
              if (running == 'a') Remove('c');
            }),
            "ax");
  EXPECT_TRUE(Wakes('a'));
}

TEST_P(SourceList, ASourceMayRemoveAnEarlierOne) {
  EXPECT_EQ(Runs([&](char running) {
              if (running == 'c') Remove('a');
            }),
            "abcx");
  EXPECT_EQ(Runs([](char) {}), "bcx");
}

TEST_P(SourceList, ASourceMayRemoveOneOfTheOtherPhase) {
  EXPECT_EQ(Runs([&](char running) {
              if (running == 'b') Remove('x');
            }),
            "abc");
}

TEST_P(SourceList, ASourceMayRemoveAllThereAre) {
  EXPECT_EQ(Runs([&](char running) {
              if (running != 'b') return;
              for (const char name : std::string("cbax")) Remove(name);
            }),
            "ab");
  EXPECT_EQ(Runs([](char) {}), "");
}

TEST_P(SourceList, ASourceMayRemoveItselfAndTheNextOne) {
  EXPECT_EQ(Runs([&](char running) {
              if (running != 'a') return;
              Remove('b');
              Remove('a');
            }),
            "acx");
}

TEST_P(SourceList, DetachedFromATaskItIsSilent) {
  for (const char name : std::string("bacx")) {
    std::string expected = Runs([](char) {});
    RunOn(*io_thread_, [&] {
      Detach(name);
      Detach(name);  // harmless
    });
    std::erase(expected, name);
    EXPECT_EQ(Runs([](char) {}), expected);
  }
}

TEST_P(SourceList, AttachedAgainItRunsLastAndWakesTheThread) {
  RunOn(*io_thread_, [&] {
    Detach('a');
    Attach('a');
  });
  EXPECT_EQ(Runs([](char) {}), "bcax");
  for (int i = 0; i < 100; ++i) {
    RunOn(*io_thread_, [&] { Detach('b'); });
    if (i % 2 == 0) LetTurn(*io_thread_, 3);
    RunOn(*io_thread_, [&] { Attach('b'); });
    ASSERT_TRUE(Wakes('b')) << "round " << i;
    ASSERT_TRUE(Wakes('a')) << "round " << i;
  }
}

// As a device does when its driver sets the queue up once more: notifications are on again,
// whatever they were before.
TEST_P(SourceList, AttachedAgainItsNotificationsAreOnAtFirst) {
  RunOn(*io_thread_, [&] {
    in_run_ = [&](char) {
      Detach('a');
      Attach('a');
      Of('a')->journal.clear();
    };
    Of('a')->work = 1;
  });
  LetTurn(*io_thread_);
  RunOn(*io_thread_, [&] {
    in_run_ = [](char) {};
    EXPECT_EQ(Of('a')->Count('E'), 0) << Of('a')->journal;
  });
}

TEST_P(SourceList, FromItsRunASourceMayMoveToTheEnd) {
  for (const char name : std::string("bca")) {
    Runs([&](char running) {
      if (running != name) return;
      Detach(name);
      Attach(name);
    });
    EXPECT_TRUE(Wakes(name));
  }
  EXPECT_EQ(Runs([](char) {}), "bcax");
}

TEST_P(SourceList, AttachedFromAnothersRunItsWorkIsDoneWithoutAKick) {
  RunOn(*io_thread_, [&] { Remove('c'); });
  const std::string order = Runs([&](char running) {
    if (running != 'b') return;
    Make('c');
    Of('c')->work = 1;
    Attach('c');
  });
  EXPECT_EQ(std::ranges::count(order, 'c'), 1);
  EXPECT_TRUE(Wakes('c'));
}

TEST_P(SourceList, ANewSourceOnTheSameDescriptorNumberHearsItsOwnEventfd) {
  for (int i = 0; i < 200; ++i) {
    RunOn(*io_thread_, [&] {
      Remove('b');
      const int number = wakes_[1].fd();
      wakes_[1] = *EventFd::Create();
      EventFd same_number = *EventFd::Create();
      if (same_number.fd() == number) std::swap(wakes_[1], same_number);
      Make('b');
      Attach('b');
    });
    ASSERT_TRUE(Wakes('b')) << "round " << i;
  }
}

class IoThreadHook : public WaiterTest {
 protected:
  void SetUp() override {
    WaiterTest::SetUp();
    if (!IsSkipped()) io_thread_ = StartIoThread();
  }
  std::unique_ptr<IoThread> io_thread_;
};
RINGSIDE_WITH_BOTH_WAITERS(IoThreadHook);

TEST_P(IoThreadHook, AskedForManyTimesInATurnItRunsOnce) {
  int published = 0, submitted = 0;
  TestHook publish([&] { ++published; });
  TestHook submit([&] { ++submitted; });
  for (int round = 1; round <= 10; ++round) {
    RunOn(*io_thread_, [&] {
      for (int i = 0; i < 100; ++i) {
        io_thread_->AtPublish(publish);
        io_thread_->AtHandOver(submit);
      }
    });
    LetTurn(*io_thread_, 3);
    EXPECT_EQ(published, round);
    EXPECT_EQ(submitted, round);
  }
}

TEST_P(IoThreadHook, HooksRunInTheOrderTheyWereAskedFor) {
  std::string order;
  TestHook a([&] { order += 'a'; }), b([&] { order += 'b'; }), c([&] { order += 'c'; });
  RunOn(*io_thread_, [&] {
    for (TestHook* hook : {&b, &c, &b, &a}) io_thread_->AtPublish(*hook);
  });
  RunOn(*io_thread_, [] {});
  EXPECT_EQ(order, "bca");
}

TEST_P(IoThreadHook, BeforeHandOverIsBeforeAllThatWereAskedForEarlier) {
  std::string order;
  TestHook a([&] { order += 'a'; }), b([&] { order += 'b'; }), c([&] { order += 'c'; });
  for (const bool first : {false, true}) {
    RunOn(*io_thread_, [&] {
      if (!first) io_thread_->AtHandOver(a);
      for (int i = 0; i < 2; ++i) io_thread_->BeforeHandOver(b);
      io_thread_->AtHandOver(c);
      if (first) io_thread_->AtHandOver(a);
    });
    LetTurn(*io_thread_, 2);
    order += ' ';
  }
  EXPECT_EQ(order, "bac bca ");
}

TEST_P(IoThreadHook, FromItsRunItIsForTheNextTurnWhichComesByItself) {
  for (const bool publishes : {true, false}) {
    std::vector<uint64_t> turns;
    BoundedEvent done;
    std::unique_ptr<TestHook> hook;
    const auto ask = [&] {
      publishes ? io_thread_->AtPublish(*hook) : io_thread_->AtHandOver(*hook);
    };
    hook = std::make_unique<TestHook>([&] {
      turns.push_back(io_thread_->stats().turns.Get());
      turns.size() < 100 ? ask() : done.Notify();
    });
    RunOn(*io_thread_, ask);
    done.WaitOrAbort();
    for (size_t i = 1; i < turns.size(); ++i) EXPECT_EQ(turns[i], turns[i - 1] + 1);
  }
}

TEST_P(IoThreadHook, OneOfTheOtherKindComesByItselfToo) {
  std::string order;
  BoundedEvent done;
  std::unique_ptr<TestHook> publish, submit;
  publish = std::make_unique<TestHook>([&] {
    order += 'p';
    io_thread_->AtHandOver(*submit);  // of this turn
  });
  submit = std::make_unique<TestHook>([&] {
    order += 's';
    order.size() < 20 ? io_thread_->AtPublish(*publish) : done.Notify();
  });
  RunOn(*io_thread_, [&] { io_thread_->AtPublish(*publish); });
  done.WaitOrAbort();
  EXPECT_EQ(order,
            "psps"
            "psps"
            "psps"
            "psps"
            "psps");
}

TEST_P(IoThreadHook, OneThatIsAboutToRunIsNotQueuedTwice) {
  std::string order;
  std::unique_ptr<TestHook> a, b;
  a = std::make_unique<TestHook>([&] {
    order += 'a';
    io_thread_->AtPublish(*b);
  });
  b = std::make_unique<TestHook>([&] { order += 'b'; });
  RunOn(*io_thread_, [&] {
    io_thread_->AtPublish(*a);
    io_thread_->AtPublish(*b);
  });
  LetTurn(*io_thread_);
  EXPECT_EQ(order, "ab");
}

// Ready is called where the thread has just slept.
TEST_P(IoThreadHook, AskedForInReadyItRunsWithoutAnotherWakeUp) {
  class Watch final : public FdWatch {
   public:
    Watch(int fd, std::function<void()> ready) : FdWatch(fd, EPOLLIN), ready_(std::move(ready)) {}
    void Ready() override { ready_(); }

   private:
    const std::function<void()> ready_;
  };
  const EventFd event = *EventFd::Create();
  BoundedEvent published, submitted;
  TestHook publish([&] { published.Notify(); });
  TestHook submit([&] { submitted.Notify(); });
  Watch watch(event.fd(), [&] {
    io_thread_->AtPublish(publish);
    io_thread_->AtHandOver(submit);
  });
  RunOn(*io_thread_, [&] { io_thread_->Arm(watch); });
  event.Signal();
  published.WaitOrAbort();
  submitted.WaitOrAbort();
  RunOn(*io_thread_, [&] { io_thread_->Disarm(watch); });
}

}  // namespace
}  // namespace ringside
