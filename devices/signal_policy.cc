#include "devices/signal_policy.h"

#include <cmath>
#include <utility>

namespace ringside {
namespace {

constexpr uint32_t kEpoch = 8;  // epochs are so many times all requests
constexpr uint32_t kShortestEpoch = 128;
constexpr uint32_t kProbe = 4;  // each such epoch tries another share, and then ever fewer
constexpr uint32_t kSeldom = 128;
constexpr uint32_t kTrial = 251;    // a prime, lest it always meets the same
constexpr uint32_t kEpochsPerCount = 4;
constexpr uint32_t kInVain = 2;     // a count ends after so many times all requests
constexpr double kMostLost = 0.25;  // parts of an epoch's requests, then it ends early
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
  Lesson& lesson = lessons_[depth_];
  // What the rung before has left behind does not count.
  if (measured_from_ == 0 && taken_ >= length / 4) {
    measured_from_ = taken_;
    measured_ns_ = now_ns;
  }
  const double lost =
      static_cast<double>(now_ns - epoch_ns_) * lesson.rates[lesson.best] - taken_;
  if (taken_ < length && lost < length * kMostLost) return;
  const auto counting_ns = holds_ ? count_ns_ / kEpochsPerCount : 0;
  const auto ns = static_cast<double>(std::max<int64_t>(now_ns - measured_ns_ + counting_ns, 1));
  const double rate = (taken_ - measured_from_) / ns;
  double& known = lesson.rates[lesson.rung];
  if (known != 0) {
    lesson.scatter += kWeight / 4 * (std::abs(rate / known - 1) - lesson.scatter);
  }
  known = known == 0 ? rate : known + kWeight * (rate - known);
  NextRung(lesson);
  BeginEpoch(now_ns);
}

void SignalPolicy::BeginEpoch(int64_t now_ns) {
  holds_ = lessons_[depth_].rung != 0;
  counts_anew_ = holds_ && since_counted_ >= kEpochsPerCount * kEpoch * requests_;
  epoch_ns_ = measured_ns_ = now_ns;
  taken_ = measured_from_ = 0;
}

void SignalPolicy::NextRung(Lesson& lesson) {
  const size_t before = lesson.best;
  const double better = std::max(kBetter, 1 + lesson.scatter / 2);
  for (uint8_t i = 0; i < kRungs; ++i) {
    const double margin = i < before ? 1 / kBetter : better;
    if (lesson.rates[i] > margin * lesson.rates[lesson.best]) lesson.best = i;
  }
  if (lesson.best != before) {
    lesson.probe_every = std::max(kProbe, lesson.probe_every / 4);
  } else if (lesson.rung != lesson.best && lesson.probe_every < kSeldom) {
    lesson.probe_every *= 2;
  }
  const auto unknown = std::ranges::find(lesson.rates, 0.0);
  if (unknown != lesson.rates.end()) {
    lesson.rung = static_cast<uint8_t>(unknown - lesson.rates.begin());
    return;
  }
  lesson.rung = lesson.best;
  if (++lesson.epochs % lesson.probe_every != 0) return;
  lesson.probed = (lesson.probed + 1) % kRungs;
  if (lesson.probed == lesson.best) lesson.probed = (lesson.probed + 1) % kRungs;
  lesson.rung = lesson.probed;
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
    // Who has asked for more meanwhile than he can have had at hand asks whatever he hears.
    const bool in_vain = taken_ > kInVain * requests_;
    if (!silent && !in_vain) return SignalReason::kHold;
    counts_anew_ = false;
    since_counted_ = 0;
    count_ns_ = silent ? now_ns - progress_ns_ : 0;
    if (silent) {
      at_hand_ = 0;
      return SignalReason::kDry;
    }
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
