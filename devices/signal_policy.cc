#include "devices/signal_policy.h"

#include <utility>

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

// One that is far out, as after a rest, says little of how long it usually is.
void SignalPolicy::Reacted(double ns) {
  if (reaction_ns_ == 0) reaction_ns_ = quick_reaction_ns_ = std::min<double>(ns, kMostNs);
  ns = std::min(ns, 2 * reaction_ns_);
  reaction_ns_ += (ns - reaction_ns_) / 8;
  quick_reaction_ns_ += (ns - quick_reaction_ns_) / (ns < quick_reaction_ns_ ? 2 : 64);
}

void SignalPolicy::Took(size_t count, int64_t now_ns) {
  if (at_hand_ == 0) return;
  const auto ns = static_cast<double>(now_ns - progress_ns_);
  if (std::exchange(reacts_, false)) Reacted(ns);
  progress_ns_ = now_ns;
  if (ns > SilenceNs()) {  // it has rested, and these are of its own accord
    at_hand_ = 0;
    return;
  }
  const auto steps = std::min(static_cast<uint32_t>(count), at_hand_);
  paces_[BucketOf(at_hand_)].Add(steps, ns);
  at_hand_ -= steps;
}

bool SignalPolicy::WouldBeFaster() const {
  const size_t bucket = BucketOf(at_hand_);
  const Pace& here = paces_[bucket];
  if (!here.known()) return false;
  if (bucket + 1 < kBuckets && paces_[bucket + 1].known()) {
    return paces_[bucket + 1].rate() > kFasterBy * here.rate();
  }
  return bucket > 0 && paces_[bucket - 1].known() &&
         here.rate() > kFasterBy * paces_[bucket - 1].rate();
}

SignalReason SignalPolicy::Decide(uint16_t consumed, int64_t now_ns) {
  Hand(consumed, now_ns);
  if (at_hand_ == 0) return SignalReason::kRunsDry;
  if (reaction_ns_ == 0) return SignalReason::kUnknown;
  if (WouldBeFaster()) return SignalReason::kFaster;
  if (IsSilent(now_ns)) return SignalReason::kSilence;
  return SignalReason::kHold;
}

SignalReason SignalPolicy::Look(uint16_t consumed, int64_t since_ns, int64_t now_ns) {
  Hand(consumed, now_ns);
  if (at_hand_ == 0) return SignalReason::kRunsDry;
  if (now_ns - since_ns > kMostNs) return SignalReason::kAge;
  if (!IsSilent(now_ns)) return SignalReason::kHold;
  at_hand_ = 0;  // the guest has other plans with it
  return SignalReason::kSilence;
}

void SignalPolicy::Raised(uint16_t shown, int64_t now_ns) {
  Hand(shown, now_ns);
}

}  // namespace ringside
