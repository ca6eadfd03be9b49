// How long waits have been, and which limit would have cost least: four buckets an octave, in which
// what is old counts less and less.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>

#include "poll/wait_cost.h"

namespace ringside {

class WaitHistogram {
 public:
  static constexpr size_t kBuckets = 88;

  void Add(int64_t waited_ns) { weights_[BucketOf(waited_ns)] += 1; }

  // As if there had been no more than so many waits.
  void FadeTo(double waits) {
    const double total = Total();
    if (total <= waits) return;
    for (float& weight : weights_) weight *= static_cast<float>(waits / total);
  }

  float weight(size_t bucket) const { return weights_[bucket]; }

  // Where a bucket begins, which is where the one before it ends. The first begins with nothing,
  // the last is without an end.
  static constexpr int64_t BeginNs(size_t bucket) {
    if (bucket == 0) return 0;
    return static_cast<int64_t>(kStepsAnOctave + bucket % kStepsAnOctave)
           << (kFirstOctave - 2 + bucket / kStepsAnOctave);
  }

  static constexpr size_t BucketOf(int64_t waited_ns) {
    const auto wait = static_cast<uint64_t>(std::max<int64_t>(waited_ns, 0));
    const int octave = static_cast<int>(std::bit_width(wait)) - 1;
    if (octave < kFirstOctave) return 0;
    const size_t step = wait >> (octave - 2) & (kStepsAnOctave - 1);
    const size_t bucket = static_cast<size_t>(octave - kFirstOctave) * kStepsAnOctave + step;
    return std::min(bucket, kBuckets - 1);
  }

  // The limit that costs least if waits go on as they were: 0, or the end of a bucket.
  int64_t BestLimitNs(const WaitCost& cost) const {
    const double total = Total();
    double best = total * cost.sleeping();
    int64_t best_ns = 0;
    double caught = 0;  // weight of the waits within the limit
    double polled = 0;  // what they cost
    for (size_t bucket = 0; bucket + 1 < kBuckets; ++bucket) {
      const auto weight = static_cast<double>(weights_[bucket]);
      const int64_t end_ns = BeginNs(bucket + 1);
      caught += weight;
      polled += weight * cost.Polling((BeginNs(bucket) + end_ns) / 2);
      const double missed = total - caught;
      const double all = polled + missed * (cost.Polling(end_ns) + cost.sleeping());
      if (all < best) {
        best = all;
        best_ns = end_ns;
      }
    }
    return best_ns;
  }

 private:
  double Total() const { return std::accumulate(weights_.begin(), weights_.end(), 0.0); }

  static constexpr int kFirstOctave = 8;  // 256 ns; the last bucket begins at 939 ms
  static constexpr size_t kStepsAnOctave = 4;

  std::array<float, kBuckets> weights_ = {};
};

}  // namespace ringside
