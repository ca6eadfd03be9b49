// Means to make races between two threads happen.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <pthread.h>
#include <random>
#include <sched.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/support/poll/run_on.h"

// TSan slows a race down without seeing more of it by repetition.
#if defined(__SANITIZE_THREAD__)
#define RINGSIDE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RINGSIDE_TSAN 1
#elif __has_feature(address_sanitizer)
#define RINGSIDE_ASAN 1
#endif
#endif

namespace ringside::testing {

#ifdef RINGSIDE_TSAN
inline constexpr int kRaces = 5'000;
#else
inline constexpr int kRaces = 50'000;
#endif

// Of the rounds of a race. Where each waits for a processor that others use, fewer have to do.
class RaceLimit {
 public:
  bool IsOver() const { return MonotonicNs() > end_ns_; }

 private:
  const int64_t end_ns_ = MonotonicNs() + 20'000'000'000;
};

// Keeps this thread and another one on processors of their own, where there are two: on one they
// take turns, and no access races with another.
class OnTwoProcessors {
 public:
  explicit OnTwoProcessors(IoThread& io_thread) {
    pthread_t other{};
    RunOn(io_thread, [&] { other = pthread_self(); });
    KeepApart(other);
  }
  explicit OnTwoProcessors(std::thread& other) { KeepApart(other.native_handle()); }
  explicit OnTwoProcessors(pthread_t other) { KeepApart(other); }
  ~OnTwoProcessors() { sched_setaffinity(0, sizeof allowed_, &allowed_); }

 private:
  void KeepApart(pthread_t other) {
    sched_getaffinity(0, sizeof allowed_, &allowed_);
    std::vector<int> processors;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &allowed_)) processors.push_back(i);
    }
    Keep(pthread_self(), processors.front());
    Keep(other, processors.back());
  }
  static void Keep(pthread_t thread, int processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    pthread_setaffinity_np(thread, sizeof set, &set);
  }
  cpu_set_t allowed_;
};

// Passes time in steps of about a nanosecond.
inline void Delay(int steps) {
  for (int i = 0; i < steps; ++i) asm volatile("" : : : "memory");
}

// How long a thread waits so as to meet the other one at the moment that matters, whatever the
// machine: less each time it came too late, a little more each time it came too early. It learns at
// once what to make of a moment in which the other one did not run.
class Aim {
 public:
  // `scale`: how many times longer than the hand-over of a cache line the moment takes to come.
  explicit Aim(int scale = 1) : scale_(scale) {}
  void Wait() { Delay(scale_ * (at_ + static_cast<int>(random_() % kSpread))); }
  void Learn(bool late) {
    at_ = late ? at_ - at_ / 8 - (at_ > 0 ? 1 : 0) : std::min(at_ + kStep, kMost);
  }

 private:
  static constexpr int kMost = 10'000;
  static constexpr int kStep = 8;
  static constexpr unsigned kSpread = 64;
  const int scale_;
  int at_ = 0;
  std::minstd_rand random_{1};
};

// Stores of one thread to lines that the other one owns wait their turn in its store buffer, and
// what it stores next waits behind them, while its loads run ahead. That makes a store that a later
// load must not overtake visibly late, unless the code under test has the barrier it needs.
class SlowStores {
 public:
  void Queue() { StoreAll(); }      // the thread under test
  void TakeLines() { StoreAll(); }  // the other one, before

 private:
  void StoreAll() {
    for (Line& line : lines_) line.value.store(1, std::memory_order_relaxed);
  }
  struct alignas(64) Line {
    std::atomic<int> value{0};
  };
  std::array<Line, 24> lines_;
};

}  // namespace ringside::testing
