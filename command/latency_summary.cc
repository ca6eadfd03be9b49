#include "command/latency_summary.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "devices/latency_trace.h"

namespace ringside {
namespace {

bool Ordered(const LatencyRecord& record) {
  const int64_t interrupt_ns = record.at(LatencyPoint::kInterrupt);
  return std::is_sorted(record.at_ns.begin(), record.at_ns.end() - 1) &&
         (interrupt_ns == 0 || interrupt_ns >= record.at(LatencyPoint::kPublished));
}

bool Raised(const LatencyRecord& record) {
  return record.at(LatencyPoint::kInterrupt) != 0;
}

int64_t TotalNs(const LatencyRecord& record) {
  const auto end = Raised(record) ? LatencyPoint::kInterrupt : LatencyPoint::kPublished;
  return record.at(end) - record.at(LatencyPoint::kSeen);
}

// 0 for an interrupt that was not raised.
int64_t StageNs(const LatencyRecord& record, const LatencyStage& stage) {
  if (stage.to == LatencyPoint::kInterrupt && !Raised(record)) return 0;
  return record.at(stage.to) - record.at(stage.from);
}

// The place of a percentile among `count` sorted values, which are not none.
size_t Rank(double fraction, size_t count) {
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(count)));
  return std::clamp<size_t>(rank, 1, count) - 1;
}

double Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);  // in floating point: cannot overflow
}

LatencyDistribution Distribute(std::vector<int64_t> values, double sum_of_all) {
  LatencyDistribution result;
  if (values.empty()) return result;
  std::ranges::sort(values);
  const auto at = [&](double fraction) { return values[Rank(fraction, values.size())]; };
  result = {.count = values.size(),
            .p50 = at(0.5),
            .p90 = at(0.9),
            .p99 = at(0.99),
            .p999 = at(0.999),
            .max = values.back()};
  if (sum_of_all > 0) result.share = Sum(values) / sum_of_all;
  return result;
}

// `records` are sorted by their whole time.
LatencyProfile ProfileAt(const char* name, double fraction,
                         const std::vector<LatencyRecord>& records) {
  const size_t middle = Rank(fraction, records.size());
  const size_t around = records.size() / 200;
  const size_t first = middle - std::min(middle, around);
  const size_t last = std::min(middle + around, records.size() - 1);
  LatencyProfile profile = {.name = name, .stages_ns = {}, .total_ns = 0};
  for (size_t stage = 0; stage < kLatencyStages; ++stage) {
    for (size_t i = first; i <= last; ++i) {
      profile.stages_ns[stage] += static_cast<double>(StageNs(records[i], kStages[stage]));
    }
    profile.stages_ns[stage] /= static_cast<double>(last - first + 1);
    profile.total_ns += profile.stages_ns[stage];
  }
  return profile;
}

LatencySummary SummarizeKind(const QueueLatencies& queue, RequestKind kind,
                             std::vector<LatencyRecord> records) {
  std::ranges::sort(records, {}, TotalNs);
  LatencySummary summary = {
      .device = queue.device,
      .path = queue.path,
      .queue = queue.queue,
      .kind = kind,
      .profiles = {ProfileAt("p50", 0.5, records), ProfileAt("p90", 0.9, records),
                   ProfileAt("p99", 0.99, records)}};
  std::vector<int64_t> values;
  for (const LatencyRecord& record : records) {
    summary.bytes += record.bytes;
    summary.interrupts_suppressed += !Raised(record);
    values.push_back(TotalNs(record));
  }
  const double sum = Sum(values);
  summary.total = Distribute(std::move(values), sum);
  for (size_t stage = 0; stage < kLatencyStages; ++stage) {
    values.clear();
    for (const LatencyRecord& record : records) {
      if (kStages[stage].to == LatencyPoint::kInterrupt && !Raised(record)) continue;
      values.push_back(StageNs(record, kStages[stage]));
    }
    summary.stages[stage] = Distribute(values, sum);
  }
  return summary;
}

}  // namespace

LatencyReport Summarize(const std::vector<QueueLatencies>& queues) {
  LatencyReport report;
  for (const QueueLatencies& queue : queues) {
    report.overwritten += queue.overwritten;
    std::array<std::vector<LatencyRecord>, kRequestKinds> by_kind;
    for (const LatencyRecord& record : queue.records) {
      if (Ordered(record)) {
        by_kind[static_cast<size_t>(record.kind)].push_back(record);
      } else {
        ++report.unordered;
      }
    }
    for (size_t kind = 0; kind < kRequestKinds; ++kind) {
      if (by_kind[kind].empty()) continue;
      report.summaries.push_back(
          SummarizeKind(queue, static_cast<RequestKind>(kind), std::move(by_kind[kind])));
    }
  }
  return report;
}

std::string StageName(const LatencyStage& stage) {
  return std::string(LatencyPointName(stage.from)) + "->" + LatencyPointName(stage.to);
}

}  // namespace ringside
