#include "devices/latency_trace.h"

#include <algorithm>

namespace ringside {

const char* RequestKindName(RequestKind kind) {
  constexpr std::array<const char*, kRequestKinds> kNames = {"read", "write", "flush", "discard",
                                                             "other"};
  return kNames[static_cast<size_t>(kind)];
}

const char* LatencyPointName(LatencyPoint point) {
  constexpr std::array<const char*, kLatencyPoints> kNames = {
      "seen", "taken", "submitted", "completed", "published", "interrupt"};
  return kNames[static_cast<size_t>(point)];
}

LatencyTrace::LatencyTrace(uint16_t queue_size, size_t capacity)
    : under_way_(queue_size), to_submit_(queue_size), to_publish_(queue_size), records_(capacity) {}

void LatencyTrace::Restart() {
  to_submit_.count = 0;
  to_publish_.count = 0;
}

void LatencyTrace::Submitted() {
  const uint64_t now = ReadTsc();
  for (size_t i = 0; i < to_submit_.count; ++i) {
    under_way_[to_submit_.heads[i]].At(LatencyPoint::kSubmitted) = now;
  }
  to_submit_.count = 0;
}

void LatencyTrace::Finish(Interrupt interrupt) {
  const uint64_t raised = interrupt == Interrupt::kRaised ? ReadTsc() : 0;
  for (size_t i = 0; i < to_publish_.count; ++i) {
    Ticks& record = records_.Add();
    record = under_way_[to_publish_.heads[i]];
    record.At(LatencyPoint::kPublished) = published_;
    record.At(LatencyPoint::kInterrupt) = raised;
  }
  to_publish_.count = 0;
}

std::vector<LatencyRecord> LatencyTrace::Records() const {
  const TscScale scale(start_, TscMoment::Now());
  std::vector<LatencyRecord> records;
  for (const Ticks& from : records_.InOrder()) {
    LatencyRecord& record = records.emplace_back();
    record.kind = from.kind;
    record.bytes = from.bytes;
    std::ranges::transform(from.at, record.at_ns.begin(), [&](uint64_t ticks) {
      return ticks != 0 ? scale.ToNs(ticks) : 0;  // of an interrupt: there was none
    });
  }
  return records;
}

}  // namespace ringside
