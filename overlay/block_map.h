// Where the blocks of an overlay are, in memory: a few bits for each, in address space that takes
// memory only where bits have been set.
//
// Threads: any reads the bits. They change one thread at a time, under a lock of the owner's, which
// guards the state of the pages, too. A bit is set after the data that it stands for is in place:
// release, which pairs with the acquire of who reads it and then asks for the data.
// Units: blocks of 4096 bytes, unless a name says bytes; ranges are [first, end).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "overlay/map_page.h"
#include "overlay/overlay_format.h"

namespace ringside {

enum class BlockState : uint8_t {
  kBase,    // the base is seen
  kHere,    // its data is in the overlay's file
  kZeroes,  // it reads as zeroes
  kBad,     // its page is corrupt: nobody knows
};

class BlockMap {
 public:
  struct Run {
    BlockState state;
    uint64_t end;
  };

  // All blocks show the base. Of the header: its capacity, epoch and period.
  static absl::StatusOr<std::unique_ptr<BlockMap>> Create(const OverlayHeader& header);
  ~BlockMap();
  BlockMap(const BlockMap&) = delete;
  BlockMap& operator=(const BlockMap&) = delete;

  // Any thread.

  // Whether all are in the overlay's file.
  bool AreHere(uint64_t first, uint64_t end) const { return AllSet(here_, first, end); }
  // Whether a write needs nothing but to be written: they are here, and dirty if that is followed.
  bool AreWritable(uint64_t first, uint64_t end) const { return AllSet(writable_, first, end); }
  BlockState StateOf(uint64_t block) const;
  // The blocks from `first` on that are in the same state; ends at `end` at the latest. It looks at
  // all of them, so who needs a part of a long run asks for no more.
  Run RunAt(uint64_t first, uint64_t end) const;
  // Words of 64 blocks that this thread has looked at where one was not enough: for tests.
  static uint64_t LooksOfThisThread();
  bool IsDirty(uint64_t block) const;
  uint64_t here_blocks() const { return here_blocks_.load(std::memory_order_relaxed); }
  uint64_t zero_blocks() const { return zero_blocks_.load(std::memory_order_relaxed); }
  uint64_t capacity() const { return blocks_; }

  // Under the lock.

  // Their pages are changed then.
  void SetHere(uint64_t first, uint64_t end);
  void SetZeroes(uint64_t first, uint64_t end);
  // A write to them that waited for its intent has failed, or was recalled, and may have changed
  // those that are here.
  void MayDiffer(uint64_t first, uint64_t end);
  uint64_t CountHere(uint64_t first, uint64_t end) const;
  // Whether a write may be lost by a power cut although its data is not: a page of theirs waits to
  // be written, or is being written.
  bool IsPending(uint64_t first, uint64_t end) const;
  // Notes that data of these blocks, which is here, is about to be overwritten. True: the pages
  // that were changed by that have to be written first.
  bool WantIntents(uint64_t first, uint64_t end);

  // From the file.
  void Load(uint64_t number, const MapPage& page, unsigned slot);
  void SetBad(uint64_t number);  // and all of its blocks
  void MarkChanged(uint64_t number);

  // To the file. Pages in the order in which they were changed, each once.
  bool has_changes() const { return first_changed_ != 0; }
  uint64_t changed_pages() const { return changed_pages_; }
  std::optional<uint64_t> PopChanged();
  // As it is now, sealed. Where: PageSlotOffset(number, NextSlot(number)).
  void Copy(uint64_t number, MapPage& page);
  unsigned NextSlot(uint64_t number) const;
  // What was copied last is in the file, and will be there after a power cut; or that is not known.
  void Written(uint64_t number);
  void NotWritten(uint64_t number);
  // Before the last pages are written: those who load them find exact dirty bits.
  void DropIntents();

 private:
  using Word = std::atomic<uint64_t>;

  // Zeroes at first.
  struct Page {
    uint64_t sequence;  // of the slot that counts; 0: none does
    uint64_t intents;   // wanted, those in the file among them
    uint64_t intents_copied;
    uint64_t intents_in_file;
    uint64_t next_changed;  // and 1; 0: none
    uint8_t slot;           // that counts
    bool changed;
    bool being_written;
    bool bad;
  };

  BlockMap(const OverlayHeader& header);
  absl::Status Map();
  static bool AllSet(const Word* plane, uint64_t first, uint64_t end);
  static bool AllSetFrom(const Word* plane, uint64_t first, uint64_t end);
  Page& PageOf(uint64_t block) const { return pages_[block / kBlocksPerMapPage]; }
  uint64_t InState(BlockState state, uint64_t word) const;

  const uint64_t blocks_;
  const uint32_t epoch_;
  const uint32_t period_;
  void* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  Word* here_ = nullptr;
  // Here, or zeroes: never cleared, so that nobody who looks while others change a block
  // takes it for one of the base.
  Word* touched_ = nullptr;
  Word* dirty_ = nullptr;     // with backups only
  Word* writable_ = nullptr;  // here and dirty; without backups it is here_
  Page* pages_ = nullptr;
  std::atomic<uint64_t> here_blocks_{0};
  std::atomic<uint64_t> zero_blocks_{0};
  uint64_t first_changed_ = 0;  // and 1; 0: none
  uint64_t last_changed_ = 0;
  uint64_t changed_pages_ = 0;
};

// Most requests are of blocks of one word.
inline bool BlockMap::AllSet(const Word* plane, uint64_t first, uint64_t end) {
  const uint64_t count = end - first;
  const uint64_t from = first % 64;
  if (from + count > 64) [[unlikely]]
    return AllSetFrom(plane, first, end);
  const uint64_t wanted = (~uint64_t{0} >> (64 - count)) << from;
  return (plane[first / 64].load(std::memory_order_acquire) & wanted) == wanted;
}

}  // namespace ringside
