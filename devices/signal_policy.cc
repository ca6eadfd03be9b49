#include "devices/signal_policy.h"

namespace ringside {

void SignalPolicy::Hand(uint16_t index, int64_t now_ns) {
  const auto more = static_cast<int16_t>(index - handed_);
  if (more <= 0) return;
  if (at_hand_ == 0) {
    progress_ns_ = now_ns;
    reacts_ = true;
  }
  at_hand_ += static_cast<uint32_t>(more);
  handed_ = index;
}

void SignalPolicy::Reacted(double ns) {
  if (reaction_ns_ == 0) reaction_ns_ = quick_reaction_ns_ = ns;
  reaction_ns_ += (ns - reaction_ns_) / 8;
  quick_reaction_ns_ += (ns - quick_reaction_ns_) / (ns < quick_reaction_ns_ ? 2 : 64);
}

void SignalPolicy::Took(size_t count, int64_t now_ns) {
  if (at_hand_ == 0) return;
  const auto steps = std::min(static_cast<uint32_t>(count), at_hand_);
  if (progress_ns_ != 0) {
    const auto ns = static_cast<double>(now_ns - progress_ns_);
    if (reacts_) Reacted(ns);
    Pace& pace = paces_[BucketOf(at_hand_)];
    pace.steps += steps;
    pace.ns += ns;
    if (pace.steps > kRemembered) {
      pace.steps /= 2;
      pace.ns /= 2;
    }
  }
  reacts_ = false;
  at_hand_ -= steps;
  progress_ns_ = now_ns;
}

SignalReason SignalPolicy::Decide(uint16_t consumed, int64_t now_ns) {
  Hand(consumed, now_ns);
  if (at_hand_ <= kDry) return SignalReason::kRunsDry;
  if (reaction_ns_ == 0) return SignalReason::kUnknown;
  const size_t bucket = BucketOf(at_hand_);
  const Pace& here = paces_[bucket];
  if (!here.known()) return SignalReason::kUnknown;
  const Pace* more =
      bucket + 1 < kBuckets && paces_[bucket + 1].known() ? &paces_[bucket + 1] : nullptr;
  const Pace* less = bucket > 0 && paces_[bucket - 1].known() ? &paces_[bucket - 1] : nullptr;
  if (more == nullptr && less == nullptr) return SignalReason::kUnknown;
  const double ratio = more != nullptr ? more->rate() / here.rate() : here.rate() / less->rate();
  if (ratio > kFasterBy) return SignalReason::kFaster;
  if (static_cast<double>(now_ns - progress_ns_) > SilenceNs()) return SignalReason::kSilence;
  return SignalReason::kHold;
}

SignalReason SignalPolicy::Look(uint16_t consumed, int64_t since_ns, int64_t now_ns) {
  Hand(consumed, now_ns);
  if (at_hand_ <= kDry) return SignalReason::kRunsDry;
  if (now_ns - since_ns > kMostNs) return SignalReason::kAge;
  if (static_cast<double>(now_ns - progress_ns_) > SilenceNs()) {
    at_hand_ = 0;  // the guest has other plans with it
    return SignalReason::kSilence;
  }
  return SignalReason::kHold;
}

void SignalPolicy::Raised(uint16_t shown, int64_t now_ns) {
  Hand(shown, now_ns);
}

}  // namespace ringside
