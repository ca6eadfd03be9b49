// The interrupts of a virtqueue: one for completions that were shown, and that the driver wants to
// hear of, is raised at once, or held until the queue's SignalPolicy says that the guest has use
// for it. What is held is raised before the thread sleeps and when the queue leaves it, and dropped
// when the driver has found the completions by itself: the need is asked for anew when it is
// raised.
//
// No interrupt is lost by that. The used index was stored, with a fence behind it, before the
// driver was found to want one (Virtqueue::Publish); whatever used_event it stores after that, it
// looks at the index behind it once more (VIRTIO 1.2 section 2.7.14.1), and finds what is held.
//
// Threads: the queue's I/O thread; the statistics may be read by any.
// Ownership: everything it is given outlives it; nothing is held when it goes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/counter.h"
#include "devices/interrupt.h"
#include "devices/latency_trace.h"
#include "devices/signal_policy.h"
#include "devices/signal_records.h"
#include "devices/virtqueue.h"
#include "poll/io_thread.h"

namespace ringside {

struct SignalStats {
  std::array<Counter, kSignalReasons> raised;  // by SignalReason
  Counter held;                                // interrupts that were wanted and waited
  Counter held_ns;                             // in all
  Counter dropped;                             // held ones that were wanted no more

  uint64_t total() const {
    uint64_t sum = 0;
    for (const Counter& each : raised) sum += each.Get();
    return sum;
  }
};

class QueueSignal final : private HeldSignal {
 public:
  // kNever: of a queue whose completions answer nothing that the guest has asked for, such as
  // frames that come in, so that there is nothing to learn of it.
  enum class Hold { kWhereItPays, kNever };
  struct Parts {
    Virtqueue& queue;
    const InterruptLine& call;
    IoThread& io_thread;
    SignalStats& stats;
    SignalRecords* records = nullptr;  // null: none are wanted
    Hold hold = Hold::kWhereItPays;
  };

  explicit QueueSignal(const Parts& parts) : parts_(parts), handed_(parts.queue.position()) {}
  // Goes on, on another thread, with what `before` has learned.
  QueueSignal(const Parts& parts, const QueueSignal& before)
      : parts_(parts), policy_(before.policy_), handed_(before.handed_) {}

  // Chains were taken.
  void Took(size_t count) {
    if (parts_.records != nullptr) Record(SignalStep::kTook, parts_.queue.position());
    if (!may_hold()) return;
    policy_.Took(static_cast<uint32_t>(count),
                 policy_.wants_time() ? MonotonicNs() : SignalPolicy::kNoTime);
  }
  // What is shown next is not to wait.
  void Hurry() { hurry_ = SignalReason::kHurry; }
  // A request into or from `buffer` was completed, and is shown next.
  void Completed(const std::byte* buffer) {
    if (policy_.holds() && policy_.IsAwaited(reinterpret_cast<uintptr_t>(buffer)) && !hurry_) {
      hurry_ = SignalReason::kAwaited;
    }
  }
  // Answers were shown; `wanted`: the driver wants to hear of them. `trace` is told what becomes of
  // the interrupt, now or later; null: nobody listens.
  void Shown(bool wanted, LatencyTrace* trace);
  // Raises what is held, if it is still wanted.
  void Release() override;
  // Forgets what is held: the ring is not the driver's any more.
  void Drop();

  Hold hold() const { return parts_.hold; }
  SignalExplanation Explain() const { return policy_.Explain(); }

 private:
  bool may_hold() const { return parts_.hold == Hold::kWhereItPays && parts_.io_thread.may_hold(); }
  void Look(int64_t now_ns) override;
  // `hurry`: why it is not to wait.
  void ShownForInterrupt(std::optional<SignalReason> hurry, LatencyTrace* trace);
  // Completions that were shown and not handed over.
  uint16_t owed() const { return static_cast<uint16_t>(parts_.queue.shown() - handed_); }
  bool IsAlone() const;
  void BeginHold(int64_t now_ns, LatencyTrace* trace);
  void EndHold(int64_t now_ns);
  void Forget();
  void FoundByDriver();
  void Raise(SignalReason reason, int64_t now_ns);
  void HandOver(int64_t now_ns);
  void Record(SignalStep step, uint16_t index);

  const Parts parts_;
  SignalPolicy policy_;
  uint16_t handed_;  // the used index up to which the guest was told, or needed not to be
  std::optional<SignalReason> hurry_;  // why what is shown next is not to wait
  uint32_t unwanted_ = 0;  // publications in a row of which the driver did not want to hear
  int64_t held_since_ns_ = 0;
  LatencyTrace* trace_ = nullptr;  // of what is held
};

}  // namespace ringside
