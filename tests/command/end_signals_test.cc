// Signals as reads of a descriptor, sent to the test's own process.
#include "command/end_signals.h"

#include <array>
#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

#include "tests/support/wait.h"

namespace ringside {
namespace {

// None is ignored, however the tests are run.
class EndSignalsTest : public ::testing::Test {
 protected:
  EndSignalsTest() {
    for (size_t i = 0; i < kSignals.size(); ++i) before_[i] = std::signal(kSignals[i], SIG_DFL);
  }
  ~EndSignalsTest() override {
    for (size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], before_[i]);
  }

  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};

 private:
  std::array<sighandler_t, kSignals.size()> before_;
};

bool IsBlocked(int signal) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, signal) == 1;
}

// KVM names what it shows of a machine after the thread that creates it: that has to be the main
// one.
TEST_F(EndSignalsTest, WorkIsDoneOnTheCallersThreadAndSignalsArriveMeanwhile) {
  const EndSignals signals;
  std::thread::id worker, listener;
  std::vector<int> arrived;
  testing::BoundedEvent first, second;
  signals.Attend(
      [&] {
        worker = std::this_thread::get_id();
        kill(getpid(), SIGTERM);
        EXPECT_TRUE(first.Wait());
        kill(getpid(), SIGHUP);
        EXPECT_TRUE(second.Wait());
      },
      [&](int signal) {
        listener = std::this_thread::get_id();
        arrived.push_back(signal);
        arrived.size() == 1 ? first.Notify() : second.Notify();
      });
  signals.Release();
  EXPECT_EQ(worker, std::this_thread::get_id());
  EXPECT_NE(listener, std::this_thread::get_id());
  EXPECT_EQ(arrived, std::vector<int>({SIGTERM, SIGHUP}));
}

// A client of the control socket may have used them all up.
TEST_F(EndSignalsTest, WithoutADescriptorTheWorkIsDoneAllTheSame) {
  const EndSignals signals;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  bool is_done = false, was_blocked = true;
  signals.Attend(
      [&] {
        is_done = true;
        was_blocked = IsBlocked(SIGTERM);
      },
      [](int /*signal*/) {});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(is_done);
  EXPECT_FALSE(was_blocked) << "nobody would take it";
  EXPECT_TRUE(IsBlocked(SIGTERM));
  signals.Release();
}

// As nohup and a shell's `trap '' INT` have it. A blocked signal would be kept although it is
// ignored, and read.
TEST_F(EndSignalsTest, ThoseThatAreIgnoredStayIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  const EndSignals signals;
  EXPECT_FALSE(IsBlocked(SIGHUP));
  EXPECT_TRUE(IsBlocked(SIGTERM));
  kill(getpid(), SIGHUP);
  EXPECT_EQ(signals.Take(), 0);
  signals.Release();
}

TEST_F(EndSignalsTest, OnceReleasedTheyDoWhatTheyDidBefore) {
  const EndSignals signals;
  for (const int signal : kSignals) {
    EXPECT_TRUE(IsBlocked(signal)) << signal;
  }
  signals.Release();
  for (const int signal : kSignals) {
    EXPECT_FALSE(IsBlocked(signal)) << signal;
  }
}

}  // namespace
}  // namespace ringside
