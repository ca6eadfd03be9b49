#include "devices/virtqueue.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace ringside {
namespace {

// Sections 2.7.6 and 2.7.8: both rings are flags, index, entries, event.
constexpr uint16_t kAvailNoInterrupt = 1;
constexpr uint16_t kUsedNoNotify = 1;
constexpr size_t kIndexOffset = 2;
constexpr size_t kRingOffset = 4;
constexpr uint64_t kAvailEntrySize = 2;
constexpr uint64_t kUsedEntrySize = 8;
constexpr uint64_t kMaxChainBytes = uint64_t{1} << 32;  // section 2.7.5.2

// Far from every index the guest may reach soon: an event index there asks for nothing. Just behind
// would not do, since a chain is often taken between the guest's store of its index and its look at
// ours.
constexpr uint16_t kFarAway = 0x8000;
constexpr uint16_t kMoveAgain = 0x4000;

std::atomic_ref<uint16_t> Shared16(std::byte* address) {
  return std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(address));
}

std::byte* Area(const GuestMemory& memory, uint64_t address, uint64_t size, uint64_t alignment) {
  return address % alignment == 0 ? memory.At(address, size) : nullptr;
}

}  // namespace

Virtqueue::Areas Virtqueue::AreasOf(const GuestMemory& memory, const Layout& layout) {
  return {
      .descriptors = Area(memory, layout.descriptor_area, kDescriptorSize * layout.size, 16),
      .available =
          Area(memory, layout.driver_area, kRingOffset + kAvailEntrySize * layout.size + 2, 2),
      .used = Area(memory, layout.device_area, kRingOffset + kUsedEntrySize * layout.size + 2, 4)};
}

Virtqueue::Virtqueue(const GuestMemory& memory, const Layout& layout, const Areas& areas)
    : memory_(memory),
      size_(layout.size),
      indirect_(layout.indirect),
      event_idx_(layout.event_idx),
      descriptors_(areas.descriptors),
      available_(areas.available),
      used_(areas.used),
      next_available_(layout.next),
      next_used_(layout.next),
      published_(layout.next),
      signalled_(layout.next),
      event_moved_at_(layout.next),
      region_(&memory.regions().front()) {
  if (size_ == 0 || size_ > kMaxSize || !std::has_single_bit(size_)) {
    Break("the queue size is not a power of two up to 1024");
  } else if (descriptors_ == nullptr || available_ == nullptr || used_ == nullptr) {
    Break("a part of the queue is misaligned or lies outside memory");
  }
  EnableNotify();  // the driver may not have zeroed what an earlier user of the ring left there
}

bool Virtqueue::Break(const char* why) {
  error_ = why;
  return false;
}

uint16_t* Virtqueue::available_index() const {
  return reinterpret_cast<uint16_t*>(available_ + kIndexOffset);
}

bool Virtqueue::HasWork() const {
  return error_ == nullptr &&
         Shared16(available_ + kIndexOffset).load(std::memory_order_relaxed) != next_available_;
}

size_t Virtqueue::Take(std::span<DescriptorChain> chains) {
  if (error_ != nullptr) return 0;
  // Acquire: pairs with the driver's barrier before its store of the index (section 2.7.13.3), so
  // that we see the entries and descriptors it announces.
  const uint16_t index = Shared16(available_ + kIndexOffset).load(std::memory_order_acquire);
  const uint16_t available = static_cast<uint16_t>(index - next_available_);
  if (available > size_) {
    Break("the available index jumped beyond the queue");
    return 0;
  }
  memory_.HeardFromGuest();
  const size_t count = std::min<size_t>(available, chains.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = next_available_ & (size_ - 1u);
    const auto head = ReadOnce<uint16_t>(available_ + kRingOffset + kAvailEntrySize * entry);
    if (head >= size_ || taken_[head]) {
      Break(head >= size_ ? "an available head lies beyond the queue"
                          : "a head was made available again while it was in use");
      return i;
    }
    taken_[head] = true;
    ++in_flight_;
    ++next_available_;
    chains[i] = DescriptorChain(head);
  }
  if (!notify_on_ && event_idx_ &&
      static_cast<uint16_t>(next_available_ - event_moved_at_) >= kMoveAgain) {
    DisableNotify();
  }
  return count;
}

[[gnu::noinline]] bool Virtqueue::FindRegion(uint64_t address, uint64_t length) {
  const MemoryRegion* const region = length == 0 ? nullptr : memory_.Region(address, length);
  if (region != nullptr) region_ = region;
  return region != nullptr;
}

// The table that an indirect descriptor stands for, or null (section 2.7.5.3.1).
inline const std::byte* Virtqueue::IndirectTable(const Descriptor& descriptor) {
  if (!indirect_ || (descriptor.flags() & kDescNext) != 0) return nullptr;
  if (descriptor.length() == 0 || descriptor.length() % kDescriptorSize != 0) return nullptr;
  return memory_.At(descriptor.address, descriptor.length());
}

bool Virtqueue::Walk(const DescriptorChain& chain, ChainBuffers& buffers) {
  const std::byte* table = descriptors_;
  uint32_t size = size_;
  uint32_t left = size;   // a chain without a loop has no more descriptors than its table
  bool may_refer = true;  // to an indirect table: once, from the queue's own descriptors
  Segment* segment = buffers.segments_.data();
  Segment* writable = nullptr;  // the first of them
  uint64_t bytes = 0;
  // Guests have one region below 3 GiB and one above, and all buffers of a chain most often come
  // from the same. Three copies, so that they stay in registers.
  uint64_t region_start = region_->guest_address;
  uint64_t region_size = region_->size;
  std::byte* region_host = region_->host;
  Descriptor descriptor(table, chain.head());
  while (true) {
    if ((descriptor.flags() & kDescIndirect) != 0) {
      // The last of the queue's own (section 2.7.5.3.1). Where a table lies says nothing about
      // that: it may be in the queue's own descriptor area.
      table = std::exchange(may_refer, false) ? IndirectTable(descriptor) : nullptr;
      if (table == nullptr) return Break("an indirect descriptor stands where none may");
      size = descriptor.length() / kDescriptorSize;
      left = std::min(size, static_cast<uint32_t>(buffers.limit() - segment));
      descriptor = Descriptor(table, 0);
      continue;
    }
    uint64_t offset = descriptor.address - region_start;  // wraps to huge if below
    if (offset >= region_size || descriptor.length() - uint64_t{1} >= region_size - offset)
        [[unlikely]] {
      if (!FindRegion(descriptor.address, descriptor.length())) {
        return Break("a buffer is empty or lies outside memory");
      }
      region_start = region_->guest_address;
      region_size = region_->size;
      region_host = region_->host;
      offset = descriptor.address - region_start;
    }
    if ((descriptor.flags() & kDescWrite) != 0) {
      if (writable == nullptr) writable = segment;
    } else if (writable != nullptr) {
      return Break("a buffer to read follows one to write");  // section 2.7.4.2
    }
    *segment++ = {
        .host = region_host + offset, .length = descriptor.length(), .region = region_->index};
    bytes += descriptor.length();
    if ((descriptor.flags() & kDescNext) == 0) break;
    if (descriptor.next() >= size || --left == 0) {
      return Break(segment == buffers.limit() ? "a descriptor chain is too long"
                                              : "a descriptor chain loops or leaves its table");
    }
    descriptor = Descriptor(table, descriptor.next());
  }
  if (bytes >= kMaxChainBytes) return Break("a descriptor chain is too long");
  buffers.writable_ = writable != nullptr ? writable : segment;
  buffers.end_ = segment;
  if (memory_.write_log() != nullptr) [[unlikely]]
    NoteWrites(buffers);
  return true;
}

// Whatever becomes of the chain: its return is on the used ring.
[[gnu::noinline]] void Virtqueue::NoteWrites(ChainBuffers& buffers) const {
  NoteUsedRing();
  for (const Segment& segment : buffers.writable()) memory_.Writes(segment.host, segment.length);
}

void Virtqueue::NoteUsedRing() const {
  memory_.Writes(used_, kRingOffset + kUsedEntrySize * size_ + 2);
}

void Virtqueue::PutBack(DescriptorChain chain) {
  taken_[chain.head()] = false;
  --in_flight_;
  --next_available_;
}

void Virtqueue::Return(DescriptorChain chain, uint32_t written) {
  std::byte* entry = used_ + kRingOffset + kUsedEntrySize * (next_used_ & (size_ - 1u));
  const std::array<uint32_t, 2> element = {chain.head(), written};
  std::memcpy(entry, element.data(), sizeof element);
  taken_[chain.head()] = false;
  --in_flight_;
  ++next_used_;
}

bool Virtqueue::Publish() {
  if (!HasUnshown()) return false;
  published_ = next_used_;
  memory_.ShownToGuest();
  // Release: the driver sees the elements and the data before the index; pairs with its barrier
  // after reading the index (section 2.7.14).
  Shared16(used_ + kIndexOffset).store(next_used_, std::memory_order_release);
  // Our index before our look at its wish: pairs with the driver's barrier between its store of
  // used_event, or of the flag, and its second look at our index. Either we see that it wants an
  // interrupt, or it sees our index.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const bool wanted = WantsInterrupt();
  if (!wanted) signalled_ = published_;
  return wanted;
}

bool Virtqueue::WantsInterrupt() const {
  if (!event_idx_) {
    const uint16_t flags = Shared16(available_).load(std::memory_order_relaxed);
    return (flags & kAvailNoInterrupt) == 0;
  }
  // Whether the index has passed the event since the last signal (section 2.7.7.2).
  return static_cast<uint16_t>(published_ - UsedEvent() - 1) <
         static_cast<uint16_t>(published_ - signalled_);
}

uint16_t Virtqueue::UsedEvent() const {
  return Shared16(available_ + kRingOffset + kAvailEntrySize * size_)
      .load(std::memory_order_relaxed);
}

void Virtqueue::SetAvailEvent(uint16_t index) {
  Shared16(used_ + kRingOffset + kUsedEntrySize * size_).store(index, std::memory_order_relaxed);
}

void Virtqueue::EnableNotify() {
  notify_on_ = true;
  if (error_ != nullptr) return;
  NoteUsedRing();
  if (event_idx_) {
    SetAvailEvent(next_available_);
  } else {
    Shared16(used_).store(0, std::memory_order_relaxed);
  }
}

void Virtqueue::DisableNotify() {
  notify_on_ = false;
  if (error_ != nullptr) return;
  NoteUsedRing();
  if (event_idx_) {
    SetAvailEvent(static_cast<uint16_t>(next_available_ - kFarAway));
    event_moved_at_ = next_available_;
  } else {
    Shared16(used_).store(kUsedNoNotify, std::memory_order_relaxed);
  }
}

}  // namespace ringside
