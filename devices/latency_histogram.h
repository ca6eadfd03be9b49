// How long the requests of a queue have taken, from `seen` to `published`
// (devices/latency_trace.h), by kind and in the buckets of ringside/statistics.h. 960 bytes,
// which the queue has whether its requests are traced or not, so that what was counted stays when a
// trace is switched off.
//
// Threads: the queue's I/O thread adds; any reads, at any time. What it reads of requests that are
// being added may have their count and not yet their time.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "base/counter.h"
#include "ringside/statistics.h"

namespace ringside {

class LatencyHistograms {
 public:
  void Add(RequestKind kind, uint64_t ns) {
    OfKind& of = kinds_[static_cast<size_t>(kind)];
    // As Prometheus has it, a bound belongs to the bucket below it.
    const auto* bound = std::ranges::lower_bound(kLatencyBoundsNs, ns);
    of.counts[static_cast<size_t>(bound - kLatencyBoundsNs.begin())].Add();
    of.sum_ns.Add(ns);
  }

  // Of the kinds of which there was a request.
  std::vector<LatencyHistogram> Read() const {
    std::vector<LatencyHistogram> histograms;
    for (size_t kind = 0; kind < kRequestKinds; ++kind) {
      LatencyHistogram histogram = {.kind = static_cast<RequestKind>(kind),
                                    .sum_ns = kinds_[kind].sum_ns.Get()};
      std::ranges::transform(kinds_[kind].counts, histogram.counts.begin(), &Counter::Get);
      if (histogram.count() > 0) histograms.push_back(histogram);
    }
    return histograms;
  }

 private:
  struct OfKind {
    std::array<Counter, kLatencyBuckets> counts;
    Counter sum_ns;
  };
  std::array<OfKind, kRequestKinds> kinds_;
};

}  // namespace ringside
