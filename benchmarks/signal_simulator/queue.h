// A queue's signals as devices/queue_signal.h has them: what is shown, whether the guest wants to
// be told, and whether it is told now.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "benchmarks/signal_simulator/events.h"
#include "benchmarks/signal_simulator/ring.h"
#include "benchmarks/signal_simulator/signal_trace.h"
#include "benchmarks/signal_simulator/signaller.h"

namespace ringside {

struct QueueCounts {
  uint64_t raised = 0;
  std::array<uint64_t, kSignalReasons> reasons{};
  uint64_t held = 0;
  uint64_t dropped = 0;  // of those held, the ones that the guest wanted no more
  int64_t longest_hold_ns = 0;
  // Times that an interrupt was left held though no request was under way and the guest had nothing
  // that it was told of and had not replaced.
  uint64_t held_for_nobody = 0;
};

class QueueSimulation {
 public:
  // `trace`: null if nobody wants it. What it is given outlives it.
  QueueSimulation(Events& events, Ring& ring, std::unique_ptr<Signaller> signaller,
                  SignalTrace* trace)
      : events_(events),
        ring_(ring),
        signaller_(std::move(signaller)),
        trace_(trace),
        signalled_(ring.used),
        handed_(ring.used) {}

  void Took(uint32_t count);
  // These three return whether an interrupt is to be sent.
  bool Show(std::span<const IoId> ios);
  bool Look();
  bool Release();
  bool held() const { return held_; }
  QueueCounts counts() const;
  void Measure() { counts_ = {}; }

 private:
  QueueView View() const;
  bool WantsInterrupt() const;
  bool ShownForInterrupt();
  bool IsAlone() const;
  void Raise(SignalReason reason, bool timed = true);
  void FoundByDriver();
  void HandOver(bool timed);
  void EndHold();
  // Whether the policy has kept to what it promises always.
  SignalReason Judged(SignalReason reason);
  void Record(SignalEventKind kind, uint16_t index);

  Events& events_;
  Ring& ring_;
  const std::unique_ptr<Signaller> signaller_;
  SignalTrace* const trace_;
  uint16_t signalled_;  // ring_.used when the guest was last told, or wanted not to be
  uint16_t handed_;
  uint32_t unwanted_ = 0;
  bool awaited_ = false;
  bool held_ = false;
  int64_t held_since_ns_ = 0;
  QueueCounts counts_;
  uint32_t at_hand_ = 0;  // counted apart from the policy
};

}  // namespace ringside
