// The writes that a power cut may undo, with what they have overwritten: what a drive has in its
// volatile cache. It holds 32 MiB. When these are full the oldest writes become durable, as a drive
// writes out of its own accord; a write that finds no room goes around it, and so do discards and
// zeroes, which make all that is in it durable.
//
// Threads: the user locks. Nothing is allocated in the steady state.
// Spec: VIRTIO 1.2 section 5.2.6.2: a flush covers the writes that were completed before it was
// submitted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "block/fifo.h"
#include "block/op_memory.h"

namespace ringside {

// Bytes that are to be written back, in sectors that follow each other.
struct LostRange {
  uint64_t offset;
  std::vector<std::byte*> sectors;
};

struct CutReport {
  std::vector<LostRange> lost;
  uint64_t kept_writes = 0, lost_writes = 0, torn_writes = 0;
};

class UnflushedWrites {
 public:
  static constexpr size_t kMostBytes = size_t{32} << 20;

  struct Write {
    uint64_t offset = 0;
    uint64_t length = 0;
    std::byte* before = nullptr;  // what it overwrites, to be filled in before it is begun
    uint64_t done_at = 0;         // 0: it is under way
    bool durable = false;
    Write* next = nullptr;
    Write* next_free = nullptr;
  };

  // `sector`: what is never torn, a multiple of 512.
  explicit UnflushedWrites(uint32_t sector);

  // Before it is begun; null: it goes around. Whoever gets one calls Done once.
  Write* Add(uint64_t offset, uint64_t length);
  // durable: it is on the disk whatever happens, or is not to be touched by a cut.
  void Done(Write& write, bool durable);
  // A moment: a flush that is submitted now covers all that is done by now.
  uint64_t now() const { return now_; }
  void Flushed(uint64_t submitted_at);
  // All that is done.
  void FlushedByItself() { Flushed(now_); }

  // What a power cut at this moment undoes: each write stays, goes or is torn, as drawn from
  // `random`. Nothing is under way.
  CutReport Cut(uint64_t random);
  size_t held_bytes() const { return held_; }

 private:
  std::byte* Room(size_t length);
  bool DropOldest();

  const uint32_t sector_;
  const std::unique_ptr<std::byte[]> memory_;  // used as a ring, in the order of `writes_`
  SlabPool<Write> pool_;
  Fifo<Write> writes_;
  size_t end_ = 0;  // of the newest one's bytes in memory
  size_t held_ = 0;
  uint64_t now_ = 0;
};

}  // namespace ringside
