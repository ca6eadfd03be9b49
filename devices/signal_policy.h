// When the interrupt for completions that are in the used ring already is raised: when the guest
// has use for it. Pure logic for one queue: no clock, no thread, no memory of the guest's, so that
// a simulated guest can drive it (benchmarks/signal_simulator).
//
// What a guest has been handed and has not replaced by a new request is *at hand*: it is what the
// guest is busy with. An interrupt on top of that takes the guest's processor from it, and brings
// back as small a batch of requests as it carried. So the interrupt waits while enough is at hand,
// as long as the guest gets on with it and would not get on faster with more; docs/signalling.md
// has what is promised.
//
// Threads: one at a time.
// Units: ns of any clock that does not run backwards. Indices are those of the rings, modulo 2^16.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ringside {

// Why an interrupt was raised when it was.
enum class SignalReason : uint8_t {
  kRunsDry,  // the guest has next to nothing at hand
  kFaster,   // it gets on faster the more it has at hand
  kUnknown,  // too little is known of it
  kSilence,  // it does not get on with what it has
  kAge,      // none is held for longer
  kUrgent,   // something else waits for it: a flush, a thread about to sleep, a pause
  kHold,     // none yet
};
inline constexpr size_t kSignalReasons = 6;

class SignalPolicy {
 public:
  // The only time that is not measured: no interrupt is held for longer.
  static constexpr int64_t kMostNs = 5'000'000;

  // `next`: where the used ring begins.
  explicit SignalPolicy(uint16_t next) : handed_(next) {}

  // Whether the other calls need the time.
  bool timed() const { return at_hand_ > 0; }

  // The guest has made `count` new requests available.
  void Took(size_t count, int64_t now_ns);
  // The guest wants an interrupt for entries up to `shown` and has consumed those before
  // `consumed`. kHold: it waits, and is asked about again by Look.
  SignalReason Decide(uint16_t consumed, int64_t now_ns);
  // It was raised for all entries up to `shown`.
  void Raised(uint16_t shown, int64_t now_ns);
  // The guest was told of all entries up to `shown` without it, or needs to be told of none.
  void Consumed(uint16_t shown, int64_t now_ns) { Hand(shown, now_ns); }
  // Of one that is held since `since_ns`.
  SignalReason Look(uint16_t consumed, int64_t since_ns, int64_t now_ns);

 private:
  static constexpr size_t kBuckets = 11;
  // How fast the guest has replaced what it had at hand, by how much that was.
  struct Pace {
    double steps = 0;
    double ns = 0;
    void Add(uint32_t more, double in_ns) {
      steps += more;
      ns += in_ns;
      if (steps <= kRemembered) return;
      steps /= 2;
      ns /= 2;
    }
    bool known() const { return steps >= kEnough; }
    double rate() const { return steps / ns; }
  };
  static constexpr double kEnough = 8;
  static constexpr double kRemembered = 64;
  static constexpr double kFasterBy = 1.3;

  static size_t BucketOf(uint32_t at_hand) {
    return std::min<size_t>(std::bit_width(at_hand) - 1, kBuckets - 1);
  }
  void Hand(uint16_t index, int64_t now_ns);
  void Reacted(double ns);
  bool WouldBeFaster() const;
  bool IsSilent(int64_t now_ns) const {
    return static_cast<double>(now_ns - progress_ns_) > SilenceNs();
  }
  double SilenceNs() const { return std::min(2 * reaction_ns_, 8 * quick_reaction_ns_); }

  uint16_t handed_;          // entries before it the guest was told of, or has consumed
  uint32_t at_hand_ = 0;     // of those, the ones it has not replaced yet
  int64_t progress_ns_ = 0;  // when it was last seen to get on
  bool reacts_ = false;      // it had nothing at hand, and was handed something
  double reaction_ns_ = 0;   // from there to its first new request
  double quick_reaction_ns_ = 0;
  std::array<Pace, kBuckets> paces_;
};

}  // namespace ringside
