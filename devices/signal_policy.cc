#include "devices/signal_policy.h"

#include <utility>

namespace ringside {
namespace {

constexpr uint32_t kEpoch = 8;  // epochs are so many times all requests
constexpr uint32_t kShortestEpoch = 128;
constexpr uint32_t kProbe = 4;  // each such epoch tries a neighbour, and then ever fewer
constexpr uint32_t kSeldom = 128;
constexpr uint32_t kTrial = 251;    // a prime, lest it always meets the same
constexpr uint32_t kCountAnew = 4;  // not before so many times all requests
constexpr double kWeight = 0.3;
constexpr double kBetter = 1.02;  // who waits more has to be better by so much

}  // namespace

const char* SignalReasonName(SignalReason reason) {
  constexpr std::array<const char*, kSignalReasons> kNames = {"dry", "early", "awaited", "silence",
                                                              "age", "hurry", "sleep"};
  return kNames[static_cast<size_t>(reason)];
}

void SignalPolicy::Handed(uint32_t count, int64_t now_ns) {
  if (at_hand_ == 0) progress_ns_ = now_ns;
  at_hand_ += count;
}

void SignalPolicy::Took(uint32_t count, int64_t now_ns) {
  taken_ += count;
  since_counted_ += count;
  if (now_ns != kNoTime && progress_ns_ != kNoTime) CountGap(now_ns - progress_ns_);
  progress_ns_ = now_ns;
  at_hand_ -= std::min(count, at_hand_);
}

void SignalPolicy::CountGap(int64_t ns) {
  // After a rest, what it had at hand is no concern of it any more.
  if (ns > kMostNs) at_hand_ = 0;
  const auto gap_ns = static_cast<double>(std::min(ns, kMostNs));
  if (gap_ns <= longest_gap_ns_) {
    longest_gap_ns_ -= longest_gap_ns_ / 64;
  } else {  // one that is far out says little of how long it usually takes
    longest_gap_ns_ = longest_gap_ns_ == 0 ? gap_ns : std::min(gap_ns, 2 * longest_gap_ns_);
  }
}

// A guest's thread that has one request at a time uses the same buffer again and again, and waits
// for just that one. If it hears of it at once, it is back before most others; those of a deep job
// come back in turn.
bool SignalPolicy::IsAwaited(uint64_t buffer) {
  constexpr uint64_t kMix = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
  uint32_t& last = last_seen_[(buffer * kMix) >> (64 - kBufferBits)];
  ++completed_;
  const uint32_t since = completed_ - std::exchange(last, completed_);
  // To find such a thread, one in many is treated as its.
  return since < requests_ / 4 || completed_ % kTrial == 0;
}

void SignalPolicy::CountEpoch(uint32_t requests, int64_t now_ns) {
  requests_ = std::max<double>(requests, requests_ * (1 - 1 / 64.0));
  const auto about = static_cast<uint32_t>(requests_);
  const size_t depth = std::min<size_t>(std::bit_width(about), kDepths) - 1;
  if (depth != depth_) {
    depth_ = depth;
    return BeginEpoch(now_ns);
  }
  const uint32_t length = std::max(kEpoch * about, kShortestEpoch);
  if (skipped_ == 0) {
    // What the rung before has left behind does not count.
    if (taken_ < length / 4) return;
    skipped_ = taken_;
    epoch_ns_ = now_ns;
    return;
  }
  Lesson& lesson = lessons_[depth_];
  const auto ns = static_cast<double>(std::max<int64_t>(now_ns - epoch_ns_, 1));
  const bool hopeless = ns * lesson.rates[lesson.best] > 1.5 * length;
  if (taken_ < length && !hopeless) return;
  const double rate = (taken_ - skipped_) / ns;
  double& known = lesson.rates[lesson.rung];
  known = known == 0 ? rate : known + kWeight * (rate - known);
  NextRung(lesson);
  BeginEpoch(now_ns);
}

void SignalPolicy::BeginEpoch(int64_t now_ns) {
  holds_ = lessons_[depth_].rung != 0;
  counts_anew_ = holds_ && since_counted_ >= kCountAnew * requests_;
  epoch_ns_ = now_ns;
  taken_ = 0;
  skipped_ = 0;
}

void SignalPolicy::NextRung(Lesson& lesson) {
  const size_t before = lesson.best;
  lesson.best = 0;
  for (uint8_t i = 1; i < kRungs; ++i) {
    if (lesson.rates[i] > kBetter * lesson.rates[lesson.best]) lesson.best = i;
  }
  if (lesson.best != before) {
    lesson.probe_every = kProbe;
  } else if (lesson.rung != lesson.best && lesson.probe_every < kSeldom) {
    lesson.probe_every *= 2;
  }
  lesson.rung = lesson.best;
  if (lesson.best + 1u < kRungs && lesson.rates[lesson.best + 1] == 0) {
    ++lesson.rung;  // nothing is known of it
    return;
  }
  if (++lesson.epochs % lesson.probe_every != 0) return;
  const bool up = lesson.best == 0 || (lesson.probes_up && lesson.best + 1u < kRungs);
  lesson.probes_up = !lesson.probes_up;
  lesson.rung += up ? 1 : -1;
}

SignalReason SignalPolicy::Decide(uint32_t in_flight, uint32_t owed, int64_t now_ns) {
  if (at_hand_ == 0 && in_flight == 0) return SignalReason::kDry;
  if (progress_ns_ == kNoTime) progress_ns_ = now_ns;
  CountEpoch(at_hand_ + in_flight + owed, now_ns);
  if (lessons_[depth_].rung == 0) return SignalReason::kEarly;
  return Look(in_flight + owed, now_ns, now_ns);
}

SignalReason SignalPolicy::Look(uint32_t under_way, int64_t since_ns, int64_t now_ns) {
  if (now_ns - since_ns > kMostNs) return SignalReason::kAge;
  const bool silent = IsSilent(now_ns - progress_ns_);
  if (counts_anew_) {
    if (!silent) return SignalReason::kHold;
    counts_anew_ = false;
    since_counted_ = 0;
    at_hand_ = 0;
    return SignalReason::kDry;
  }
  const uint32_t requests = at_hand_ + under_way;
  if (8 * at_hand_ <= kEighths[lessons_[depth_].rung] * requests) return SignalReason::kDry;
  if (!silent) return SignalReason::kHold;
  at_hand_ = 0;  // the guest has other plans with it
  return SignalReason::kSilence;
}

SignalExplanation SignalPolicy::Explain() const {
  static_assert(
      std::ranges::equal(kEighths, SignalExplanation::kShares,
                         [](double eighths, double share) { return eighths == 8 * share; }),
      "what is told is what is done");
  SignalExplanation explanation = {.reaction_ns = longest_gap_ns_,
                                   .silence_ns = kSilentGaps * longest_gap_ns_};
  for (size_t i = 0; i < kDepths; ++i) {
    explanation.lessons[i].rung = lessons_[i].rung;
    explanation.lessons[i].rates = lessons_[i].rates;
  }
  return explanation;
}

}  // namespace ringside
