// A virtio device whose queues are served by I/O threads, any of them by any: all that has to do
// with threads and with the life of a queue, so that a device says only what it is and what its
// queues do.
//
//   class Dice final : public QueuedDevice {
//     class Queue : AnsweringQueue { uint32_t Serve(ChainBuffers& buffers) override { ... } };
//     std::unique_ptr<QueueWorker> NewWorker(...) override { return make_unique<Queue>(...); }
//     ...
//   };
//
// Threads: as VirtioDevice; MoveQueue, Needs, Forget, the statistics and io_thread from any.
// Ownership: guest memory and the I/O threads outlive it; it is reset, and no queue of it is
// moving, before it goes.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "devices/queue_life.h"
#include "devices/shared_rest.h"

namespace ringside {

class QueuedDevice : public VirtioDevice, private QueueLife::Owner {
 public:
  struct QueueConfig {
    uint16_t count = 1;
    uint16_t size = 256;  // at most; a power of two
    bool trace_latency = false;
  };

  // Has `to` serve the queue, in the middle of I/O, too; nothing is lost or done twice. What is in
  // flight is waited for, however long it takes. See QueueLife::MoveTo for `done`.
  virtual void MoveQueue(uint16_t queue, IoThread& to, QueueLife::MoveDone done);
  // Of a device that is not active and not moving: has `to` serve the queue once it is.
  void Place(uint16_t queue, IoThread& to) { queues_[queue]->Place(to); }
  IoThread& io_thread(uint16_t queue) const { return queues_[queue]->io_thread(); }
  // Whether a queue is served there, or is moving to or from there.
  bool Needs(const IoThread& io_thread) const;
  // Lets go of what it has on an I/O thread that it does not need: the thread is about to end.
  virtual void Forget(IoThread& /*io_thread*/) {}

  const QueueStats& stats(uint16_t queue) const { return stats_[queue]; }
  // Requests that its backend has now.
  uint64_t in_flight() const;
  // Those that failed and wait for Resume.
  uint64_t kept() const;
  // A trace for SetTrace: some 4 MiB.
  std::unique_ptr<LatencyTrace> NewTrace(uint16_t queue);
  // See QueueLife. Also of a device that is not active and not moving, on any thread.
  std::unique_ptr<LatencyTrace> SetTrace(uint16_t queue, std::unique_ptr<LatencyTrace> trace) {
    return queues_[queue]->SetTrace(std::move(trace));
  }
  // Since it was set, resets and moves included; null if not wanted. To be read on the queue's I/O
  // thread, or while the device is reset.
  const LatencyTrace* trace(uint16_t queue) const { return queues_[queue]->trace(); }

  // Likewise; see QueueLife.
  SignalExplanation ExplainSignals(uint16_t queue) const {
    return queues_[queue]->ExplainSignals();
  }
  void RecordSignals(uint16_t queue) { queues_[queue]->RecordSignals(); }
  const SignalRecords* signals(uint16_t queue) const { return queues_[queue]->signals(); }

  uint16_t queue_count() const final { return static_cast<uint16_t>(queues_.size()); }
  uint16_t max_queue_size(uint16_t) const final { return queue_size_; }
  void Activate(uint64_t features, std::span<const QueueSetup> queues, VirtioEvents& events) final;
  void Reset(Task& done) final;
  void Pause(Task& done) final { rest_.Begin(SharedRest::Holder::kMachine, done); }
  void Resume() final { rest_.End(SharedRest::Holder::kMachine); }
  // The same for whoever exchanges what is behind the device, whether the machine is paused or not.
  void BeginExchange(Task& done) { rest_.Begin(SharedRest::Holder::kExchange, done); }
  void EndExchange() { rest_.End(SharedRest::Holder::kExchange); }
  uint16_t Position(uint16_t queue) const final { return queues_[queue]->position(); }

 protected:
  // Queue i is served by io_threads[i], and by the first ones again where there are fewer of them.
  // There is one at least.
  QueuedDevice(const GuestMemory& memory, const std::vector<IoThread*>& io_threads,
               const QueueConfig& config);

  // What a device adds to Activate and Reset, before its queues are started and stopped.
  virtual void Activated(uint64_t /*features*/) {}
  virtual void ResetBegins() {}
  absl::Status Prepare(IoThread& /*io_thread*/) override { return absl::OkStatus(); }
  // Of a device whose queues rest: each goes on with a worker of its own making, as after a move.
  void RenewWorkers();

 private:
  void QueueIsDown() final;
  void QueueRests() final { rest_.QueueRests(); }

  const uint16_t queue_size_;
  std::vector<QueueStats> stats_;  // by queue
  std::vector<std::unique_ptr<QueueLife>> queues_;
  std::atomic<size_t> queues_up_{0};
  Task* reset_done_ = nullptr;
  SharedRest rest_{queues_};
};

}  // namespace ringside
