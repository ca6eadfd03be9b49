#include "devices/vsock_queues.h"

#include <atomic>

#include "base/status.h"
#include "block/segment_cursor.h"
#include "devices/net_port.h"

namespace ringside {

// Receiving: to the guest.

void VsockReceiveQueue::Resume() {
  const absl::Status status = hub_.Arrived(VsockHub::Side::kReceive, *this, io_thread());
  if (!status.ok()) parts().events.NeedsReset(Message(status));
}

// Something has come for the guest.
void VsockReceiveQueue::LookAgain() {
  Written();
  if (!hub_.HasForGuest() || QueueWorker::HasWork()) return;
  asked_ = true;
  QueueWorker::EnableNotify();
  // Our wish before our next look at its index: pairs with the driver's barrier between its store
  // of the index and its look at our wish (VIRTIO 1.2, section 2.7.13.4.1).
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

bool VsockReceiveQueue::IsUsable() {
  if (!buffers_.readable().empty()) return queue().Break("a receive buffer is to be read");
  // One that a header fills would never take data.
  if (TotalLength(buffers_.writable()) > kVsockHeaderSize) return true;
  return queue().Break("a receive buffer has no room for a packet");
}

void VsockReceiveQueue::Run() {
  if (std::exchange(asked_, false)) QueueWorker::DisableNotify();
  QueueStats& stats = parts().stats;
  uint64_t moved = 0;
  uint32_t packets = 0;
  for (; packets < kNetTurnFrames && moved < kNetTurnBytes && hub_.HasForGuest(); ++packets) {
    DescriptorChain chain;
    if (TakeChains(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_) || !IsUsable()) {
      break;
    }
    const uint32_t size = hub_.Fill(buffers_.writable());
    if (size == 0) {
      PutBack(std::span(&chain, 1));
      break;
    }
    stats.reads.Add();
    stats.bytes_read.Add(size - kVsockHeaderSize);
    if (LatencyTrace* const trace = this->trace(); trace != nullptr) {
      trace->Seen();
      trace->Taken(chain.head(), RequestKind::kRead, size);
    }
    Answer(std::move(chain), size);
    moved += size;
  }
  // What was taken in good order is the driver's, also before a chain that was not.
  if (queue().error() != nullptr && packets > 0) Show();
  ReportIfBroken();
}

// Transmitting: from the guest.

void VsockTransmitQueue::Resume() {
  const absl::Status status = hub_.Arrived(VsockHub::Side::kTransmit, *this, io_thread());
  if (!status.ok()) parts().events.NeedsReset(Message(status));
}

// The header of the chain at hand, which may be in any pieces: copied once, as the guest may change
// it meanwhile. False: it has none.
bool VsockTransmitQueue::TakePacket(VsockHeader& header) {
  VsockHeaderBytes bytes;
  if (TotalLength(buffers_.readable()) < bytes.size()) {
    return queue().Break("a packet is shorter than its header");
  }
  if (!buffers_.writable().empty()) return queue().Break("a packet is to be written");
  CopyFromSegments(buffers_.readable(), {}, bytes);
  header = DecodeVsockHeader(bytes);
  return true;
}

void VsockTransmitQueue::Run() {
  QueueStats& stats = parts().stats;
  uint64_t moved = 0;
  uint32_t packets = 0;
  for (; packets < kNetTurnFrames && moved < kNetTurnBytes && hub_.TakesPackets(); ++packets) {
    LatencyTrace* const trace = this->trace();
    if (trace != nullptr) trace->Seen();
    DescriptorChain chain;
    VsockHeader header;
    if (TakeChains(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_) ||
        !TakePacket(header)) {
      break;
    }
    const uint32_t length = header.op == VsockOp::kData ? header.length : 0;
    if (trace != nullptr) trace->Taken(chain.head(), RequestKind::kWrite, length);
    stats.writes.Add();
    if (hub_.Receive(header, BehindVsockHeader(buffers_.readable(), length, payload_))) {
      stats.bytes_written.Add(length);
    } else {
      stats.errors.Add();
    }
    Answer(std::move(chain), 0);
    moved += kVsockHeaderSize + length;
  }
  hub_.SendGathered();
  if (queue().error() != nullptr && packets > 0) Show();
  ReportIfBroken();
}

}  // namespace ringside
