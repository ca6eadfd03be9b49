#include "devices/net_receive_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/status.h"

namespace ringside {
namespace {

constexpr std::array<std::byte, kNetHeaderSize> kPlainHeader = {};
// So many frames that are small make it expect small ones.
constexpr uint32_t kSmallInARow = 64;

}  // namespace

NetReceiveQueue::NetReceiveQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                                 NetGate& gate, const QueueSetup& setup, uint64_t features)
    : QueueWorker(parts, setup, features, QueueSignal::Hold::kNever),
      port_(port),
      channel_(channel),
      gate_(gate),
      frames_(*this, channel.receive_fd()),
      kept_(channel.kept()) {}

NetReceiveQueue::NetReceiveQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                                 const NetReceiveQueue& before)
    : QueueWorker(parts, before),
      port_(port),
      channel_(channel),
      gate_(before.gate_),
      frames_(*this, channel.receive_fd()),
      gone_(before.gone_),
      kept_(channel.kept()) {}

// The two sides.

void NetReceiveQueue::Frames::Written() {
  queue_.readable_ = true;
  Source::Written();
  // It is of no use, and the next would not be, either. Whoever can take one watches again.
  if (queue_.hungry_ || queue_.waits_) queue_.Unwatch();
}

bool NetReceiveQueue::Watch() {
  if (watching_) return true;
  if (const absl::Status status = io_thread().Attach(frames_, Phase::kComplete); !status.ok()) {
    gone_ = true;
    parts().events.NeedsReset(Message(status));
    return false;
  }
  watching_ = true;
  readable_ = true;  // there may be frames that nobody tells of: of before, or in the channel
  return true;
}

void NetReceiveQueue::Unwatch() {
  io_thread().Detach(frames_);
  watching_ = false;
}

// The driver has brought buffers.
void NetReceiveQueue::Run() {
  hungry_ = false;
  QueueWorker::DisableNotify();
  if (!Watch()) return;
  // It may have been parked while nobody wanted its frames, and tells of none that it had then.
  frames_.Source::Written();
  if (readable_ && !waits_) ReceiveAll();
}

// Whether the driver has brought no more, and so is to kick when it does.
bool NetReceiveQueue::IsHungry() {
  hungry_ = true;
  QueueWorker::EnableNotify();
  // Our wish before our look at its index: pairs with the driver's barrier between its store of the
  // index and its look at our wish (VIRTIO 1.2, section 2.7.13.4.1).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!QueueWorker::HasWork()) return true;
  hungry_ = false;
  QueueWorker::DisableNotify();
  return false;
}

void NetReceiveQueue::LetGoOfAll() {
  Unwatch();
  io_thread().Disarm(limit_timer_);
  io_thread().Disarm(keep_timer_);
  gate_.Interrupt();
  while (end_ > first_) PutBack(std::span(&buffers_[--end_].chain, 1));
  first_ = end_ = first_part_ = end_part_ = 0;
  room_ = 0;
  hungry_ = true;
  waits_ = false;
}

// Buffers.

// Whether all that are ready have room for so many bytes, or will not have more.
bool NetReceiveQueue::MakeRoom(uint64_t size) {
  full_ = false;
  while (room_ < size && (port_.merges || first_ == end_)) {
    if (!AddBuffer()) return false;
  }
  return true;
}

bool NetReceiveQueue::AddBuffer() {
  if (first_part_ > 0) {
    std::move(&buffers_[first_], &buffers_[end_], buffers_.data());
    std::copy(&parts_of_them_[first_part_], &parts_of_them_[end_part_], parts_of_them_.data());
    end_ -= std::exchange(first_, 0);
    end_part_ -= std::exchange(first_part_, 0);
  }
  Buffer buffer;
  if (TakeChains(std::span(&buffer.chain, 1)) == 0 || !queue().Walk(buffer.chain, walked_)) {
    return false;
  }
  const std::span<Segment> writable = walked_.writable();
  buffer.size = TotalLength(writable);
  if (!walked_.readable().empty() || buffer.size < kNetHeaderSize) {
    return queue().Break("a receive buffer is to be read, or has no room for a header");
  }
  // One part is for what is beyond them. A chain with as many parts as there can be is cut short.
  const size_t left = kMaxFrameParts - 1 - end_part_;
  if (writable.size() > left && end_ > 0) {
    PutBack(std::span(&buffer.chain, 1));
    full_ = true;
    return false;
  }
  buffer.parts = static_cast<uint16_t>(std::min(writable.size(), left));
  buffer.size = TotalLength(writable.first(buffer.parts));
  for (const Segment& segment : writable.first(buffer.parts)) {
    parts_of_them_[end_part_++] = {segment.host, segment.length};
  }
  room_ += buffer.size;
  buffers_[end_++] = std::move(buffer);
  return true;
}

// Calls function(memory, offset, size) for the bytes of a frame from `from` to `to`, piece by
// piece.
template <typename Function>
void NetReceiveQueue::ForBytes(uint64_t from, uint64_t to, Function function) {
  uint64_t start = 0;
  for (size_t part = first_part_; part < end_part_ && start < to; ++part) {
    const iovec& piece = parts_of_them_[part];
    const uint64_t begin = std::max(from, start);
    const uint64_t end = std::min(to, start + piece.iov_len);
    auto* const memory = static_cast<std::byte*>(piece.iov_base);
    if (begin < end) function(memory + (begin - start), begin, end - begin);
    start += piece.iov_len;
  }
}

void NetReceiveQueue::CopyToBuffers(uint64_t from, uint64_t to) {
  ForBytes(from, to, [this](std::byte* memory, uint64_t offset, uint64_t size) {
    std::memcpy(memory, &kept_.bytes[offset], size);
  });
}

void NetReceiveQueue::CopyFromBuffers(uint64_t to) {
  ForBytes(0, to, [this](const std::byte* memory, uint64_t offset, uint64_t size) {
    std::memcpy(&kept_.bytes[offset], memory, size);
  });
}

void NetReceiveQueue::FillIn(uint64_t at, std::span<const std::byte> bytes) {
  ForBytes(at, at + bytes.size(), [=](std::byte* memory, uint64_t offset, uint64_t size) {
    std::memcpy(memory, &bytes[offset - at], size);
  });
}

// Frames.

void NetReceiveQueue::ReceiveAll() {
  gate_.Begin();
  uint64_t moved = 0;
  uint32_t frames = 0;
  while (!WaitsForLimits()) {
    if (frames == kNetTurnFrames || moved >= kNetTurnBytes) {
      gate_.CutShort();
      break;
    }
    const uint64_t size = kept_.size > 0 ? DeliverKept() : ReceiveOne();
    if (size == 0) break;
    ++frames;
    moved += size;
    if (kept_.size == 0) (void)gate_.Admit(size);
  }
  if (queue().error() == nullptr) return;
  // What was taken in good order is the driver's, also before a chain that was not.
  if (frames > 0) Show();
  ReportIfBroken();
  Unwatch();
  hungry_ = true;
}

// How many bytes one had; 0: there is none, or no buffer for it.
uint64_t NetReceiveQueue::ReceiveOne() {
  while (!MakeRoom(expected_) && first_ == end_) {
    if (queue().error() != nullptr || IsHungry()) return 0;
  }
  const ssize_t size = ReadFrame();
  if (size > 0) return static_cast<uint64_t>(size);
  readable_ = false;
  if (size == FrameChannel::kNothing) return 0;
  Unwatch();
  hungry_ = gone_ = true;
  port_.owner.NetworkGone(parts().events);
  return 0;
}

// Reads one and delivers it, or keeps or drops it. Its size, or as Receive.
ssize_t NetReceiveQueue::ReadFrame() {
  // As many buffers as it is expected to need.
  uint64_t room = 0;
  size_t end = first_part_;
  for (size_t i = first_; i < end_ && room < expected_; ++i) {
    room += buffers_[i].size;
    end += buffers_[i].parts;
  }
  const ssize_t size =
      room < kMaxFrame ? ReceiveBeyond(end, room) : channel_.Receive(PartsUpTo(end));
  if (size <= 0) return size;
  const auto bytes = static_cast<uint64_t>(size);
  Expect(bytes);
  if (bytes < kLeastFrame || !port_.link_up.load(std::memory_order_relaxed)) {
    parts().stats.errors.Add();
  } else if (bytes <= room || Keep(bytes, room)) {
    Deliver(bytes);
  }
  return size;
}

// Into these parts, which have `room`, and what is beyond that into kept_.
ssize_t NetReceiveQueue::ReceiveBeyond(size_t end, uint64_t room) {
  const iovec beyond = {&kept_.bytes[room], kMaxFrame - room};
  const iovec next = std::exchange(parts_of_them_[end], beyond);
  const ssize_t size = channel_.Receive(PartsUpTo(end + 1));
  parts_of_them_[end] = next;
  return size;
}

// Has the next frame be read into as many buffers as a frame of this size needs.
void NetReceiveQueue::Expect(uint64_t size) {
  if (size > kSmallFrame) {
    small_in_a_row_ = 0;
    expected_ = kMaxFrame;
  } else if (++small_in_a_row_ >= kSmallInARow) {
    expected_ = kSmallFrame;
  }
}

// Of a frame whose first `in_buffers` bytes are in the buffers, and the others in kept_. Whether
// all of it is in the buffers then.
[[gnu::noinline]] bool NetReceiveQueue::Keep(uint64_t size, uint64_t in_buffers) {
  if (MakeRoom(size) && room_ >= size) {
    CopyToBuffers(in_buffers, size);
    return true;
  }
  if (!port_.merges) {
    parts().stats.errors.Add();
    return false;
  }
  CopyFromBuffers(in_buffers);
  kept_.size = size;  // DeliverKept is next
  kept_.offloads = port_.offloads;
  return false;
}

// Whether the driver may still have it: one before this may have left more to the guest, and the
// link may have gone down meanwhile.
bool NetReceiveQueue::WantsKept() const {
  return (kept_.offloads & ~port_.offloads) == 0 && port_.link_up.load(std::memory_order_relaxed);
}

// How many bytes it had, whether it was delivered or dropped; 0: it is still kept.
[[gnu::noinline]] uint64_t NetReceiveQueue::DeliverKept() {
  while (WantsKept() && !MakeRoom(kept_.size) && !full_) {
    if (queue().error() == nullptr && !IsHungry()) continue;
    // Of one that has come from another thread, too.
    if (!keep_timer_.armed()) io_thread().Arm(keep_timer_, MonotonicNs() + kKeepNs);
    return 0;
  }
  io_thread().Disarm(keep_timer_);
  const uint64_t size = std::exchange(kept_.size, 0);
  if (room_ < size || !WantsKept()) {
    // The buffers are in too many pieces, or it was kept for a driver before, with merged buffers.
    parts().stats.errors.Add();
  } else {
    CopyToBuffers(0, size);
    Deliver(size);
  }
  return size;
}

// The driver has no use for it, or has fewer buffers than it takes.
void NetReceiveQueue::DropKept(int64_t /*now_ns*/) {
  kept_.size = 0;
  parts().stats.errors.Add();
  // Those that are ready do for smaller ones.
  if (first_ == end_ || queue().error() != nullptr) return;
  hungry_ = false;
  QueueWorker::DisableNotify();
  if (Watch()) frames_.Source::Written();
}

void NetReceiveQueue::Deliver(uint64_t size) {
  uint16_t count = 0;
  for (uint64_t room = 0; room < size; ++count) room += buffers_[first_ + count].size;
  if ((port_.offloads & kNetChecksum) == 0) FillIn(0, kPlainHeader);
  const std::array<std::byte, 2> num_buffers = {static_cast<std::byte>(count & 0xff),
                                                static_cast<std::byte>(count >> 8)};
  FillIn(kNumBuffersOffset, num_buffers);
  if (LatencyTrace* const trace = this->trace(); trace != nullptr) {
    trace->Seen();
    trace->Taken(buffers_[first_].chain.head(), RequestKind::kRead, size);
  }
  QueueStats& stats = parts().stats;
  stats.reads.Add();
  stats.bytes_read.Add(size - kNetHeaderSize);
  for (uint16_t i = 0; i < count; ++i) {
    Buffer& buffer = buffers_[first_++];
    first_part_ += buffer.parts;
    room_ -= buffer.size;
    const auto filled = static_cast<uint32_t>(std::min(size, buffer.size));
    size -= filled;
    // A frame is one in the trace, whatever it takes.
    if (i == 0) {
      Answer(std::move(buffer.chain), filled);
    } else {
      queue().Return(std::move(buffer.chain), filled);
    }
  }
}

// Limits.

// The last frame, also of a queue before this one, is to be paid for before the next comes in.
bool NetReceiveQueue::WaitsForLimits() {
  if (gate_.IsPaid()) return false;
  waits_ = true;
  io_thread().Arm(limit_timer_, gate_.ask_again_ns());
  return true;
}

// The turn that follows asks: asked here, too, the gate would forget how late the timer is.
void NetReceiveQueue::AskAgain(int64_t /*now_ns*/) {
  waits_ = false;
  if (!hungry_ && Watch()) frames_.Source::Written();
}

}  // namespace ringside
