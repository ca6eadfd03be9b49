// The size of a disk, which may become larger while requests are checked against it.
//
// Threads: one at a time sets it, any reads it. Relaxed: no other data hangs on it. Who is told of
// a size is told after all have been set that requests up to it meet, and to have seen an older one
// makes an error of a request beyond that.
// Units: bytes.
#pragma once

#include <atomic>
#include <cstdint>

namespace ringside {

class GrowingSize {
 public:
  // A size is a number. NOLINTBEGIN(google-explicit-constructor)
  GrowingSize(uint64_t bytes) : bytes_(bytes) {}
  operator uint64_t() const { return bytes_.load(std::memory_order_relaxed); }
  // NOLINTEND(google-explicit-constructor)
  // What it is at the moment.
  GrowingSize(const GrowingSize& other) : GrowingSize(uint64_t{other}) {}
  GrowingSize& operator=(const GrowingSize& other) {
    if (this != &other) Set(other);
    return *this;
  }
  ~GrowingSize() = default;

  void Set(uint64_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> bytes_;
};

}  // namespace ringside
