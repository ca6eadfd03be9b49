#include "base/thread.h"

#include <csignal>
#include <gtest/gtest.h>
#include <pthread.h>
#include <set>

namespace ringside {
namespace {

constexpr int kFaults[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};

std::set<int> BlockedSignals() {
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::set<int> blocked;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (sigismember(&mask, signal) == 1) blocked.insert(signal);
  }
  return blocked;
}

std::set<int> BlockedInStartedThread() {
  std::set<int> blocked;
  absl::StatusOr<std::thread> thread = StartThread("masked", [&] { blocked = BlockedSignals(); });
  if (!thread.ok()) return {};
  thread->join();
  return blocked;
}

TEST(StartThread, LeavesTheEmbeddersSignalsToTheEmbeddersThreads) {
  const std::set<int> blocked = BlockedInStartedThread();
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGCHLD, SIGALRM, SIGUSR1,
                           SIGUSR2, SIGWINCH, SIGTSTP, SIGXFSZ, SIGRTMIN, SIGRTMAX}) {
    EXPECT_TRUE(blocked.contains(signal)) << strsignal(signal);
  }
}

TEST(StartThread, LetsTheThreadsOwnFaultsThrough) {
  const std::set<int> blocked = BlockedInStartedThread();
  ASSERT_FALSE(blocked.empty());
  for (const int signal : kFaults) EXPECT_FALSE(blocked.contains(signal)) << strsignal(signal);
}

TEST(StartThread, KeepsTheCallersOwnMask) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR2);
  sigset_t original;
  pthread_sigmask(SIG_BLOCK, &one, &original);
  const std::set<int> before = BlockedSignals();
  BlockedInStartedThread();
  EXPECT_EQ(BlockedSignals(), before);
  EXPECT_TRUE(before.contains(SIGUSR2));
  pthread_sigmask(SIG_SETMASK, &original, nullptr);
  BlockedInStartedThread();
  EXPECT_FALSE(BlockedSignals().contains(SIGUSR2));
}

TEST(StartThread, FaultsPassEvenWhereTheCallerBlocksThem) {
  sigset_t faults;
  sigemptyset(&faults);
  for (const int signal : kFaults) sigaddset(&faults, signal);
  sigset_t original;
  pthread_sigmask(SIG_BLOCK, &faults, &original);
  const std::set<int> blocked = BlockedInStartedThread();
  pthread_sigmask(SIG_SETMASK, &original, nullptr);
  EXPECT_TRUE(blocked.contains(SIGINT));
  for (const int signal : kFaults) EXPECT_FALSE(blocked.contains(signal)) << strsignal(signal);
}

std::string NameGivenFor(const std::string& name) {
  char text[16] = "";
  absl::StatusOr<std::thread> thread =
      StartThread(name, [&] { pthread_getname_np(pthread_self(), text, sizeof text); });
  if (!thread.ok()) return "not started";
  thread->join();
  return text;
}

TEST(StartThread, NamesTheThread) {
  EXPECT_EQ(NameGivenFor("vcpu0"), "vcpu0");
}

TEST(StartThread, CutsLongNamesToWhatLinuxShows) {
  EXPECT_EQ(NameGivenFor("exactly-15-char"), "exactly-15-char");
  EXPECT_EQ(NameGivenFor("a-name-longer-than-that"), "a-name-longer-t");
}

}  // namespace
}  // namespace ringside
