// See net_pair.h.

#include "net_pair.h"

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "deadline.h"

namespace guest {
namespace {

constexpr uint16_t kGathered = 0xffff;  // slot of a frame whose buffers have been given back

}  // namespace

bool NetPair::StartSide(Side& side, VirtioTransport& transport, uint16_t queue, uint32_t processor,
                        const NetOptions& options) {
  const uint16_t size = std::min(
      {options.queue_size, transport.MaxQueueSize(queue), static_cast<uint16_t>(kMaxNetDepth)});
  if (size == 0) return Expect("net: the queue is there", 1, 0);
  side.rings.Init(size, (transport.features() & kFeatureEventIdx) != 0, /*indirect=*/false);
  if (side.buffers == 0) side.buffers = AllocatePages(kMaxNetDepth * uint64_t{kBufferBytes});
  std::memset(reinterpret_cast<void*>(side.buffers), 0, kMaxNetDepth * uint64_t{kBufferBytes});
  side.added = false;
  if (!transport.EnableQueue(queue, side.rings, processor)) return false;
  side.interrupts = &transport.InterruptCounter(queue);
  side.notify = transport.Notify(queue);
  return true;
}

bool NetPair::Start(VirtioTransport& transport, uint16_t number, uint32_t processor,
                    const NetOptions& options) {
  wait_ = options.wait;
  faults_ = 0;
  const auto queue = static_cast<uint16_t>(2 * number);
  if (!StartSide(receive_, transport, queue, processor, options) ||
      !StartSide(transmit_, transport, static_cast<uint16_t>(queue + 1), processor, options)) {
    return false;
  }
  if (gathered_ == nullptr) gathered_ = AllocateArray<uint8_t>(kMaxFrame);
  transmit_.buffer_bytes = kBufferBytes;
  receive_.buffer_bytes = options.small_buffers ? kSmallBufferBytes : kBufferBytes;
  for (uint16_t i = 0; i < receive_.rings.size(); ++i) {
    receive_.rings.WriteDescriptor(i, {.address = BufferOf(receive_, i),
                                       .length = receive_.buffer_bytes,
                                       .flags = kDescriptorWrite,
                                       .next = 0});
    if (options.buffers) receive_.rings.AddHead(i);
  }
  // Seen by the device at DRIVER_OK; the first Flush tells those that want to be told.
  receive_.rings.Publish();
  receive_.added = options.buffers;
  for (uint16_t i = 0; i < transmit_.rings.size(); ++i) {
    transmit_.rings.WriteDescriptor(
        i, {.address = BufferOf(transmit_, i), .length = 0, .flags = 0, .next = 0});
  }
  return true;
}

void NetPair::SetWait(Wait wait) {
  wait_ = wait;
  receive_.rings.SuppressInterrupts();
  transmit_.rings.SuppressInterrupts();
}

void NetPair::Transmit(uint16_t slot, uint64_t length) {
  transmit_.rings.descriptor(slot).length = static_cast<uint32_t>(sizeof(NetHeader) + length);
  transmit_.rings.AddHead(slot);
  transmit_.added = true;
}

bool NetPair::TakeTransmitted(uint16_t& slot) {
  Virtqueue::Used used;
  if (!transmit_.rings.ReadUsed(used)) return false;
  if (used.head >= transmit_.rings.size()) {
    ++faults_;
    return false;
  }
  slot = static_cast<uint16_t>(used.head);
  return true;
}

bool NetPair::TakeBuffer(uint16_t& slot, uint32_t& length) {
  Virtqueue::Used used;
  if (!receive_.rings.ReadUsed(used)) return false;
  slot = static_cast<uint16_t>(used.head);
  length = used.length;
  if (used.head < receive_.rings.size() && used.length <= receive_.buffer_bytes) return true;
  ++faults_;
  return false;
}

bool NetPair::TakeReceived(NetFrame& frame) {
  uint32_t length = 0;
  if (!TakeBuffer(frame.slot, length)) return false;
  const uint64_t buffer = BufferOf(receive_, frame.slot);
  const uint16_t buffers = reinterpret_cast<const NetHeader*>(buffer)->buffers;
  if (length < sizeof(NetHeader) || buffers == 0) {
    ++faults_;
    length = sizeof(NetHeader);
  }
  frame.data = reinterpret_cast<const uint8_t*>(buffer + sizeof(NetHeader));
  frame.length = length - sizeof(NetHeader);
  return buffers <= 1 || Gather(frame, length, buffers);
}

// The frame's other buffers are there: the device shows them with its first (section 5.1.6.4).
bool NetPair::Gather(NetFrame& frame, uint32_t first_length, uint16_t buffers) {
  uint64_t length = first_length - sizeof(NetHeader);
  std::memcpy(gathered_, frame.data, length);
  GiveBack(frame);
  for (uint16_t i = 1; i < buffers; ++i) {
    uint16_t slot = 0;
    uint32_t more = 0;
    if (!TakeBuffer(slot, more) || length + more > kMaxFrame) {
      ++faults_;
      return false;
    }
    std::memcpy(gathered_ + length, reinterpret_cast<const void*>(BufferOf(receive_, slot)), more);
    length += more;
    GiveBack({.data = nullptr, .length = 0, .slot = slot});
  }
  frame = {.data = gathered_, .length = length, .slot = kGathered};
  return true;
}

void NetPair::GiveBack(const NetFrame& frame) {
  if (frame.slot == kGathered) return;
  receive_.rings.AddHead(frame.slot);
  receive_.added = true;
}

void NetPair::FlushSide(Side& side) {
  if (!side.added) return;
  side.added = false;
  side.rings.Publish();
  if (!side.rings.KickWanted()) return;
  ++side.kicks;
  side.notify.Kick();
}

void NetPair::Flush() {
  // Buffers before the frame whose answer may need one.
  FlushSide(receive_);
  FlushSide(transmit_);
}

bool NetPair::HasWork(Wake wake) const {
  return (wake.receive && receive_.rings.HasUsed()) || (wake.transmit && transmit_.rings.HasUsed());
}

// By interrupt the rings are looked at after one only, so that a lost one shows.
bool NetPair::WaitForWork(Wake wake, uint64_t deadline) {
  if (HasWork(wake)) return true;
  if (wait_ == Wait::kPolled) {
    Pause();
    return true;
  }
  const uint64_t seen = interrupts();
  if (wake.receive) receive_.rings.RequestInterrupt();
  if (wake.transmit) transmit_.rings.RequestInterrupt();
  bool in_time = true;
  if (!HasWork(wake)) {
    while (interrupts() == seen && TimeStamp() < deadline) Pause();
    // Work that has come without one: it may still be on its way, on a busy host for long.
    in_time = interrupts() != seen || !HasWork(wake) ||
              SpinUntil([&] { return interrupts() != seen; }, kAllPatience / 8);
  }
  receive_.rings.SuppressInterrupts();
  transmit_.rings.SuppressInterrupts();
  return in_time;
}

}  // namespace guest
