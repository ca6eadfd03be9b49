// When the interrupt for completions that are in the used ring already is raised: when the guest
// has use for it. Pure logic for one queue: no clock, no thread, no guest memory, so that a
// simulated guest can drive it (benchmarks/signal_simulator).
//
// What a guest was handed and has not replaced by a new request yet is *at hand*: it is what the
// guest is busy with. An interrupt on top of that takes the processor from it, and brings back as
// small a batch of requests as it carried. So an interrupt may wait while the guest has more than a
// certain share of all requests at hand, and gets on with them. Which share is best depends on the
// guest and the storage: it is chosen among a few by what throughput each has given, measured by
// turns. docs/signalling.md has what is promised.
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
  static constexpr int64_t kNoTime = 0;

  // Whether the guest has anything at hand.
  bool busy() const { return at_hand_ > 0; }
  // Whether Took has to be told the time; else kNoTime does. So the one request of a guest that has
  // no more costs no look at the clock.
  bool wants_time() const { return at_hand_ > 1 || counts_anew_; }

  // The guest was interrupted for `count` completions, or finds them without that. kNoTime: it had
  // nothing at hand, and there are no others.
  void Handed(uint32_t count, int64_t now_ns);
  // The guest was seen to have made `count` requests available.
  void Took(uint32_t count, int64_t now_ns);
  // Completions were shown of which the guest wants to hear; `under_way` requests are with the
  // device, or completed and not handed over. kHold: later, see Look.
  SignalReason Decide(uint32_t in_flight, uint32_t owed, int64_t now_ns);
  // Of an interrupt that is held since `since_ns`.
  SignalReason Look(uint32_t under_way, int64_t since_ns, int64_t now_ns);

  // Whether a completion into `buffer` may be one for which somebody waits. Only while holds().
  bool IsAwaited(uint64_t buffer);
  bool holds() const { return holds_; }
  // The guest polls: what it has at hand is not known.
  void Forget() {
    at_hand_ = 0;
    counts_anew_ = false;
  }

  SignalExplanation Explain() const;

 private:
  // How much a guest may have at hand before an interrupt waits: all of its requests (none ever
  // waits), and these parts of them.
  static constexpr size_t kRungs = SignalExplanation::kRungs;
  static constexpr std::array<uint32_t, kRungs> kEighths = {8, 4, 2, 0};
  static constexpr size_t kDepths = SignalExplanation::kDepths;
  static constexpr double kSilentGaps = 2;

  // What is known of the guest while it has about so many requests.
  struct Lesson {
    std::array<double, kRungs> rates{};  // requests per ns; 0: not known
    double scatter = 0;  // of the rates that one rung gives, as a part of them
    uint32_t epochs = 0;
    uint32_t probe_every = 4;
    uint8_t best = 0;
    uint8_t rung = 0;  // in use
    uint8_t probed = 0;  // last
  };

  void CountEpoch(uint32_t requests, int64_t now_ns);
  void BeginEpoch(int64_t now_ns);
  void NextRung(Lesson& lesson);
  void CountGap(int64_t ns);
  bool IsSilent(int64_t for_ns) const {
    return static_cast<double>(for_ns) > kSilentGaps * longest_gap_ns_;
  }

  uint32_t at_hand_ = 0;
  int64_t progress_ns_ = 0;    // when it last got on
  double longest_gap_ns_ = 0;  // between two such moments, lately
  bool counts_anew_ = false;
  bool holds_ = false;   // the rung in use
  double requests_ = 0;  // all there are, lately

  // By a hash of the buffer, completed_ when one into it was completed last.
  static constexpr size_t kBufferBits = 8;
  std::array<uint32_t, size_t{1} << kBufferBits> last_seen_{};
  uint32_t completed_ = 0;

  std::array<Lesson, kDepths> lessons_;
  size_t depth_ = 0;  // the lesson that goes on
  int64_t epoch_ns_ = 0;        // when it began
  int64_t measured_ns_ = 0;     // since when its rate is measured
  uint32_t since_counted_ = 0;  // taken since counts_anew_
  int64_t count_ns_ = 0;        // for which the guest then was silent
  uint32_t taken_ = 0;          // in this epoch
  uint32_t measured_from_ = 0;  // of those; 0: what is taken may still be the rung's before
};

}  // namespace ringside
