// A queue of a virtio device at work on one I/O thread: what is the same for all devices. It shows
// the driver what is answered once per turn, counts that, and stops, or leaves for another thread,
// in good order. Which chains Run takes, and what becomes of them, is the device's.
//
// Threads: the I/O thread it was made on; the statistics may be read by any.
// Ownership: everything it is given outlives it; it goes only when idle().
// Spec: VIRTIO 1.2, section 2.7.
#pragma once

#include "base/counter.h"
#include "devices/latency_trace.h"
#include "devices/virtio_device.h"
#include "devices/virtqueue.h"
#include "poll/io_thread.h"

namespace ringside {

// Counted over the device's life, resets and moves included. A read is what writes into the guest's
// memory, for whatever device.
struct QueueStats {
  Counter reads, writes, flushes, discards, others;  // requests taken, by kind
  Counter bytes_read, bytes_written;
  Counter errors;               // requests answered with an error
  Counter batches;              // publications of the used ring
  Counter interrupts;           // publications that signalled; the others the driver did not want
  Counter in_flight;            // no count: requests the device's backend has now
  Counter kicks_on, kicks_off;  // how often the driver was asked to kick, and not to

  uint64_t requests() const {
    return reads.Get() + writes.Get() + flushes.Get() + discards.Get() + others.Get();
  }
};

// Who follows a queue's requests past the points of devices/latency_trace.h: nobody, which costs
// nothing,
struct NoObserver {
  void Seen() {}
  void Taken(uint16_t /*head*/, RequestKind, uint64_t /*bytes*/) {}
  void Submits() {}
  void Submitted(uint16_t /*head*/) {}
};
// or the trace.
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
    LatencyTrace* trace = nullptr;  // null: no latencies are wanted
  };

  QueueWorker(const Parts& parts, const QueueSetup& setup, uint64_t features);
  // Goes on, on another thread, where `before` has left off: Leave was called and it became idle.
  QueueWorker(const Parts& parts, const QueueWorker& before);

  // Takes nothing more, shows the guest nothing more, and recalls what is under way.
  void Stop();
  // For one that is detached: takes nothing more, recalls what is under way, still shows the guest
  // what completes, and asks for kicks. The idle hook is queued with the last completion.
  void Leave();
  // Begins anew what the one before has recalled.
  virtual void Resume() {}
  bool idle() const { return parts_.stats.in_flight.Get() == 0; }

  bool HasWork() final { return !stopped_ && queue_.HasWork(); }
  void EnableNotify() final {
    parts_.stats.kicks_on.Add();
    queue_.EnableNotify();
  }
  void DisableNotify() final {
    parts_.stats.kicks_off.Add();
    queue_.DisableNotify();
  }

 protected:
  // Wants back what is under way.
  virtual void Recall() {}
  // Forgets what was recalled: nobody will begin it anew.
  virtual void Forget() {}

  // Stopped or leaving.
  bool closing() const { return closing_; }
  bool stopped() const { return stopped_; }
  Virtqueue& queue() { return queue_; }
  const Parts& parts() const { return parts_; }
  // Calls `function` with the observer of this queue's requests, which it tells before each look at
  // the queue, what is taken, and before and after each is submitted. What is answered and shown is
  // told here.
  template <typename Function>
  void Observed(Function function) {
    if (parts_.trace == nullptr) return function(NoObserver());
    function(TraceObserver{*parts_.trace, parts_.io_thread});
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
    if (parts_.trace != nullptr) parts_.trace->Answered(chain.head());
    queue_.Return(std::move(chain), written);
    parts_.io_thread.AtPublish(publish_hook_);
  }
  // Shows the driver what was answered, and signals if it wants that.
  void Show();
  void ReportIfBroken();

 private:
  void Close();
  void Publish();

  const Parts parts_;
  const InterruptLine& call_;
  Virtqueue queue_;
  HookTo<QueueWorker, &QueueWorker::Publish> publish_hook_{*this};
  bool stopped_ = false;
  bool leaving_ = false;
  bool closing_ = false;  // either
};

// One whose chains are answered at once. Once a turn has moved kTurnBytes the rest is for the next,
// so that a greedy guest cannot hog the thread.
class AnsweringQueue : public QueueWorker {
 public:
  using QueueWorker::QueueWorker;
  void Run() final;

 protected:
  static constexpr uint64_t kTurnBytes = 64 << 10;

  // Returns how many bytes it wrote to the chain's buffers. Break()s the queue where the chain
  // breaks the rules of the device.
  virtual uint32_t Serve(ChainBuffers& buffers) = 0;

 private:
  template <typename Observer>
  void ServeAll(Observer observer);

  ChainBuffers buffers_;  // of the chain at hand
};

}  // namespace ringside
