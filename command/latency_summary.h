// What a latency trace says: how long requests of a kind spent between which points.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ringside/statistics.h"

namespace ringside {

// From one point to the next.
struct LatencyStage {
  LatencyPoint from, to;
  char letter;        // in bars of text
  const char* color;  // in drawings
};
inline constexpr size_t kLatencyStages = kLatencyPoints - 1;
inline constexpr std::array<LatencyStage, kLatencyStages> kStages = {{
    {LatencyPoint::kSeen, LatencyPoint::kTaken, 't', "#4e79a7"},
    {LatencyPoint::kTaken, LatencyPoint::kSubmitted, 's', "#76b7b2"},
    {LatencyPoint::kSubmitted, LatencyPoint::kCompleted, '#', "#bab0ac"},  // the storage
    {LatencyPoint::kCompleted, LatencyPoint::kPublished, 'p', "#f28e2b"},
    {LatencyPoint::kPublished, LatencyPoint::kInterrupt, 'i', "#e15759"},
}};

// Of durations in ns, by nearest rank; zeroes if there are none.
struct LatencyDistribution {
  uint64_t count = 0;
  int64_t p50 = 0, p90 = 0, p99 = 0, p999 = 0, max = 0;
  double share = 0;  // of the sum of all requests' times
};

// The requests around a percentile of the whole time, 0.5% to either side, as their mean: unlike
// the stages' own percentiles these add up.
struct LatencyProfile {
  const char* name;  // "p50", ...
  std::array<double, kLatencyStages> stages_ns;
  double total_ns;
};

struct LatencySummary {
  std::string device, path;
  uint16_t queue;
  RequestKind kind;
  uint64_t bytes;
  uint64_t interrupts_suppressed;
  std::array<LatencyDistribution, kLatencyStages> stages;
  LatencyDistribution total;  // to the interrupt, or to the publication if there was none
  std::array<LatencyProfile, 3> profiles;
};

struct LatencyReport {
  std::vector<LatencySummary> summaries;  // by device and queue and kind, of kinds that there were
  uint64_t overwritten = 0;
  uint64_t unordered = 0;  // records left out, as their stamps run backwards
};

LatencyReport Summarize(const std::vector<QueueLatencies>& queues);

// "seen->taken".
std::string StageName(const LatencyStage& stage);

// For people and for programs (latency_text.cc), and as a picture (latency_svg.cc): a bar for each
// profile.
std::string LatencyTable(const LatencyReport& report);
std::string LatencyJson(const LatencyReport& report);
std::string LatencySvg(const LatencyReport& report);

}  // namespace ringside
