#include "devices/virtqueue.h"

#include <algorithm>
#include <atomic>
#include <bit>

namespace ringside {
namespace {

// Section 2.7.5.
constexpr uint16_t kDescNext = 1;
constexpr uint16_t kDescWrite = 2;
constexpr uint16_t kDescIndirect = 4;
// Sections 2.7.6 and 2.7.8: both rings are flags, index, entries, event.
constexpr uint16_t kAvailNoInterrupt = 1;
constexpr uint16_t kUsedNoNotify = 1;
constexpr size_t kIndexOffset = 2;
constexpr size_t kRingOffset = 4;
constexpr uint64_t kDescriptorSize = 16;
constexpr uint64_t kAvailEntrySize = 2;
constexpr uint64_t kUsedEntrySize = 8;
constexpr uint64_t kMaxChainBytes = uint64_t{1} << 32;  // section 2.7.5.2

// Far from every index the guest may reach soon: an event index there asks for nothing. Just behind
// would not do, since a chain is often taken between the guest's store of its index and its look at
// ours.
constexpr uint16_t kParked = 0x8000;
constexpr uint16_t kParkAgain = 0x4000;

std::atomic_ref<uint16_t> Shared16(std::byte* address) {
  return std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(address));
}

std::byte* Area(const GuestMemory& memory, uint64_t address, uint64_t size, uint64_t alignment) {
  return address % alignment == 0 ? memory.At(address, size) : nullptr;
}

}  // namespace

struct Virtqueue::Descriptor {
  uint64_t address;
  uint32_t length;
  uint16_t flags;
  uint16_t next;
};

Virtqueue::Virtqueue(const GuestMemory& memory, const Layout& layout)
    : memory_(memory),
      size_(layout.size),
      indirect_(layout.indirect),
      event_idx_(layout.event_idx),
      descriptors_(Area(memory, layout.descriptor_area, kDescriptorSize * layout.size, 16)),
      available_(
          Area(memory, layout.driver_area, kRingOffset + kAvailEntrySize * layout.size + 2, 2)),
      used_(Area(memory, layout.device_area, kRingOffset + kUsedEntrySize * layout.size + 2, 4)) {
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
    if (head >= size_ || taken_.test(head)) {
      Break(head >= size_ ? "an available head lies beyond the queue"
                          : "a head was made available again while it was in use");
      return i;
    }
    taken_.set(head);
    ++in_flight_;
    ++next_available_;
    chains[i] = DescriptorChain(head);
  }
  if (!notify_on_ && event_idx_ &&
      static_cast<uint16_t>(next_available_ - parked_at_) >= kParkAgain) {
    DisableNotify();
  }
  return count;
}

// A table of descriptors: the queue's own or an indirect one.
class Virtqueue::Table {
 public:
  Table(const std::byte* host, uint32_t count) : host_(host), left_(count), count_(count) {}

  // False if there is none, or more were asked for than a chain without a loop can have.
  bool Get(uint32_t index, Descriptor& descriptor) {
    if (index >= count_ || left_ == 0) return false;
    --left_;
    const std::byte* host = host_ + kDescriptorSize * index;
    descriptor.address = ReadOnce<uint64_t>(host);
    const auto rest = ReadOnce<uint64_t>(host + 8);
    descriptor.length = static_cast<uint32_t>(rest);
    descriptor.flags = static_cast<uint16_t>(rest >> 32);
    descriptor.next = static_cast<uint16_t>(rest >> 48);
    return true;
  }

 private:
  const std::byte* host_;
  uint32_t left_;
  uint32_t count_;
};

inline bool Virtqueue::AddBuffer(const Descriptor& descriptor, ChainBuffers& buffers) {
  const bool writable = (descriptor.flags & kDescWrite) != 0;
  const MemoryRegion* region = memory_.Region(descriptor.address, descriptor.length);
  chain_bytes_ += descriptor.length;
  if (region == nullptr || descriptor.length == 0) {
    return Break("a buffer is empty or lies outside memory");
  }
  if (buffers.count_ == ChainBuffers::kMax || chain_bytes_ >= kMaxChainBytes) {
    return Break("a descriptor chain is too long");
  }
  if (!writable) {
    if (buffers.readable_ != buffers.count_) {
      return Break("a buffer to read follows one to write");  // section 2.7.4.2
    }
    ++buffers.readable_;
  }
  buffers.segments_[buffers.count_++] = {
      .host = region->host + (descriptor.address - region->guest_address),
      .length = descriptor.length,
      .region = region->index};
  return true;
}

bool Virtqueue::Walk(const DescriptorChain& chain, ChainBuffers& buffers) {
  buffers.count_ = buffers.readable_ = 0;
  chain_bytes_ = 0;
  Table table(descriptors_, size_);
  bool in_indirect = false;
  uint32_t index = chain.head();
  while (true) {
    Descriptor descriptor;
    if (!table.Get(index, descriptor)) {
      return Break("a descriptor chain loops or leaves its table");
    }
    const bool has_next = (descriptor.flags & kDescNext) != 0;
    if ((descriptor.flags & kDescIndirect) != 0) {
      // Section 2.7.5.3.1.
      if (!indirect_ || in_indirect || has_next) {
        return Break("an indirect descriptor stands where none may");
      }
      const uint32_t count = descriptor.length / kDescriptorSize;
      const std::byte* host = memory_.At(descriptor.address, descriptor.length);
      if (host == nullptr || count == 0 || descriptor.length % kDescriptorSize != 0) {
        return Break("an indirect table is no table or lies outside memory");
      }
      table = Table(host, count);
      in_indirect = true;
      index = 0;
      continue;
    }
    if (!AddBuffer(descriptor, buffers)) return false;
    if (!has_next) return true;
    index = descriptor.next;
  }
}

void Virtqueue::Return(DescriptorChain chain, uint32_t written) {
  std::byte* entry = used_ + kRingOffset + kUsedEntrySize * (next_used_ & (size_ - 1u));
  const std::array<uint32_t, 2> element = {chain.head(), written};
  std::memcpy(entry, element.data(), sizeof element);
  taken_.reset(chain.head());
  --in_flight_;
  ++next_used_;
}

bool Virtqueue::Publish() {
  const uint16_t old_index = std::exchange(published_, next_used_);
  if (old_index == next_used_) return false;
  memory_.ShownToGuest();
  // Release: the driver sees the elements and the data before the index; pairs with its barrier
  // after reading the index (section 2.7.14).
  Shared16(used_ + kIndexOffset).store(next_used_, std::memory_order_release);
  // Our index before our look at its wish: pairs with the driver's barrier between its store of
  // used_event, or of the flag, and its second look at our index. Either we see that it wants an
  // interrupt, or it sees our index.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!event_idx_) {
    const uint16_t flags = Shared16(available_).load(std::memory_order_relaxed);
    return (flags & kAvailNoInterrupt) == 0;
  }
  const uint16_t used_event =
      Shared16(available_ + kRingOffset + kAvailEntrySize * size_).load(std::memory_order_relaxed);
  // Whether the index has just passed the event (section 2.7.7.2).
  return static_cast<uint16_t>(next_used_ - used_event - 1) <
         static_cast<uint16_t>(next_used_ - old_index);
}

void Virtqueue::SetAvailEvent(uint16_t index) {
  Shared16(used_ + kRingOffset + kUsedEntrySize * size_).store(index, std::memory_order_relaxed);
}

void Virtqueue::EnableNotify() {
  notify_on_ = true;
  if (error_ != nullptr) return;
  if (event_idx_) {
    SetAvailEvent(next_available_);
  } else {
    Shared16(used_).store(0, std::memory_order_relaxed);
  }
}

void Virtqueue::DisableNotify() {
  notify_on_ = false;
  if (error_ != nullptr) return;
  if (event_idx_) {
    SetAvailEvent(static_cast<uint16_t>(next_available_ - kParked));
    parked_at_ = next_available_;
  } else {
    Shared16(used_).store(kUsedNoNotify, std::memory_order_relaxed);
  }
}

}  // namespace ringside
