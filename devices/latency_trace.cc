#include "devices/latency_trace.h"

#include <algorithm>
#include <utility>

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

LatencyTrace::LatencyTrace(uint16_t queue_size, LatencyHistograms& histograms, size_t capacity)
    : histograms_(histograms),
      under_way_(queue_size),
      to_submit_(queue_size),
      to_publish_(queue_size),
      records_(capacity) {}

void LatencyTrace::Restart() {
  to_submit_.Empty([](uint16_t) {});
  to_publish_.Empty([](uint16_t) {});
  held_ = 0;
}

void LatencyTrace::HandOver() {
  const uint64_t now = ReadTsc();
  to_submit_.Empty([&](uint16_t head) { under_way_[head].At(LatencyPoint::kSubmitted) = now; });
}

void LatencyTrace::HeldIsRaised() {
  const uint64_t now = ReadTsc();
  records_.ForNewest(std::exchange(held_, 0),
                     [now](Ticks& record) { record.At(LatencyPoint::kInterrupt) = now; });
}

void LatencyTrace::Finish(Interrupt interrupt) {
  if (interrupt != Interrupt::kHeld) held_ = 0;
  const uint64_t raised = interrupt == Interrupt::kRaised ? ReadTsc() : 0;
  rate_.Refresh(published_);
  to_publish_.Empty([&](uint16_t head) {
    Ticks& request = under_way_[head];
    if (request.At(LatencyPoint::kCompleted) == 0) return;  // its head is in use again
    Ticks& record = records_.Add();
    record = request;
    record.At(LatencyPoint::kPublished) = published_;
    record.At(LatencyPoint::kInterrupt) = raised;
    if (interrupt == Interrupt::kHeld) ++held_;
    const uint64_t seen = request.At(LatencyPoint::kSeen);
    // A host without an invariant counter may have one that goes back.
    histograms_.Add(request.kind, published_ > seen ? rate_.NsOf(published_ - seen) : 0);
  });
}

void LatencyTrace::CopyTo(Snapshot& snapshot) const {
  snapshot.ticks_.clear();
  records_.AppendTo(snapshot.ticks_);
  snapshot.start_ = start_;
  snapshot.overwritten_ = overwritten();
}

std::vector<LatencyRecord> LatencyTrace::Records() const {
  Snapshot snapshot(0);
  CopyTo(snapshot);
  return snapshot.Records();
}

std::vector<LatencyRecord> LatencyTrace::Snapshot::Records() const {
  const TscScale scale(start_, TscMoment::Now());
  std::vector<LatencyRecord> records;
  records.reserve(ticks_.size());
  for (const Ticks& from : ticks_) {
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
