// A split virtqueue, device side: ring arithmetic alone. It knows no thread, descriptor or
// interrupt; who uses it takes chains in batches, returns them as they complete, and publishes a
// batch at once.
//
//   DescriptorChain chains[32];
//   for (size_t i = 0, n = queue.Take(chains); i < n; ++i) {
//     if (!queue.Walk(chains[i], buffers)) return;  // queue.error() says why
//     ...
//     queue.Return(std::move(chains[i]), bytes_written);
//   }
//   if (queue.Publish()) interrupt();
//
// Everything in the rings is guest-controlled: read once, checked, and a ring that breaks the rules
// breaks this queue, which then has no work for ever.
//
// Threads: one at a time; the other side of the ring is the guest.
// Ownership: guest memory outlives the queue.
// Spec: VIRTIO 1.2, section 2.7.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/segment.h"
#include "devices/descriptor.h"
#include "devices/guest_memory.h"

namespace ringside {

// A chain the guest has made available. Whoever holds it owes the guest its return.
class DescriptorChain {
 public:
  DescriptorChain() = default;
  DescriptorChain(DescriptorChain&& other) noexcept : head_(std::exchange(other.head_, kNone)) {}
  DescriptorChain& operator=(DescriptorChain&& other) noexcept {
    head_ = std::exchange(other.head_, kNone);
    return *this;
  }

  bool valid() const { return head_ != kNone; }
  uint16_t head() const { return head_; }

 private:
  friend class Virtqueue;
  static constexpr uint16_t kNone = 0xffff;
  explicit DescriptorChain(uint16_t head) : head_(head) {}
  uint16_t head_ = kNone;
};

// The buffers of one chain, in order: those the device reads, then those it writes.
class ChainBuffers {
 public:
  // Of one chain. Drivers may use more through an indirect table than the ring is long, and Linux
  // does when its ring is short.
  static constexpr uint32_t kMax = 1024;

  std::span<Segment> readable() { return {segments_.data(), writable_}; }
  std::span<Segment> writable() { return {writable_, end_}; }

 private:
  friend class Virtqueue;
  const Segment* limit() const { return segments_.data() + kMax; }

  std::array<Segment, kMax> segments_;
  Segment* writable_ = segments_.data();
  Segment* end_ = segments_.data();
};

// The buffers of a chain that has three: one to read, of a length that is known beforehand, one
// with data, and one to write, of a known length, too.
struct ThreeBuffers {
  const std::byte* first;  // null, where its user says so: there are no such three
  Segment data;
  bool data_is_writable;
  std::byte* last;
};

class Virtqueue {
 public:
  static constexpr uint16_t kMaxSize = 1024;

  struct Layout {
    uint16_t size;  // a power of two up to kMaxSize
    uint64_t descriptor_area;
    uint64_t driver_area;
    uint64_t device_area;
    bool indirect = false;   // VIRTIO_F_INDIRECT_DESC was negotiated
    bool event_idx = false;  // VIRTIO_F_EVENT_IDX was negotiated
    uint16_t next = 0;  // where both rings go on: the position() of one that had none in flight
  };

  // Where its parts are in this process; null: misaligned, or not memory.
  struct Areas {
    std::byte* descriptors;
    std::byte* available;  // flags, index, ring, used_event
    std::byte* used;       // flags, index, ring, avail_event
  };
  static Areas AreasOf(const GuestMemory& memory, const Layout& layout);

  // Broken from the start if an area is misaligned or not memory.
  Virtqueue(const GuestMemory& memory, const Layout& layout)
      : Virtqueue(memory, layout, AreasOf(memory, layout)) {}

  // Why the ring is broken; null while it is not.
  const char* error() const { return error_; }
  // For its user, who found a chain to break the rules of the device. Returns false.
  bool Break(const char* why);
  uint16_t size() const { return size_; }
  // Chains taken and not returned.
  uint32_t in_flight() const { return in_flight_; }
  // While none is in flight this is all there is to know of the queue beside its layout.
  uint16_t position() const { return next_available_; }
  // Where the driver says how many chains it has made available, in guest memory, for whoever
  // watches that beside the queue. Of a queue that is not broken from the start.
  uint16_t* available_index() const;

  // A look at the available index.
  bool HasWork() const;
  // As many as there are and fit. 0 if the ring is broken.
  size_t Take(std::span<DescriptorChain> chains);
  // Finds the buffers of a chain that was taken. False: the ring is broken now.
  bool Walk(const DescriptorChain& chain, ChainBuffers& buffers);
  // The same of a chain that has three, as a disk's transfers do, on one straight path. False: it
  // is another one, or something about it is out of the ordinary, which Walk looks into; the queue
  // is as usable as before.
  template <uint32_t kFirstLength, uint32_t kLastLength>
  bool WalkThree(const DescriptorChain& chain, ThreeBuffers& buffers);
  // Puts back the chain that was taken last, to be taken again: a device that has taken chains to
  // have them ready lets go of them so, the newest first.
  void PutBack(DescriptorChain chain);
  // `written`: bytes written to the chain's buffers. Unseen by the guest until Publish.
  void Return(DescriptorChain chain, uint32_t written);
  // Whether something was returned that the guest has not been shown.
  bool HasUnshown() const { return published_ != next_used_; }
  // Shows the guest what was returned. True: it wants an interrupt for that.
  bool Publish();
  // Whether it still wants one that Publish has said it wants and that was not raised.
  bool WantsInterrupt() const;
  // It was raised, or need not be any more.
  void Signalled() { signalled_ = published_; }
  bool event_idx() const { return event_idx_; }
  uint16_t shown() const { return published_; }
  // The guest has consumed what is before it, where it has asked to be told of what comes next.
  uint16_t UsedEvent() const;

  // Whether the guest is to kick. After EnableNotify: a fence and HasWork before anyone relies on a
  // kick (section 2.7.13.4.1). Stores only.
  void EnableNotify();
  void DisableNotify();

 private:
  Virtqueue(const GuestMemory& memory, const Layout& layout, const Areas& areas);

  // Whether a buffer lies in one, which is region_ then. An empty one lies in none.
  bool FindRegion(uint64_t address, uint64_t length);
  const std::byte* IndirectTable(const Descriptor& descriptor);
  void SetAvailEvent(uint16_t index);
  void NoteUsedRing() const;
  void NoteWrites(ChainBuffers& buffers) const;

  const GuestMemory& memory_;
  const uint16_t size_;
  const bool indirect_;
  const bool event_idx_;
  const char* error_ = nullptr;

  // In guest memory. The pointers are constant, what they point to is guest-controlled.
  std::byte* descriptors_;
  std::byte* available_;
  std::byte* used_;

  uint16_t next_available_;  // the next to take
  uint16_t next_used_;       // the next to return
  uint16_t published_;       // what the guest sees
  uint16_t signalled_;       // published_ when it was last told, or wanted not to be
  uint16_t event_moved_at_;  // next_available_ when avail_event was last moved far away
  bool notify_on_ = true;
  uint32_t in_flight_ = 0;
  std::bitset<kMaxSize> taken_;  // by head
  const MemoryRegion* region_;   // that something was found in last
};

template <uint32_t kFirstLength, uint32_t kLastLength>
[[gnu::always_inline]] inline bool Virtqueue::WalkThree(const DescriptorChain& chain,
                                                        ThreeBuffers& buffers) {
  static_assert(std::max(kFirstLength, kLastLength) <= 4096);
  // Guests have one region below 3 GiB and one above, and buffers that follow each other most often
  // come from the same. Three copies, so that they stay in registers.
  uint64_t start = region_->guest_address;
  uint64_t size = region_->size;
  std::byte* host = region_->host;
  const auto find_far = [&](uint64_t address, uint64_t length) -> std::byte* {
    if (!FindRegion(address, length)) return nullptr;
    start = region_->guest_address;
    size = region_->size;
    host = region_->host;
    return region_->At(address);
  };
  // `length` is `size` at most. A region has a page at least.
  const auto find = [&](uint64_t address, uint64_t length) {
    const uint64_t offset = address - start;  // wraps to huge if below
    return offset <= size - length ? host + offset : find_far(address, length);
  };
  if (memory_.write_log() != nullptr) [[unlikely]]
    return false;
  Descriptor first(descriptors_, chain.head());
  const std::byte* table = descriptors_;
  uint32_t count = size_;
  if (first.Is(3 * kDescriptorSize, kDescIndirect)) {
    table = indirect_ ? find(first.address, 3 * kDescriptorSize) : nullptr;
    if (table == nullptr) return false;
    count = 3;
    first = Descriptor(table, 0);
  }
  if (!first.Is(kFirstLength, kDescNext) || first.next() >= count) return false;
  const Descriptor data(table, first.next());
  // An empty one, or one of gigabytes, is not ordinary.
  if ((data.flags() & ~kDescWrite) != kDescNext || data.next() >= count ||
      static_cast<int32_t>(data.length()) <= 0) {
    return false;
  }
  const Descriptor last(table, data.next());
  if (!last.Is(kLastLength, kDescWrite)) return false;
  buffers.first = find(first.address, kFirstLength);
  buffers.last = find(last.address, kLastLength);
  buffers.data.host = data.length() <= size ? find(data.address, data.length())
                                            : find_far(data.address, data.length());
  buffers.data.length = data.length();
  buffers.data.region = region_->index;
  buffers.data_is_writable = (data.flags() & kDescWrite) != 0;
  return buffers.first != nullptr && buffers.last != nullptr && buffers.data.host != nullptr;
}

}  // namespace ringside
