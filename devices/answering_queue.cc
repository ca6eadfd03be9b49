#include "devices/answering_queue.h"

namespace ringside {

void AnsweringQueue::Run() {
  Observed([this](auto observer) { ServeAll(observer); });
}

template <typename Observer>
void AnsweringQueue::ServeAll(Observer observer) {
  QueueStats& stats = parts().stats;
  const uint64_t most = parts().io_thread.serves_many() ? kSharedTurnBytes : kTurnBytes;
  uint64_t moved = 0;
  size_t answered = 0;
  for (; answered < turn_requests() && moved < most; ++answered) {
    observer.Seen();
    DescriptorChain chain;
    if (TakeChains(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_)) break;
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
