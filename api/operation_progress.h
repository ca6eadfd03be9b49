// How far the work of a call has come, for those who ask while it runs.
//
// Threads: one reports, any look.
#pragma once

#include <atomic>
#include <cstdint>

namespace ringside {

class OperationProgress {
 public:
  // Bytes. An `of` of 0, as at first: nothing is known.
  void Report(uint64_t done, uint64_t of) {
    of_.store(of, std::memory_order_relaxed);
    done_.store(done, std::memory_order_relaxed);
  }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  uint64_t of() const { return of_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> done_{0}, of_{0};
};

}  // namespace ringside
