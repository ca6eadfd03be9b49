// See virtqueue.h.

#include "virtqueue.h"

#include <cstring>

#include "allocator.h"
#include "console.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint16_t kNoInterrupt = 1;  // VIRTQ_AVAIL_F_NO_INTERRUPT
constexpr uint16_t kNoNotify = 1;     // VIRTQ_USED_F_NO_NOTIFY

// Offsets in the driver and device areas.
constexpr uint64_t kFlags = 0;
constexpr uint64_t kIndex = 2;
constexpr uint64_t kRing = 4;

uint16_t LoadAcquire(uint64_t address) {
  return __atomic_load_n(reinterpret_cast<uint16_t*>(address), __ATOMIC_ACQUIRE);
}

void StoreRelease(uint64_t address, uint16_t value) {
  __atomic_store_n(reinterpret_cast<uint16_t*>(address), value, __ATOMIC_RELEASE);
}

void StoreLoadFence() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

Descriptor Describe(const Buffer& buffer) {
  const uint16_t flags = buffer.access == Access::kDeviceWrites ? kDescriptorWrite : 0;
  return {.address = buffer.address, .length = buffer.length, .flags = flags, .next = 0};
}

void Assign(volatile Descriptor& to, const Descriptor& from) {
  to.address = from.address;
  to.length = from.length;
  to.flags = from.flags;
  to.next = from.next;
}

}  // namespace

void Virtqueue::Init(uint16_t size, bool event_idx, bool indirect) {
  if (descriptor_area_ == 0) {
    descriptor_area_ = AllocatePages(uint64_t{16} * kMaxSize);
    driver_area_ = AllocatePages(kRing + uint64_t{2} * kMaxSize + 2);
    device_area_ = AllocatePages(kRing + uint64_t{8} * kMaxSize + 2);
    indirect_tables_ = AllocateArray<Descriptor>(kMaxSize * kMaxBuffers);
    free_next_ = AllocateArray<uint16_t>(kMaxSize);
    chain_length_ = AllocateArray<uint16_t>(kMaxSize);
  }
  size_ = size;
  event_idx_ = event_idx;
  indirect_ = indirect;
  std::memset(reinterpret_cast<void*>(descriptor_area_), 0, uint64_t{16} * size);
  std::memset(reinterpret_cast<void*>(driver_area_), 0, kRing + uint64_t{2} * size + 2);
  std::memset(reinterpret_cast<void*>(device_area_), 0, kRing + uint64_t{8} * size + 2);
  for (uint16_t i = 0; i < size; ++i) {
    free_next_[i] = static_cast<uint16_t>(i + 1);
    chain_length_[i] = 0;
  }
  free_head_ = 0;
  free_count_ = size;
  next_available_ = kicked_ = next_used_ = 0;
  SuppressInterrupts();
}

volatile uint16_t& Virtqueue::AvailableEntry(uint16_t index) const {
  return reinterpret_cast<volatile uint16_t*>(driver_area_ + kRing)[index & (size_ - 1)];
}

volatile uint16_t& Virtqueue::UsedEvent() const {
  return reinterpret_cast<volatile uint16_t*>(driver_area_ + kRing)[size_];
}

uint16_t Virtqueue::AvailableEvent() const {
  return Load<uint16_t>(device_area_ + kRing + uint64_t{8} * size_);
}

uint16_t Virtqueue::used_index() const {
  return LoadAcquire(device_area_ + kIndex);
}

uint16_t Virtqueue::TakeFree() {
  const uint16_t taken = free_head_;
  free_head_ = free_next_[taken];
  --free_count_;
  return taken;
}

int Virtqueue::AddDirect(std::span<const Buffer> buffers) {
  if (buffers.size() > free_count_) return -1;
  const uint16_t head = free_head_;
  for (size_t i = 0; i < buffers.size(); ++i) {
    Descriptor descriptor = Describe(buffers[i]);
    const uint16_t at = TakeFree();
    if (i + 1 < buffers.size()) {
      descriptor.flags |= kDescriptorNext;
      descriptor.next = free_head_;
    }
    Assign(this->descriptor(at), descriptor);
  }
  chain_length_[head] = static_cast<uint16_t>(buffers.size());
  return head;
}

int Virtqueue::AddIndirect(std::span<const Buffer> buffers) {
  if (free_count_ == 0) return -1;
  const uint16_t head = TakeFree();
  Descriptor* const table = indirect_tables_ + kMaxBuffers * head;
  for (size_t i = 0; i < buffers.size(); ++i) {
    table[i] = Describe(buffers[i]);
    if (i + 1 == buffers.size()) break;
    table[i].flags |= kDescriptorNext;
    table[i].next = static_cast<uint16_t>(i + 1);
  }
  Assign(descriptor(head), {.address = reinterpret_cast<uint64_t>(table),
                            .length = static_cast<uint32_t>(16 * buffers.size()),
                            .flags = kDescriptorIndirect,
                            .next = 0});
  chain_length_[head] = 1;
  return head;
}

int Virtqueue::Add(std::span<const Buffer> buffers) {
  if (buffers.size() > kMaxBuffers) return -1;
  const int head = indirect_ ? AddIndirect(buffers) : AddDirect(buffers);
  if (head >= 0) AddHead(static_cast<uint16_t>(head));
  return head;
}

void Virtqueue::AddHead(uint16_t head) {
  AvailableEntry(next_available_) = head;
  ++next_available_;
}

void Virtqueue::Publish() {
  // Release: the device that reads the index sees the entries and descriptors before it.
  StoreRelease(driver_area_ + kIndex, next_available_);
}

bool Virtqueue::KickWanted() {
  // The index is visible before avail_event is read: pairs with the device's fence between writing
  // avail_event and looking at the index again (section 2.7.13.4.1).
  StoreLoadFence();
  const uint16_t before = kicked_;
  kicked_ = next_available_;
  if (!event_idx_) return (Load<uint16_t>(device_area_ + kFlags) & kNoNotify) == 0;
  const uint16_t event = AvailableEvent();
  return static_cast<uint16_t>(next_available_ - event - 1) <
         static_cast<uint16_t>(next_available_ - before);
}

bool Virtqueue::HasUsed() const {
  return used_index() != next_used_;
}

void Virtqueue::WriteDescriptor(uint16_t i, const Descriptor& descriptor) const {
  Assign(this->descriptor(i), descriptor);
}

bool Virtqueue::ReadUsed(Used& used) {
  if (!HasUsed()) return false;
  const uint64_t entry = device_area_ + kRing + uint64_t{8} * (next_used_ & (size_ - 1));
  used = {.head = Load<uint32_t>(entry), .length = Load<uint32_t>(entry + 4)};
  ++next_used_;
  if (suppressed_ && static_cast<uint16_t>(next_used_ - suppressed_at_) >= 0x4000) {
    SuppressInterrupts();
  }
  return true;
}

bool Virtqueue::TakeUsed(Used& used) {
  if (!ReadUsed(used)) return false;
  if (used.head >= size_ || chain_length_[used.head] == 0) {
    Say("FAIL used ring: expected a head in flight got ", Decimal{used.head});
    return true;
  }
  FreeChain(static_cast<uint16_t>(used.head));
  return true;
}

void Virtqueue::FreeChain(uint16_t head) {
  uint16_t at = head;
  for (uint16_t left = chain_length_[head]; left > 0; --left) {
    // The way through the chain is the driver's own list, not the descriptors: those of hostile
    // chains lead anywhere.
    const uint16_t next = free_next_[at];
    free_next_[at] = free_head_;
    free_head_ = at;
    ++free_count_;
    at = next;
  }
  chain_length_[head] = 0;
}

void Virtqueue::RequestInterrupt() {
  suppressed_ = false;
  Store<uint16_t>(driver_area_ + kFlags, 0);
  if (event_idx_) UsedEvent() = next_used_;
  // used_event is visible before the caller looks at the used index again: pairs with the device's
  // fence between writing the index and reading used_event (section 2.7.7.2).
  StoreLoadFence();
}

void Virtqueue::SuppressInterrupts() {
  suppressed_ = true;
  suppressed_at_ = next_used_;
  if (event_idx_) {
    UsedEvent() = static_cast<uint16_t>(next_used_ + 0x8000);
  } else {
    Store<uint16_t>(driver_area_ + kFlags, kNoInterrupt);
  }
}

}  // namespace guest
