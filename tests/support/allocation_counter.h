// Counts and marks what operator new gives out. Linking allocation_counter.cc replaces the global
// operators of the whole program.
//
// Under ThreadSanitizer, which insists on its own, nothing is counted or marked.
//
// Threads: counts calls of the thread that asks; counts bytes and marks blocks of all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ringside::testing {

bool CanCountAllocations();
// Calls of operator new on this thread so far.
uint64_t AllocationsOfThisThread();
// What operator new has given out, to all threads, and not got back.
int64_t LiveBytes();

// While it lives, large blocks are filled with kMark when they are given out.
class MarkLargeBlocks {
 public:
  static constexpr size_t kLarge = 32768;
  static constexpr std::byte kMark{0xa5};

  MarkLargeBlocks();
  ~MarkLargeBlocks();
  // The largest block given out meanwhile, which must still be there.
  std::span<const std::byte> largest() const;
};

}  // namespace ringside::testing
