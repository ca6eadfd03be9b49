#include "devices/signal_policy.h"

#include <utility>

namespace ringside {

const char* SignalReasonName(SignalReason reason) {
  constexpr std::array<const char*, kSignalReasons> kNames = {"dry", "faster", "unknown", "silence",
                                                              "age", "hurry",  "sleep"};
  return kNames[static_cast<size_t>(reason)];
}

void SignalPolicy::Handed(uint32_t count, int64_t now_ns) {
  if (at_hand_ == 0) {
    progress_ns_ = now_ns;
    reacts_ = true;
  }
  at_hand_ += count;
}

void SignalPolicy::Took(uint32_t count, int64_t now_ns) {
  if (at_hand_ == 0) return;
  const auto ns = static_cast<double>(now_ns - std::exchange(progress_ns_, now_ns));
  const bool silent = ns > SilenceNs();
  if (std::exchange(reacts_, false)) Reacted(ns);
  if (silent) {  // it has rested, and these are of its own accord
    at_hand_ = 0;
    return;
  }
  const uint32_t replaced = std::min(count, at_hand_);
  paces_[BucketOf(at_hand_)].Add(replaced, ns);
  at_hand_ -= replaced;
}

// One that is far out, as after a rest, says little of how long it usually takes.
void SignalPolicy::Reacted(double ns) {
  if (reaction_ns_ == 0) reaction_ns_ = quick_reaction_ns_ = std::min<double>(ns, kMostNs);
  ns = std::min(ns, 2 * reaction_ns_);
  reaction_ns_ += (ns - reaction_ns_) / 8;
  quick_reaction_ns_ += (ns - quick_reaction_ns_) / (ns < quick_reaction_ns_ ? 2 : 64);
}

void SignalPolicy::Pace::Add(uint32_t more, double in_ns) {
  requests += more;
  ns += in_ns;
  if (requests <= kRemembered) return;
  requests /= 2;
  ns /= 2;
}

// Requests on several processors, or of many users who each take their time, come the faster the
// more of them the guest has; those of one busy processor do not.
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

SignalReason SignalPolicy::Decide(int64_t now_ns) {
  if (at_hand_ == 0) return SignalReason::kDry;
  if (reaction_ns_ == 0) return SignalReason::kUnknown;
  if (WouldBeFaster()) return SignalReason::kFaster;
  return Look(now_ns, now_ns);
}

SignalReason SignalPolicy::Look(int64_t since_ns, int64_t now_ns) {
  if (at_hand_ == 0) return SignalReason::kDry;
  if (now_ns - since_ns > kMostNs) return SignalReason::kAge;
  if (!IsSilent(now_ns)) return SignalReason::kHold;
  at_hand_ = 0;  // the guest has other plans with it
  return SignalReason::kSilence;
}

SignalExplanation SignalPolicy::Explain() const {
  SignalExplanation explanation = {.reaction_ns = reaction_ns_, .silence_ns = SilenceNs()};
  for (size_t i = 0; i < kBuckets; ++i) {
    if (paces_[i].known()) explanation.ns_per_request[i] = 1 / paces_[i].rate();
  }
  return explanation;
}

}  // namespace ringside
