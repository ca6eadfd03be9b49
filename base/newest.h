// A ring that keeps the newest of what is put into it: for records made on a hot path, since
// nothing is allocated after the constructor.
//
// Threads: one that adds. Reading and adding must not overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ringside {

template <typename Record>
class Newest {
 public:
  // All of it is touched here, so that adding meets no page fault.
  explicit Newest(size_t capacity) : ring_(capacity) {}

  // The place of the next one, where an old one may stand.
  Record& Add() {
    Record& record = ring_[next_];
    if (++next_ == ring_.size()) next_ = 0;
    ++added_;
    return record;
  }

  // Calls `function` with the last `count` of them, or all if there are fewer, the newest first.
  template <typename Function>
  void ForNewest(size_t count, Function function) {
    count = std::min<uint64_t>({count, added_, ring_.size()});
    for (size_t at = next_; count > 0; --count) {
      at = (at == 0 ? ring_.size() : at) - 1;
      function(ring_[at]);
    }
  }

  // Oldest first.
  std::vector<Record> InOrder() const {
    std::vector<Record> records;
    AppendTo(records);
    return records;
  }
  void AppendTo(std::vector<Record>& records) const {
    const auto middle = ring_.begin() + static_cast<std::ptrdiff_t>(next_);
    if (added_ >= ring_.size()) records.insert(records.end(), middle, ring_.end());
    records.insert(records.end(), ring_.begin(), middle);
  }
  // Those that newer ones have taken the place of.
  uint64_t overwritten() const { return added_ > ring_.size() ? added_ - ring_.size() : 0; }

 private:
  std::vector<Record> ring_;
  size_t next_ = 0;
  uint64_t added_ = 0;
};

}  // namespace ringside
