#include "devices/queue_worker.h"

namespace ringside {

QueueWorker::QueueWorker(const Parts& parts, const QueueSetup& setup, uint64_t features)
    : Source(setup.kick->fd()),
      parts_(parts),
      call_(*setup.call),
      queue_(parts.memory, RingLayout(setup, features)) {
  if (parts.trace != nullptr) parts.trace->Restart();
  ReportIfBroken();
}

// Neither thread has anything of it in flight.
QueueWorker::QueueWorker(const Parts& parts, const QueueWorker& before)
    : Source(before.wake_fd()), parts_(parts), call_(before.call_), queue_(before.queue_) {}

void QueueWorker::Close() {
  closing_ = true;
  Recall();
}

void QueueWorker::Stop() {
  stopped_ = true;
  Close();
  Forget();
}

void QueueWorker::Leave() {
  leaving_ = true;
  Close();
  queue_.EnableNotify();  // as whoever it is attached to next expects
}

void QueueWorker::Publish() {
  // The hook runs behind this: whoever it tells finds everything shown.
  if (leaving_) TellIfIdle();
  // A stopped queue is no longer the driver's to look at, a broken one is not to be trusted.
  if (stopped_ || queue_.error() != nullptr) return;
  Show();
}

void QueueWorker::Show() {
  parts_.stats.batches.Add();
  const bool interrupt = queue_.Publish();
  if (parts_.trace != nullptr) parts_.trace->Published();
  if (interrupt) {
    parts_.stats.interrupts.Add();
    call_.Signal();
  }
  using Interrupt = LatencyTrace::Interrupt;
  if (parts_.trace != nullptr) {
    parts_.trace->Finish(interrupt ? Interrupt::kRaised : Interrupt::kSuppressed);
  }
}

// Once: a broken queue has no work, so nobody comes here again.
void QueueWorker::ReportIfBroken() {
  if (queue_.error() != nullptr) parts_.events.NeedsReset(queue_.error());
}

void AnsweringQueue::Run() {
  Observed([this](auto observer) { ServeAll(observer); });
}

template <typename Observer>
void AnsweringQueue::ServeAll(Observer observer) {
  QueueStats& stats = parts().stats;
  uint64_t moved = 0;
  uint16_t answered = 0;
  for (; answered < queue().size() && moved < kTurnBytes; ++answered) {
    observer.Seen();
    DescriptorChain chain;
    if (queue().Take(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_)) break;
    const uint64_t read = TotalLength(buffers_.readable());
    const uint32_t written = Serve(buffers_);
    if (queue().error() != nullptr) break;
    (written > 0 ? stats.reads : stats.writes).Add();
    stats.bytes_read.Add(written);
    stats.bytes_written.Add(read);
    const auto kind = written > 0 ? RequestKind::kRead : RequestKind::kWrite;
    observer.Taken(chain.head(), kind, read + written);
    Answer(std::move(chain), written);
    moved += read + written;
  }
  // What was taken in good order is the driver's, also before a chain that was not.
  if (queue().error() != nullptr && answered > 0) Show();
  ReportIfBroken();
}

}  // namespace ringside
