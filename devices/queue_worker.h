// A queue of a virtio device at work on one I/O thread: what is the same for all devices. It shows
// the driver what is answered once per turn, counts that, and stops, or leaves for another thread,
// in good order. Which chains Run takes, and what becomes of them, is the device's.
//
// Threads: the I/O thread it was made on; the statistics may be read by any.
// Ownership: everything it is given outlives it; it goes only when idle().
// Spec: VIRTIO 1.2, section 2.7.
#pragma once

#include <algorithm>
#include <ranges>
#include <span>

#include "base/counter.h"
#include "block/throttle_gate.h"
#include "devices/latency_trace.h"
#include "devices/queue_signal.h"
#include "devices/virtio_device.h"
#include "devices/virtqueue.h"
#include "poll/io_thread.h"

namespace ringside {

// Counted over the device's life, resets and moves included. A read is what writes into the guest's
// memory, for whatever device.
struct QueueStats {
  Counter reads, writes, flushes, discards, others;  // requests taken, by kind
  Counter bytes_read, bytes_written;
  Counter errors;   // requests that failed and were answered
  Counter batches;  // publications of the used ring
  SignalStats signals;
  ThrottleStats throttle;
  Counter in_flight;            // no count: requests the device's backend has now
  Counter kept;                 // likewise: that failed, and are tried again by Resume
  Counter kicks_on, kicks_off;  // how often the driver was asked to kick, and not to
  LatencyHistograms latencies;  // of requests that were traced

  uint64_t requests() const {
    return reads.Get() + writes.Get() + flushes.Get() + discards.Get() + others.Get();
  }
};

// Who follows a queue's requests past the points of devices/latency_trace.h is one of two. This one
// follows none, and costs nothing.
struct NoObserver {
  void Seen() {}
  void Taken(uint16_t /*head*/, RequestKind, uint64_t /*bytes*/) {}
  void Submits() {}
  void Submitted(uint16_t /*head*/) {}
};
// Stamps each in the queue's trace.
struct TraceObserver {
  LatencyTrace& trace;
  IoThread& io_thread;
  uint64_t at_once_before = 0;

  void Seen() { trace.Seen(); }
  void Taken(uint16_t head, RequestKind kind, uint64_t bytes) { trace.Taken(head, kind, bytes); }
  void Submits() { at_once_before = io_thread.handed_over_at_once(); }
  void Submitted(uint16_t head) {
    if (io_thread.handed_over_at_once() != at_once_before) return trace.SubmitNow(head);
    io_thread.BeforeHandOver(trace.SubmitLater(head));
  }
};

class QueueWorker : public Source {
 public:
  struct Parts {
    const GuestMemory& memory;
    IoThread& io_thread;
    QueueStats& stats;
    VirtioEvents& events;
    Hook& idle_hook;                // queued at AtPublish when a stopped or leaving queue is idle
    LatencyTrace* trace = nullptr;  // that it begins with; null: no latencies are wanted
    SignalRecords* signals = nullptr;  // null: none are wanted
  };

  // `wake`: what has it looked at instead of the driver's kick, which somebody else hears.
  QueueWorker(const Parts& parts, const QueueSetup& setup, uint64_t features,
              QueueSignal::Hold hold = QueueSignal::Hold::kWhereItPays,
              const EventFd* wake = nullptr)
      : Source((wake != nullptr ? wake : setup.kick)->fd()),
        parts_(parts),
        call_(*setup.call),
        queue_(parts.memory, RingLayout(setup, features)),
        signal_({queue_, call_, parts.io_thread, parts.stats.signals, parts.signals, hold}),
        trace_(parts.trace) {
    if (parts.trace != nullptr) parts.trace->Restart();
    ReportIfBroken();
  }
  // Goes on, on another thread, where `before` has left off: Leave or Drain was called and it
  // became idle.
  QueueWorker(const Parts& parts, const QueueWorker& before)
      : Source(before.wake_fd()),
        parts_(parts),
        call_(before.call_),
        queue_(before.queue_),
        signal_({queue_, call_, parts.io_thread, parts.stats.signals, parts.signals,
                 before.signal_.hold()},
                before.signal_),
        trace_(parts.trace) {}

  // Takes nothing more, shows the guest nothing more, and recalls what is under way.
  void Stop() {
    stopped_ = closing_ = looks_away_ = true;
    signal_.Drop();
    Recall();
    Forget();
  }
  // For one that is detached: takes nothing more, recalls what is under way, still shows the guest
  // what completes, and asks for kicks. The idle hook is queued when the last of it is shown.
  void Leave() {
    leaving_ = closing_ = true;
    signal_.Release();
    Recall();
    queue_.EnableNotify();  // as whoever it is attached to next expects
  }
  // For one that is detached: takes nothing more, and asks for kicks. What is under way goes on to
  // its end and is shown; the idle hook is queued when the last of it is.
  void Drain() {
    leaving_ = true;
    signal_.Release();
    Drains();
    queue_.EnableNotify();
  }
  // Goes on after Drain, on the same thread; it is attached again next.
  void GoOn() { leaving_ = false; }
  // It is attached. Begins anew what the one before has recalled, and what failed and was kept.
  virtual void Resume() {}
  // Nothing is under way, and nothing is left to be shown: no hook of it is queued.
  bool idle() const { return parts_.stats.in_flight.Get() == 0 && !publish_hook_.queued(); }
  IoThread& io_thread() const { return parts_.io_thread; }
  // Between the steps of a turn. A hook of the trace before may still be queued for this turn.
  void SetTrace(LatencyTrace* trace) {
    signal_.Release();
    trace_ = trace;
  }
  SignalExplanation ExplainSignals() const { return signal_.Explain(); }
  // Where the ring is: all that a queue has of its own once it is idle.
  virtual uint16_t position() const { return queue_.position(); }

  bool HasWork() override { return !looks_away_ && queue_.HasWork(); }
  void EnableNotify() override {
    parts_.stats.kicks_on.Add();
    queue_.EnableNotify();
  }
  void DisableNotify() override {
    parts_.stats.kicks_off.Add();
    queue_.DisableNotify();
  }

 protected:
  // Wants back what is under way.
  virtual void Recall() {}
  // Lets go of what would not come to its end by itself.
  virtual void Drains() {}
  // Forgets what was recalled: nobody will begin it anew.
  virtual void Forget() {}

  // Stopped or leaving.
  bool closing() const { return closing_; }
  bool stopped() const { return stopped_; }
  // Neither that nor draining.
  bool takes() const { return !stopped_ && !leaving_; }
  Virtqueue& queue() { return queue_; }
  // As many a turn takes at most: a ring's worth, or a share of a thread that serves others, too.
  size_t turn_requests() const {
    const size_t ring = queue_.size();
    return parts_.io_thread.serves_many() ? std::min(ring, IoThread::kTurnRequests) : ring;
  }
  const Parts& parts() const { return parts_; }
  LatencyTrace* trace() const { return trace_; }
  // Calls `function` with the observer of this queue's requests, which it tells before each look at
  // the queue, what is taken, and before and after each is submitted. What is answered and shown is
  // told here.
  template <typename Function>
  void Observed(Function function) {
    if (trace_ == nullptr) return function(NoObserver());
    function(TraceObserver{*trace_, parts_.io_thread});
  }
  // The device's backend has a request, and has it no longer.
  void Begins() {
    parts_.stats.in_flight.Add();
    parts_.io_thread.RequestBegins();
  }
  void Ends() {
    parts_.stats.in_flight.Subtract();
    parts_.io_thread.RequestEnds();
  }
  void TellIfIdle() {
    if (idle()) parts_.io_thread.AtPublish(parts_.idle_hook);
  }
  void Answer(DescriptorChain chain, uint32_t written) {
    if (trace_ != nullptr) trace_->Answered(chain.head());
    queue_.Return(std::move(chain), written);
    parts_.io_thread.AtPublish(publish_hook_);
  }
  // Shows the driver what was answered, and signals if it wants that.
  void Show() {
    parts_.stats.batches.Add();
    if (leaving_) signal_.Hurry();
    const bool interrupt = queue_.Publish();
    if (trace_ != nullptr) trace_->Published();
    signal_.Shown(interrupt, trace_);
  }
  // Lets go of the chains that were taken last.
  void PutBack(std::span<DescriptorChain> chains) {
    for (DescriptorChain& chain : std::views::reverse(chains)) queue_.PutBack(std::move(chain));
  }
  // The same, and has no work until LetGo. Of a queue with EVENT_IDX the driver does not kick for
  // what it has made available already.
  void HoldBack(std::span<DescriptorChain> chains) {
    PutBack(chains);
    looks_away_ = true;
  }
  void LetGo() {
    looks_away_ = stopped_;
    Written();
  }
  // As Virtqueue::Take.
  size_t TakeChains(std::span<DescriptorChain> chains) {
    const size_t count = queue_.Take(chains);
    if (count > 0) signal_.Took(count);
    return count;
  }
  QueueSignal& signal() { return signal_; }
  // Once: a broken queue has no work, so nobody comes here again.
  void ReportIfBroken() {
    if (queue_.error() != nullptr) parts_.events.NeedsReset(queue_.error());
  }

 private:
  void Publish() {
    // The hook runs behind this: whoever it tells finds everything shown.
    if (!takes()) TellIfIdle();
    // A stopped queue is no longer the driver's to look at, a broken one is not to be trusted.
    if (!stopped_ && queue_.error() == nullptr && queue_.HasUnshown()) Show();
  }

  const Parts parts_;
  const InterruptLine& call_;
  Virtqueue queue_;
  QueueSignal signal_;
  LatencyTrace* trace_;  // null: no latencies are wanted
  HookTo<QueueWorker, &QueueWorker::Publish> publish_hook_{*this};
  bool looks_away_ = false;  // stopped, or held back
  bool stopped_ = false;
  bool leaving_ = false;  // or draining
  bool closing_ = false;  // stopped, or leaving for another thread
};

}  // namespace ringside
