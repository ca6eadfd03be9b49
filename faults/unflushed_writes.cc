#include "faults/unflushed_writes.h"

#include <array>
#include <map>
#include <ranges>

#include "faults/fault_plan.h"

namespace ringside {

UnflushedWrites::UnflushedWrites(uint32_t sector)
    : sector_(sector), memory_(std::make_unique_for_overwrite<std::byte[]>(kMostBytes)) {}

bool UnflushedWrites::DropOldest() {
  Write& oldest = *writes_.front();
  if (oldest.done_at == 0) return false;  // what it overwrote is still being read, or needed
  writes_.Pop();
  held_ -= oldest.length;
  pool_.Give(oldest);
  return true;
}

// In one piece. Null if there is none.
std::byte* UnflushedWrites::Room(size_t length) {
  if (length > kMostBytes) return nullptr;
  while (!writes_.empty()) {
    const auto begin = static_cast<size_t>(writes_.front()->before - memory_.get());
    if (begin < end_) {
      if (kMostBytes - end_ >= length) return &memory_[end_];
      if (begin >= length) return memory_.get();
    } else if (begin - end_ >= length) {
      return &memory_[end_];
    }
    if (!DropOldest()) return nullptr;
  }
  return memory_.get();
}

UnflushedWrites::Write* UnflushedWrites::Add(uint64_t offset, uint64_t length) {
  std::byte* before = Room(length);
  if (before == nullptr) {
    // What is older must not be put back over it.
    FlushedByItself();
    return nullptr;
  }
  Write& write = pool_.Take();
  write.offset = offset;
  write.length = length;
  write.before = before;
  write.done_at = 0;
  write.durable = false;
  writes_.Push(write);
  end_ = static_cast<size_t>(before - memory_.get()) + length;
  held_ += length;
  return &write;
}

void UnflushedWrites::Done(Write& write, bool durable) {
  write.done_at = ++now_;
  write.durable = durable;
}

void UnflushedWrites::Flushed(uint64_t submitted_at) {
  for (Write* write = writes_.front(); write != nullptr; write = write->next) {
    if (write->done_at != 0 && write->done_at <= submitted_at) write->durable = true;
  }
  while (!writes_.empty() && writes_.front()->durable && DropOldest()) {
  }
}

CutReport UnflushedWrites::Cut(uint64_t random) {
  std::vector<Write*> writes;
  for (Write* write = writes_.front(); write != nullptr; write = write->next) {
    writes.push_back(write);
  }
  CutReport report;
  // From the newest on: a sector that a write has kept is not changed by what was there before it.
  // Null: kept.
  std::map<uint64_t, std::byte*> sectors;
  for (const Write* write : std::views::reverse(writes)) {
    enum class Fate { kKept, kLost, kTorn };
    constexpr std::array kFates = {Fate::kKept, Fate::kKept, Fate::kLost, Fate::kLost, Fate::kTorn};
    const Fate fate = write->durable ? Fate::kKept : kFates[NextRandom(random) % kFates.size()];
    ++(fate == Fate::kKept   ? report.kept_writes
       : fate == Fate::kLost ? report.lost_writes
                             : report.torn_writes);
    for (uint64_t at = 0; at < write->length; at += sector_) {
      const bool is_lost =
          fate == Fate::kLost || (fate == Fate::kTorn && NextRandom(random) % 2 == 0);
      const auto [known, is_new] = sectors.try_emplace(write->offset + at, nullptr);
      if (is_lost && (is_new || known->second != nullptr)) known->second = write->before + at;
    }
  }
  for (const auto& [offset, before] : sectors) {
    if (before == nullptr) continue;
    const bool follows =
        !report.lost.empty() &&
        report.lost.back().offset + report.lost.back().sectors.size() * sector_ == offset;
    if (!follows) report.lost.push_back({.offset = offset, .sectors = {}});
    report.lost.back().sectors.push_back(before);
  }
  return report;
}

}  // namespace ringside
