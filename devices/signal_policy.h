// When the interrupt for completions that are in the used ring already is raised: when the guest
// has use for it. Pure logic for one queue: no clock, no thread, no guest memory, so that a
// simulated guest can drive it (benchmarks/signal_simulator).
//
// What a guest was handed and has not replaced by a new request yet is *at hand*: it is what the
// guest is busy with. An interrupt on top of that takes the processor from it, and brings back as
// small a batch of requests as it carried. So the interrupt waits while there is something at hand,
// as long as the guest gets on with it, and unless the guest gets on faster the more it has.
// docs/signalling.md has what is promised.
//
// Threads: one at a time.
// Units: ns of any clock that does not run backwards.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "ringside/explanation.h"

namespace ringside {

// As written in reports.
const char* SignalReasonName(SignalReason reason);

class SignalPolicy {
 public:
  // The only time that is not measured: no interrupt is held for longer.
  static constexpr int64_t kMostNs = 5'000'000;

  // Whether the guest has anything at hand; else Took need not be called.
  bool busy() const { return at_hand_ > 0; }

  // The guest was interrupted for `count` completions, or finds them without that.
  void Handed(uint32_t count, int64_t now_ns);
  // The guest was seen to have made `count` requests available.
  void Took(uint32_t count, int64_t now_ns);
  // Completions were shown of which the guest wants to hear. kHold: later, see Look.
  SignalReason Decide(int64_t now_ns);
  // Of an interrupt that is held since `since_ns`.
  SignalReason Look(int64_t since_ns, int64_t now_ns);

  SignalExplanation Explain() const;

 private:
  static constexpr size_t kBuckets = SignalExplanation::kPaces;
  static constexpr double kEnough = 8;
  static constexpr double kRemembered = 64;
  static constexpr double kFasterBy = 1.3;

  // How fast the guest has replaced what it had at hand, when that was about so much.
  struct Pace {
    double requests = 0;
    double ns = 0;

    void Add(uint32_t more, double in_ns);
    bool known() const { return requests >= kEnough; }
    double rate() const { return requests / ns; }
  };

  static size_t BucketOf(uint32_t at_hand) {
    return std::min<size_t>(std::bit_width(at_hand) - 1, kBuckets - 1);
  }
  void Reacted(double ns);
  bool WouldBeFaster() const;
  double SilenceNs() const { return std::min(2 * reaction_ns_, 8 * quick_reaction_ns_); }
  bool IsSilent(int64_t now_ns) const {
    return static_cast<double>(now_ns - progress_ns_) > SilenceNs();
  }

  uint32_t at_hand_ = 0;
  bool reacts_ = false;      // it had nothing at hand, and was handed something
  int64_t progress_ns_ = 0;  // when it last got on
  // From being handed something to its first new request, on average and when it is quick.
  double reaction_ns_ = 0;
  double quick_reaction_ns_ = 0;
  std::array<Pace, kBuckets> paces_;  // by BucketOf what was at hand
};

}  // namespace ringside
