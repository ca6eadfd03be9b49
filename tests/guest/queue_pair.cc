// See queue_pair.h.

#include "queue_pair.h"

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "deadline.h"

namespace guest {

bool QueuePair::StartSide(Side& side, VirtioTransport& transport, uint16_t queue,
                          uint32_t processor, uint32_t buffer_bytes, uint16_t most) {
  const uint16_t size = std::min({most, transport.MaxQueueSize(queue), kMaxSlots});
  if (size == 0) return Expect("queue pair: the queue is there", 1, 0);
  side.rings.Init(size, (transport.features() & kFeatureEventIdx) != 0, /*indirect=*/false);
  if (buffer_bytes > side.most_bytes) {
    side.buffers = AllocatePages(kMaxSlots * uint64_t{buffer_bytes});
    side.most_bytes = buffer_bytes;
  }
  std::memset(reinterpret_cast<void*>(side.buffers), 0, kMaxSlots * uint64_t{buffer_bytes});
  side.buffer_bytes = buffer_bytes;
  side.added = false;
  if (!transport.EnableQueue(queue, side.rings, processor)) return false;
  side.interrupts = &transport.InterruptCounter(queue);
  side.notify = transport.Notify(queue);
  return true;
}

bool QueuePair::Start(VirtioTransport& transport, uint16_t first, uint32_t processor,
                      const QueuePairOptions& options) {
  wait_ = options.wait;
  faults_ = 0;
  const auto start = [&](Side& side, uint16_t queue, uint32_t bytes) {
    return StartSide(side, transport, queue, processor, bytes, options.queue_size);
  };
  if (!start(receive_, first, options.receive_bytes) ||
      !start(transmit_, static_cast<uint16_t>(first + 1), options.transmit_bytes)) {
    return false;
  }
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

void QueuePair::SetWait(Wait wait) {
  wait_ = wait;
  receive_.rings.SuppressInterrupts();
  transmit_.rings.SuppressInterrupts();
}

void QueuePair::TransmitBytes(uint16_t slot, uint64_t bytes) {
  transmit_.rings.descriptor(slot).length = static_cast<uint32_t>(bytes);
  transmit_.rings.AddHead(slot);
  transmit_.added = true;
}

bool QueuePair::TakeTransmitted(uint16_t& slot) {
  Virtqueue::Used used;
  if (!transmit_.rings.ReadUsed(used)) return false;
  if (used.head >= transmit_.rings.size()) {
    ++faults_;
    return false;
  }
  slot = static_cast<uint16_t>(used.head);
  return true;
}

bool QueuePair::TakeBuffer(uint16_t& slot, uint32_t& length) {
  Virtqueue::Used used;
  if (!receive_.rings.ReadUsed(used)) return false;
  slot = static_cast<uint16_t>(used.head);
  length = used.length;
  if (used.head < receive_.rings.size() && used.length <= receive_.buffer_bytes) return true;
  ++faults_;
  return false;
}

void QueuePair::GiveBuffer(uint16_t slot) {
  receive_.rings.AddHead(slot);
  receive_.added = true;
}

void QueuePair::FlushSide(Side& side) {
  if (!side.added) return;
  side.added = false;
  side.rings.Publish();
  if (!side.rings.KickWanted()) return;
  ++side.kicks;
  side.notify.Kick();
}

void QueuePair::Flush() {
  // Buffers before the packet whose answer may need one.
  FlushSide(receive_);
  FlushSide(transmit_);
}

bool QueuePair::HasWork(Wake wake) const {
  return (wake.receive && receive_.rings.HasUsed()) || (wake.transmit && transmit_.rings.HasUsed());
}

// By interrupt the rings are looked at after one only, so that a lost one shows.
bool QueuePair::WaitForWork(Wake wake, uint64_t deadline) {
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
              SpinUntil([&] { return interrupts() != seen; }, kAllPatience / 16);
  }
  receive_.rings.SuppressInterrupts();
  transmit_.rings.SuppressInterrupts();
  return in_time;
}

}  // namespace guest
