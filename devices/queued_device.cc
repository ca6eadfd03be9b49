#include "devices/queued_device.h"

#include <algorithm>

namespace ringside {

QueuedDevice::QueuedDevice(const GuestMemory& memory, const std::vector<IoThread*>& io_threads,
                           const QueueConfig& config)
    : queue_size_(config.size), stats_(config.count) {
  QueueLife::Owner& owner = *this;
  for (uint16_t i = 0; i < config.count; ++i) {
    const QueueLife::Shared shared = {.index = i, .memory = memory, .stats = stats_[i]};
    queues_.push_back(
        std::make_unique<QueueLife>(owner, shared, *io_threads[i % io_threads.size()]));
    if (config.trace_latency) (void)SetTrace(i, NewTrace(i));
  }
}

std::unique_ptr<LatencyTrace> QueuedDevice::NewTrace(uint16_t queue) {
  return std::make_unique<LatencyTrace>(queue_size_, stats_[queue].latencies);
}

void QueuedDevice::MoveQueue(uint16_t queue, IoThread& to, QueueLife::MoveDone done) {
  queues_[queue]->MoveTo(to, std::move(done));
}

bool QueuedDevice::Needs(const IoThread& io_thread) const {
  return std::ranges::any_of(queues_, [&](const auto& queue) { return queue->Needs(io_thread); });
}

uint64_t QueuedDevice::in_flight() const {
  uint64_t sum = 0;
  for (const QueueStats& stats : stats_) sum += stats.in_flight.Get();
  return sum;
}

uint64_t QueuedDevice::kept() const {
  uint64_t sum = 0;
  for (const QueueStats& stats : stats_) sum += stats.kept.Get();
  return sum;
}

void QueuedDevice::Activate(uint64_t features, std::span<const QueueSetup> queues,
                            VirtioEvents& events) {
  Activated(features);
  // One more than are up, so that Reset itself is done with the device before it is over.
  queues_up_.store(queues.size() + 1, std::memory_order_relaxed);
  for (const QueueSetup& queue : queues) queues_[queue.index]->Start(features, queue, events);
}

void QueuedDevice::Reset(Task& done) {
  ResetBegins();
  reset_done_ = &done;
  for (const auto& queue : queues_) queue->Stop();
  QueueIsDown();
}

void QueuedDevice::RenewWorkers() {
  for (const auto& queue : queues_) queue->Renew();
}

void QueuedDevice::QueueIsDown() {
  // Acquire and release: the last one sees that all others are done with the device.
  if (queues_up_.fetch_sub(1, std::memory_order_acq_rel) == 1) reset_done_->Run();
}

}  // namespace ringside
