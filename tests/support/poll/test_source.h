// A source whose work a test makes up.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>

#include "base/fd.h"
#include "poll/io_thread.h"

namespace ringside::testing {

class TestSource final : public Source {
 public:
  explicit TestSource(
      const EventFd& wake, std::function<void()> run = [] {})
      : Source(wake.fd()), run_(std::move(run)) {}

  bool HasWork() override {
    journal += work.load(std::memory_order_acquire) > 0 ? 'W' : '.';
    return journal.back() == 'W';
  }
  void Run() override {
    journal += 'R';
    work.fetch_sub(1, std::memory_order_relaxed);
    ++runs;
    const std::function<void()> run = run_;  // may destroy this
    run();
  }
  void EnableNotify() override {
    journal += 'E';
    enabling();
  }
  void DisableNotify() override { journal += 'D'; }

  int64_t Count(char call) const { return std::ranges::count(journal, call); }

  // As many runs as this are left to do. Any thread; who adds from outside signals the eventfd.
  std::atomic<int> work{0};
  // The I/O thread's: its calls, in order: W or . (HasWork: yes or no), R, E, D.
  std::string journal;
  int runs = 0;
  std::function<void()> enabling = [] {};

 private:
  const std::function<void()> run_;
};

// A hook from a callable.
class TestHook final : public Hook {
 public:
  explicit TestHook(std::function<void()> run) : run_(std::move(run)) {}
  void Run() override { run_(); }

 private:
  const std::function<void()> run_;
};

}  // namespace ringside::testing
