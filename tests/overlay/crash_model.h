// What may be on a disk: of each sector, who has written it and when, and what of that a crash may
// leave. And what a power cut may leave of a file whose writes were recorded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ringside::testing {

inline constexpr uint64_t kModelSector = 512;
inline constexpr uint64_t kNever = UINT64_MAX;

// What is in a sector: 64 times this number. 0: zeroes.
using Stamp = uint64_t;

// Sectors by number, as a guest sees them. Times are of a clock that counts events; places are
// lengths of the record of the file below.
class CrashModel {
 public:
  struct Change {
    Stamp stamp = 0;
    bool durable = false;
    uint64_t begin = 0;           // when it was submitted
    uint64_t end = kNever;        // and done
    uint64_t place_at_begin = 0;  // how long the record was
    uint64_t place_at_end = kNever;
  };
  struct Flush {
    uint64_t begin = 0;
    uint64_t place_at_end = 0;
  };

  // What is there at first, and after a crash or a restart.
  void Start(const std::map<uint64_t, Stamp>& content) {
    content_ = content;
    history_.clear();
    flushes_.clear();
  }
  void Add(uint64_t first, uint64_t end, const Change& change) {
    for (uint64_t sector = first; sector < end; ++sector) history_[sector].push_back(change);
  }
  void Add(const Flush& flush) { flushes_.push_back(flush); }
  const std::map<uint64_t, Stamp>& content() const { return content_; }

  // Whether a read at that time may find this; nothing: parts of several.
  bool MayRead(uint64_t sector, std::optional<Stamp> stamp, uint64_t begin, uint64_t end) const {
    uint64_t over_from = 0;  // who had ended by then was overwritten before the read began
    const auto found = history_.find(sector);
    const std::span<const Change> changes =
        found == history_.end() ? std::span<const Change>() : std::span(found->second);
    for (const Change& change : changes) {
      if (change.end < begin) over_from = std::max(over_from, change.begin);
    }
    if (stamp == content_.at(sector) && over_from == 0) return true;
    for (const Change& change : changes) {
      if (change.begin > end || change.end < over_from) continue;
      // One that goes on meanwhile may be there in part.
      if (stamp == change.stamp || (!stamp && change.end > begin)) return true;
    }
    return false;
  }

  // Whether a guest may read this after a crash where the record was so long. With kNever: where
  // nothing was lost.
  bool MayBe(uint64_t sector, Stamp stamp, uint64_t place) const {
    const auto found = history_.find(sector);
    const bool was_first = content_.at(sector) == stamp;
    if (found == history_.end()) return was_first;
    uint64_t durable_from = 0;  // who had ended by then is overwritten for good
    for (const Change& change : found->second) {
      if (IsDurable(change, place)) durable_from = std::max(durable_from, change.begin);
    }
    if (was_first && durable_from == 0) return true;
    for (const Change& change : found->second) {
      if (change.stamp == stamp && change.place_at_begin < place && change.end >= durable_from) {
        return true;
      }
    }
    return false;
  }

 private:
  bool IsDurable(const Change& change, uint64_t place) const {
    if (place == kNever) return change.end != kNever;
    if (change.durable && change.place_at_end <= place) return true;
    for (const Flush& flush : flushes_) {
      if (flush.place_at_end <= place && change.end < flush.begin) return true;
    }
    return false;
  }

  std::map<uint64_t, Stamp> content_;
  std::map<uint64_t, std::vector<Change>> history_;
  std::vector<Flush> flushes_;
};

// A record (faults/record_format.h), as far as it goes.
class CrashRecord {
 public:
  explicit CrashRecord(std::string bytes);

  // Places where a crash may be: behind each entry.
  const std::vector<uint64_t>& places() const { return places_; }
  // Does to the file what the entries before `place` have done to it, with a power cut there:
  // what was not flushed is there, or is not, or in some of its sectors. `random`: 0: nothing of
  // it; 1: all; else it decides.
  void Replay(uint64_t place, uint64_t random, int fd) const;

 private:
  struct Request {
    uint64_t place;         // behind the entry of its submission
    uint64_t end = kNever;  // behind that of its success
    uint8_t op;
    bool durable;
    uint64_t offset;
    uint64_t length;
    size_t data;  // where in bytes_
  };
  bool IsDurable(const Request& request, uint64_t place) const;
  void Apply(const Request& request, uint64_t sector, uint64_t sectors, int fd) const;

  const std::string bytes_;
  std::vector<Request> requests_;
  std::vector<uint64_t> places_;
};

}  // namespace ringside::testing
