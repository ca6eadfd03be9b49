// Counts of values by size: 32 buckets for each power of two, so that a bucket is at most 3% wide.
// Adding is a few instructions; nothing is allocated.

#ifndef RINGSIDE_TESTS_GUEST_HISTOGRAM_H_
#define RINGSIDE_TESTS_GUEST_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace guest {

class Histogram {
 public:
  static constexpr int kSubBits = 5;
  static constexpr uint64_t kSubBuckets = 1 << kSubBits;
  static constexpr size_t kBuckets = (64 - kSubBits + 1) * kSubBuckets;

  void Add(uint64_t value) {
    ++counts_[BucketOf(value)];
    ++total_;
    sum_ += value;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }

  void Merge(const Histogram& other) {
    for (size_t i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
    total_ += other.total_;
    sum_ += other.sum_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
  }

  uint64_t total() const { return total_; }
  uint64_t min() const { return total_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }
  uint64_t mean() const { return total_ == 0 ? 0 : sum_ / total_; }
  uint64_t count(size_t bucket) const { return counts_[bucket]; }

  // The value that `parts` of `whole` of all do not exceed, to the width of a bucket.
  uint64_t Quantile(uint64_t parts, uint64_t whole) const {
    const uint64_t rank = (total_ * parts + whole - 1) / whole;
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += counts_[i];
      if (seen >= rank && seen > 0) return std::clamp(Middle(i), min_, max_);
    }
    return 0;
  }

  // Values below kSubBuckets have a bucket each; above, a bucket is a power of two and the
  // kSubBits bits behind its leading one.
  static constexpr size_t BucketOf(uint64_t value) {
    if (value < kSubBuckets) return value;
    const int shift = std::bit_width(value) - 1 - kSubBits;
    return static_cast<size_t>(shift) * kSubBuckets + (value >> shift);
  }
  static constexpr uint64_t Lower(size_t bucket) {
    if (bucket < 2 * kSubBuckets) return bucket;
    const uint64_t shift = bucket / kSubBuckets - 1;
    return (bucket % kSubBuckets + kSubBuckets) << shift;
  }

 private:
  static constexpr uint64_t Middle(size_t bucket) {
    const uint64_t width = bucket < 2 * kSubBuckets ? 1 : uint64_t{1} << (bucket / kSubBuckets - 1);
    return Lower(bucket) + width / 2;
  }

  std::array<uint64_t, kBuckets> counts_ = {};
  uint64_t total_ = 0;
  uint64_t sum_ = 0;
  uint64_t min_ = ~uint64_t{0};
  uint64_t max_ = 0;
};

static_assert(Histogram::BucketOf(31) == 31 && Histogram::BucketOf(32) == 32);
static_assert(Histogram::BucketOf(63) == 63 && Histogram::BucketOf(64) == 64);
static_assert(Histogram::BucketOf(65) == 64 && Histogram::BucketOf(66) == 65);
static_assert(Histogram::Lower(64) == 64 && Histogram::Lower(65) == 66);
static_assert(Histogram::BucketOf(~uint64_t{0}) == Histogram::kBuckets - 1);

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_HISTOGRAM_H_
