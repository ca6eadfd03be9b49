// A statistic: written by one thread, read by any. Relaxed, since no other data hangs on it; no
// locked instruction, since there is one writer.
#pragma once

#include <atomic>
#include <cstdint>

namespace ringside {

class Counter {
 public:
  void Add(uint64_t amount = 1) {
    value_.store(value_.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }
  void Subtract(uint64_t amount = 1) { Add(-amount); }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }
  uint64_t Get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

}  // namespace ringside
