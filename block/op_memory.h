// Memory that operations of one channel take and give back: nothing is allocated once there is
// enough for what is in flight.
//
// Threads: the channel's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <sys/uio.h>
#include <vector>

namespace ringside {

// Objects of one type, in slabs that stay. T has a member `T* next_free`.
template <typename T>
class SlabPool {
 public:
  // Construct(T&) is called once an object, when its slab is made.
  template <typename Construct>
  T& Take(Construct construct) {
    if (free_ == nullptr) Grow(construct);
    T& object = *free_;
    free_ = object.next_free;
    return object;
  }
  T& Take() {
    return Take([](T&) {});
  }

  void Give(T& object) {
    object.next_free = free_;
    free_ = &object;
  }

 private:
  static constexpr size_t kSlab = 32;

  template <typename Construct>
  void Grow(Construct construct) {
    slabs_.push_back(std::make_unique<std::array<T, kSlab>>());
    for (T& object : *slabs_.back()) {
      construct(object);
      Give(object);
    }
  }

  std::vector<std::unique_ptr<std::array<T, kSlab>>> slabs_;
  T* free_ = nullptr;
};

// The iovecs of a transfer with many segments; one with more than these goes in several steps.
struct VectorBlock {
  static constexpr size_t kVectors = 256;
  std::array<iovec, kVectors> vectors;
  VectorBlock* next_free = nullptr;
};

// Aligned buffers for transfers whose memory O_DIRECT refuses: at most kBuffers, larger transfers
// go through one in pieces, so a guest cannot make the host spend more than 16 MiB a channel.
class BouncePool {
 public:
  static constexpr size_t kBufferSize = size_t{256} << 10;
  static constexpr size_t kBuffers = 64;
  static constexpr size_t kAlignment = 4096;

  BouncePool() { free_.reserve(kBuffers); }
  ~BouncePool() {
    for (std::byte* buffer : free_) std::free(buffer);
  }
  BouncePool(const BouncePool&) = delete;
  BouncePool& operator=(const BouncePool&) = delete;

  // Null when all are in use, or memory is short: another time.
  std::byte* Take() {
    if (!free_.empty()) {
      std::byte* buffer = free_.back();
      free_.pop_back();
      return buffer;
    }
    if (made_ == kBuffers) return nullptr;
    auto* buffer = static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBufferSize));
    if (buffer != nullptr) ++made_;
    return buffer;
  }
  void Give(std::byte* buffer) { free_.push_back(buffer); }
  // Whether somebody will give one back.
  bool any_taken() const { return free_.size() < made_; }

 private:
  std::vector<std::byte*> free_;
  size_t made_ = 0;
};

struct OpMemory {
  SlabPool<VectorBlock> vectors;
  BouncePool bounce;
};

}  // namespace ringside
