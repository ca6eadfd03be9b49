#include "overlay/block_map.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <sys/mman.h>

#include "base/status.h"

namespace ringside {
namespace {

constexpr uint64_t kAll = ~uint64_t{0};

thread_local uint64_t looks = 0;

// Calls use(word, mask) for each word that has blocks of [first, end), which are those of the mask.
template <typename Use>
void ForEachWord(uint64_t first, uint64_t end, Use use) {
  while (first < end) {
    const uint64_t from = first % 64;
    const uint64_t count = std::min(64 - from, end - first);
    use(first / 64, (kAll >> (64 - count)) << from);
    first += count;
  }
}

// Calls use(page, its region's bit) for each region that has blocks of [first, end).
template <typename Use>
void ForEachRegion(uint64_t first, uint64_t end, Use use) {
  for (uint64_t i = first / kBlocksPerIntent; i <= (end - 1) / kBlocksPerIntent; ++i) {
    use(i / kIntentRegions, uint64_t{1} << i % kIntentRegions);
  }
}

// A plane's word: only one thread changes it at a time.
void Set(std::atomic<uint64_t>& word, uint64_t mask) {
  word.store(word.load(std::memory_order_relaxed) | mask, std::memory_order_release);
}
void Clear(std::atomic<uint64_t>& word, uint64_t mask) {
  word.store(word.load(std::memory_order_relaxed) & ~mask, std::memory_order_release);
}
uint64_t Bits(const std::atomic<uint64_t>& word) {
  return word.load(std::memory_order_acquire);
}

}  // namespace

BlockMap::BlockMap(const OverlayHeader& header)
    : blocks_(header.capacity / kOverlayBlock), epoch_(header.epoch), period_(header.period) {}

BlockMap::~BlockMap() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

absl::StatusOr<std::unique_ptr<BlockMap>> BlockMap::Create(const OverlayHeader& header) {
  std::unique_ptr<BlockMap> map(new BlockMap(header));
  RINGSIDE_RETURN_IF_ERROR(map->Map());
  return map;
}

absl::Status BlockMap::Map() {
  const size_t plane_bytes = blocks_ / 8;
  const size_t planes = period_ == 0 ? 2 : 4;
  memory_bytes_ = planes * plane_bytes + blocks_ / kBlocksPerMapPage * sizeof(Page);
  void* memory = mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return ErrnoError(
        errno, absl::StrFormat("no address space for an overlay's map of %d bytes", memory_bytes_));
  }
  memory_ = memory;
  auto* const bytes = static_cast<std::byte*>(memory);
  const auto plane = [&](size_t index) {
    return reinterpret_cast<Word*>(bytes + index * plane_bytes);
  };
  here_ = plane(0);
  touched_ = plane(1);
  dirty_ = period_ == 0 ? nullptr : plane(2);
  writable_ = period_ == 0 ? here_ : plane(3);
  pages_ = reinterpret_cast<Page*>(bytes + planes * plane_bytes);
  return absl::OkStatus();
}

// A read of 4 GiB has 16,384 words, and most often the first says no.
bool BlockMap::AllSetFrom(const Word* plane, uint64_t first, uint64_t end) {
  bool all = true;
  uint64_t looked = 0;
  while (all && first < end) {
    const uint64_t word_end = std::min(end, first - first % 64 + 64);
    all = AllSet(plane, first, word_end);
    first = word_end;
    ++looked;
  }
  looks += looked;
  return all;
}

// `touched` first: whoever makes a block of the base one that is here sets that last.
BlockState BlockMap::StateOf(uint64_t block) const {
  const uint64_t bit = uint64_t{1} << block % 64;
  if ((Bits(touched_[block / 64]) & bit) == 0) return BlockState::kBase;
  if ((Bits(here_[block / 64]) & bit) != 0) return BlockState::kHere;
  return PageOf(block).bad ? BlockState::kBad : BlockState::kZeroes;
}

// The blocks of a word of which StateOf says so.
uint64_t BlockMap::InState(BlockState state, uint64_t word) const {
  const uint64_t touched = Bits(touched_[word]);
  if (state == BlockState::kBase) return ~touched;
  const uint64_t here = Bits(here_[word]);
  if (state == BlockState::kHere) return touched & here;
  return PageOf(word * 64).bad == (state == BlockState::kBad) ? touched & ~here : 0;
}

// The first block is not looked at again: others may have changed it since.
BlockMap::Run BlockMap::RunAt(uint64_t first, uint64_t end) const {
  const BlockState state = StateOf(first);
  uint64_t at = first + 1;
  uint64_t looked = 1;
  while (at < end) {
    ++looked;
    const uint64_t others = ~InState(state, at / 64) >> at % 64;
    if (others != 0) {
      at += static_cast<uint64_t>(std::countr_zero(others));
      break;
    }
    at += 64 - at % 64;
  }
  looks += looked;
  return {.state = state, .end = std::min(at, end)};
}

uint64_t BlockMap::LooksOfThisThread() {
  return looks;
}

bool BlockMap::IsDirty(uint64_t block) const {
  const uint64_t bit = uint64_t{1} << block % 64;
  return (Bits((dirty_ != nullptr ? dirty_ : touched_)[block / 64]) & bit) != 0;
}

void BlockMap::SetHere(uint64_t first, uint64_t end) {
  uint64_t came = 0;
  uint64_t were_zeroes = 0;
  ForEachWord(first, end, [&](uint64_t word, uint64_t mask) {
    const uint64_t new_ones = mask & ~Bits(here_[word]);
    if (new_ones == 0 && (dirty_ == nullptr || (mask & ~Bits(dirty_[word])) == 0)) return;
    came += static_cast<uint64_t>(std::popcount(new_ones));
    were_zeroes += static_cast<uint64_t>(std::popcount(new_ones & Bits(touched_[word])));
    if (dirty_ != nullptr) Set(dirty_[word], mask);
    Set(here_[word], mask);
    Set(touched_[word], mask);
    if (dirty_ != nullptr) Set(writable_[word], mask);
    MarkChanged(word * 64 / kBlocksPerMapPage);
  });
  here_blocks_.fetch_add(came, std::memory_order_relaxed);
  zero_blocks_.fetch_sub(were_zeroes, std::memory_order_relaxed);
}

void BlockMap::SetZeroes(uint64_t first, uint64_t end) {
  uint64_t came = 0;
  uint64_t were_here = 0;
  ForEachWord(first, end, [&](uint64_t word, uint64_t mask) {
    const uint64_t here = mask & Bits(here_[word]);
    const uint64_t new_ones = here | (mask & ~Bits(touched_[word]));
    if (new_ones == 0 && (dirty_ == nullptr || (mask & ~Bits(dirty_[word])) == 0)) return;
    were_here += static_cast<uint64_t>(std::popcount(here));
    came += static_cast<uint64_t>(std::popcount(new_ones));
    if (dirty_ != nullptr) {
      Set(dirty_[word], mask);
      Clear(writable_[word], mask);
    }
    Set(touched_[word], mask);
    Clear(here_[word], mask);
    MarkChanged(word * 64 / kBlocksPerMapPage);
  });
  here_blocks_.fetch_sub(were_here, std::memory_order_relaxed);
  zero_blocks_.fetch_add(came, std::memory_order_relaxed);
}

// Intents would say so after a kill, but DropIntents forgets them.
void BlockMap::MayDiffer(uint64_t first, uint64_t end) {
  if (dirty_ == nullptr) return;
  ForEachWord(first, end, [&](uint64_t word, uint64_t mask) {
    const uint64_t here = mask & Bits(here_[word]);
    if ((here & ~Bits(dirty_[word])) == 0) return;
    Set(dirty_[word], here);
    Set(writable_[word], here);
    MarkChanged(word * 64 / kBlocksPerMapPage);
  });
}

uint64_t BlockMap::CountHere(uint64_t first, uint64_t end) const {
  uint64_t count = 0;
  ForEachWord(first, end, [&](uint64_t word, uint64_t mask) {
    count += static_cast<uint64_t>(std::popcount(Bits(here_[word]) & mask));
  });
  return count;
}

bool BlockMap::IsPending(uint64_t first, uint64_t end) const {
  for (uint64_t i = first / kBlocksPerMapPage; i <= (end - 1) / kBlocksPerMapPage; ++i) {
    if (pages_[i].changed || pages_[i].being_written) return true;
  }
  return false;
}

bool BlockMap::WantIntents(uint64_t first, uint64_t end) {
  if (dirty_ == nullptr) return false;
  bool wait = false;
  ForEachWord(first, end, [&](uint64_t word, uint64_t mask) {
    const uint64_t concerned = Bits(here_[word]) & ~Bits(dirty_[word]) & mask;
    if (concerned == 0) return;
    const uint64_t at = word * 64;
    ForEachRegion(at, at + 64, [&](uint64_t number, uint64_t region) {
      Page& page = pages_[number];
      if ((page.intents_in_file & region) != 0) return;
      wait = true;
      if ((page.intents & region) != 0) return;
      page.intents |= region;
      MarkChanged(number);
    });
  });
  return wait;
}

void BlockMap::Load(uint64_t number, const MapPage& from, unsigned slot) {
  Page& page = pages_[number];
  page.sequence = from.sequence;
  page.slot = static_cast<uint8_t>(slot);
  const bool has_backup = period_ != 0 && from.period == period_;
  const uint64_t first_word = number * from.here.size();
  uint64_t here_count = 0;
  uint64_t zero_count = 0;
  for (size_t i = 0; i < from.here.size(); ++i) {
    const uint64_t here = from.here[i];
    const uint64_t zeroes = from.zeroes[i];
    if ((here | zeroes) == 0) continue;  // touches no memory
    here_count += static_cast<uint64_t>(std::popcount(here));
    zero_count += static_cast<uint64_t>(std::popcount(zeroes));
    here_[first_word + i].store(here, std::memory_order_relaxed);
    touched_[first_word + i].store(here | zeroes, std::memory_order_relaxed);
    if (dirty_ == nullptr || !has_backup) continue;
    const uint64_t region = uint64_t{1} << (i * 64 / kBlocksPerIntent);
    // What was about to be overwritten may have been.
    const uint64_t maybe = (from.intents & region) != 0 ? here | zeroes : 0;
    const uint64_t dirty = from.dirty[i] | maybe;
    dirty_[first_word + i].store(dirty, std::memory_order_relaxed);
    writable_[first_word + i].store(dirty & here, std::memory_order_relaxed);
  }
  here_blocks_.fetch_add(here_count, std::memory_order_relaxed);
  zero_blocks_.fetch_add(zero_count, std::memory_order_relaxed);
  if (has_backup && from.intents != 0) MarkChanged(number);
}

void BlockMap::SetBad(uint64_t number) {
  pages_[number].bad = true;
  const uint64_t words = kBlocksPerMapPage / 64;
  for (uint64_t i = 0; i < words; ++i) {
    here_[number * words + i].store(0, std::memory_order_relaxed);
    touched_[number * words + i].store(kAll, std::memory_order_relaxed);
  }
}

void BlockMap::MarkChanged(uint64_t number) {
  Page& page = pages_[number];
  if (page.changed) return;
  page.changed = true;
  page.next_changed = 0;
  (last_changed_ == 0 ? first_changed_ : pages_[last_changed_ - 1].next_changed) = number + 1;
  last_changed_ = number + 1;
  ++changed_pages_;
}

std::optional<uint64_t> BlockMap::PopChanged() {
  if (first_changed_ == 0) return std::nullopt;
  const uint64_t number = first_changed_ - 1;
  Page& page = pages_[number];
  page.changed = false;
  first_changed_ = page.next_changed;
  if (first_changed_ == 0) last_changed_ = 0;
  --changed_pages_;
  return number;
}

void BlockMap::Copy(uint64_t number, MapPage& copy) {
  Page& page = pages_[number];
  page.being_written = true;
  copy = MapPage();
  copy.number = number;
  copy.epoch = epoch_;
  copy.period = period_;
  copy.sequence = page.sequence + 1;
  copy.intents = page.intents_copied = page.intents;
  const uint64_t first_word = number * copy.here.size();
  for (size_t i = 0; i < copy.here.size(); ++i) {
    copy.here[i] = Bits(here_[first_word + i]);
    copy.zeroes[i] = Bits(touched_[first_word + i]) & ~copy.here[i];
    if (dirty_ != nullptr) copy.dirty[i] = Bits(dirty_[first_word + i]);
  }
  SealPage(copy);
}

unsigned BlockMap::NextSlot(uint64_t number) const {
  const Page& page = pages_[number];
  return page.sequence == 0 ? 0 : page.slot ^ 1u;
}

void BlockMap::Written(uint64_t number) {
  Page& page = pages_[number];
  page.slot = static_cast<uint8_t>(NextSlot(number));
  ++page.sequence;
  page.intents_in_file = page.intents_copied;
  page.being_written = false;
}

void BlockMap::DropIntents() {
  if (dirty_ == nullptr) return;
  for (uint64_t i = 0; i < blocks_ / kBlocksPerMapPage; ++i) {
    if (pages_[i].intents == 0) continue;
    pages_[i].intents = 0;
    MarkChanged(i);
  }
}

void BlockMap::NotWritten(uint64_t number) {
  pages_[number].being_written = false;
  MarkChanged(number);
}

}  // namespace ringside
