#include "devices/net_transmit_queue.h"

namespace ringside {

static_assert(ChainBuffers::kMax <= kMaxFrameParts);

NetTransmitQueue::NetTransmitQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                                   const QueueSetup& setup, uint64_t features)
    : QueueWorker(parts, setup, features, QueueSignal::Hold::kNever),
      port_(port),
      channel_(channel),
      gate_(port.throttle, parts.stats.throttle, BlockOp::kWrite) {}

NetTransmitQueue::NetTransmitQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                                   const NetTransmitQueue& before)
    : QueueWorker(parts, before),
      port_(port),
      channel_(channel),
      gate_(before.gate_),
      paid_(before.paid_) {}

void NetTransmitQueue::Run() {
  gate_.Begin();
  Observed([this](auto observer) { SendAll(observer); });
  ReportIfBroken();
}

template <typename Observer>
void NetTransmitQueue::SendAll(Observer observer) {
  QueueStats& stats = parts().stats;
  uint64_t moved = 0;
  uint32_t answered = 0;
  for (;; ++answered) {
    if (answered == kNetTurnFrames || moved >= kNetTurnBytes) {
      gate_.CutShort();
      break;
    }
    observer.Seen();
    DescriptorChain chain;
    if (TakeChains(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_)) break;
    const uint64_t bytes = TotalLength(buffers_.readable());
    if (!paid_ && !gate_.Admit(bytes)) {
      HoldBack(std::span(&chain, 1));
      if (channel_.HasUnsent()) io_thread().Arm(writable_);
      return io_thread().Arm(timer_, gate_.ask_again_ns());
    }
    observer.Taken(chain.head(), RequestKind::kWrite, bytes);
    observer.Submits();
    io_thread().HandsOverAtOnce();
    observer.Submitted(chain.head());
    const FrameChannel::Sent sent = Send(bytes);
    paid_ = sent == FrameChannel::Sent::kFull;
    if (paid_) {
      HoldBack(std::span(&chain, 1));
      return io_thread().Arm(writable_);
    }
    stats.writes.Add();
    if (sent == FrameChannel::Sent::kYes) {
      stats.bytes_written.Add(bytes - kNetHeaderSize);
    } else {
      stats.errors.Add();
    }
    Answer(std::move(chain), 0);
    moved += bytes;
  }
  if (channel_.HasUnsent()) io_thread().Arm(writable_);
  // What was taken in good order is the driver's, also before a chain that was not.
  if (queue().error() != nullptr && answered > 0) Show();
}

// What the kernel, or another process, would refuse goes no further.
bool NetTransmitQueue::IsFrame(uint64_t bytes) {
  return bytes >= kLeastFrame && bytes <= kMaxFrame;
}

FrameChannel::Sent NetTransmitQueue::Send(uint64_t bytes) {
  using enum FrameChannel::Sent;
  if (!IsFrame(bytes) || !port_.link_up.load(std::memory_order_relaxed)) return kDropped;
  size_t count = 0;
  for (const Segment& segment : buffers_.readable()) {
    parts_of_it_[count++] = {segment.host, segment.length};
  }
  const FrameChannel::Sent sent = channel_.Send(std::span(parts_of_it_).first(count));
  if (sent == kGone) port_.owner.NetworkGone(parts().events);
  return sent;
}

void NetTransmitQueue::SendUnsent() {
  const FrameChannel::Sent sent = channel_.Flush();
  if (sent == FrameChannel::Sent::kFull) return io_thread().Arm(writable_);
  if (sent == FrameChannel::Sent::kGone) port_.owner.NetworkGone(parts().events);
  LetGo();
}

void NetTransmitQueue::AskAgain(int64_t /*now_ns*/) {
  LetGo();
}

// What was held back asks again when the queue goes on, on this thread or another.
void NetTransmitQueue::EndWait() {
  io_thread().Disarm(timer_);
  io_thread().Disarm(writable_);
  gate_.Interrupt();
  LetGo();
}

void NetTransmitQueue::Resume() {
  if (channel_.HasUnsent()) io_thread().Arm(writable_);
}

}  // namespace ringside
