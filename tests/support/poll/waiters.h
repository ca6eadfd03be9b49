// Tests that run with each way an I/O thread can sleep. Where io_uring is forbidden its half is
// skipped, and says why.
#pragma once

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>

#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"

namespace ringside::testing {

// OK where io_uring can be had.
inline absl::Status UringStatus() {
  return Uring::Create().status();
}

class WaiterTest : public ::testing::TestWithParam<IoThread::Waiter> {
 protected:
  void SetUp() override {
    if (GetParam() != IoThread::Waiter::kUring) return;
    if (const absl::Status status = UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  }

  static std::unique_ptr<IoThread> StartIoThread(const char* name = "test") {
    absl::StatusOr<std::unique_ptr<IoThread>> io_thread = IoThread::Start(name, GetParam());
    if (!io_thread.ok()) std::abort();
    return *std::move(io_thread);
  }
};

inline std::string WaiterName(IoThread::Waiter waiter) {
  switch (waiter) {
    case IoThread::Waiter::kEpoll:
      return "Epoll";
    case IoThread::Waiter::kUring:
      return "Uring";
    case IoThread::Waiter::kUringWithCommands:
      return "UringWithCommands";
  }
  return "";
}
inline std::string WaiterParamName(const ::testing::TestParamInfo<IoThread::Waiter>& waiter) {
  return WaiterName(waiter.param);
}

// INSTANTIATE_TEST_SUITE_P with both waiters.
#define RINGSIDE_WITH_BOTH_WAITERS(suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(With, suite,                                                           \
                           ::testing::Values(IoThread::Waiter::kEpoll, IoThread::Waiter::kUring), \
                           ::ringside::testing::WaiterParamName)

// Looks from outside at whether an I/O thread sleeps.
class SleepObserver {
 public:
  explicit SleepObserver(IoThread& io_thread) {
    RunOn(io_thread, [&] { path_ = "/proc/self/task/" + std::to_string(gettid()) + "/stat"; });
  }
  // A wake-up shows here before the write that caused it returns.
  bool Sleeps() const {
    std::ifstream stat(path_);
    std::string pid, name, state;
    stat >> pid >> name >> state;
    return state == "S";
  }
  bool WaitUntilItSleeps() const {
    return SpinUntil([&] { return Sleeps(); });
  }

 private:
  std::string path_;
};

}  // namespace ringside::testing
