#include "tests/support/devices/fake_driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace ringside::testing {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fake driver: %s\n", what);
  std::abort();
}

// A driver's full barrier, which pairs with the device's: ours between an index we publish and its
// avail_event, its between avail_event and our index (section 2.7.13.4.1); likewise for used_event.
void FullBarrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

FakeDriver::FakeDriver(const GuestMemory& memory, const Options& options)
    : options_(options),
      ring_(memory, RingPlace(options.address, options.size)),
      tables_(ring_.place().end),
      next_(options.size),
      in_use_(options.size),
      free_count_(options.size) {
  Require(memory.At(tables_, end() - tables_) != nullptr, "no room for the indirect tables");
  for (uint16_t i = 0; i < options.size; ++i) next_[i] = static_cast<uint16_t>(i + 1);
}

Virtqueue::Layout FakeDriver::layout() const {
  return {.size = ring_.size(),
          .descriptor_area = ring_.place().descriptors,
          .driver_area = ring_.place().available,
          .device_area = ring_.place().used,
          .indirect = true,
          .event_idx = options_.event_idx};
}

QueueSetup FakeDriver::Setup(uint16_t index, const EventFd& kick, InterruptLine& call) const {
  return {.index = index,
          .size = ring_.size(),
          .descriptor_area = ring_.place().descriptors,
          .driver_area = ring_.place().available,
          .device_area = ring_.place().used,
          .kick = &kick,
          .call = &call};
}

uint64_t FakeDriver::features() const {
  return kVirtioVersion1 | kVirtioRingIndirectDesc |
         (options_.event_idx ? kVirtioRingEventIdx : uint64_t{0});
}

uint16_t FakeDriver::TakeFree() {
  Require(free_count_ > 0, "out of descriptors");
  --free_count_;
  return std::exchange(first_free_, next_[first_free_]);
}

void FakeDriver::Free(uint16_t head) {
  uint16_t index = head;
  while (true) {
    ++free_count_;
    const uint16_t next = next_[index];
    if (next == kNone) break;
    index = next;
  }
  next_[index] = first_free_;
  first_free_ = head;
}

FakeDriver::Chain FakeDriver::NewChain() {
  Chain chain(*this);
  if (options_.indirect) chain.Indirect();
  return chain;
}

FakeDriver::Chain::Chain(Chain&& other) noexcept
    : driver_(other.driver_),
      head_(std::exchange(other.head_, kNone)),
      last_(other.last_),
      table_(other.table_),
      table_entries_(other.table_entries_) {}

FakeDriver::Chain::~Chain() {
  if (head_ != kNone) driver_->Free(head_);
}

uint16_t FakeDriver::Chain::AppendDirect(const RawDescriptor& descriptor) {
  const uint16_t index = driver_->TakeFree();
  driver_->next_[index] = kNone;
  driver_->ring_.SetDescriptor(index, descriptor);
  if (head_ == kNone) {
    head_ = index;
  } else {
    RawDescriptor previous = driver_->ring_.descriptor(last_);
    previous.flags |= kNext;
    previous.next = index;
    driver_->ring_.SetDescriptor(last_, previous);
    driver_->next_[last_] = index;
  }
  last_ = index;
  return index;
}

FakeDriver::Chain& FakeDriver::Chain::Indirect() {
  Require(table_ == 0, "a chain has one indirect table");
  const uint16_t index = AppendDirect({.flags = kIndirect});
  table_ = driver_->TableOf(index);
  return *this;
}

FakeDriver::Chain& FakeDriver::Chain::Append(uint64_t address, uint32_t length, uint16_t flags) {
  const RawDescriptor descriptor = {.address = address, .length = length, .flags = flags};
  if (table_ == 0) {
    AppendDirect(descriptor);
    return *this;
  }
  Require(table_entries_ < driver_->options_.table_entries, "an indirect table is full");
  driver_->ring_.SetDescriptorAt(table_, table_entries_, descriptor);
  if (table_entries_ > 0) driver_->ring_.LinkAt(table_, table_entries_ - 1u);
  ++table_entries_;
  return *this;
}

uint16_t FakeDriver::Chain::Add() {
  Require(head_ != kNone, "an empty chain");
  RawRing& ring = driver_->ring_;
  if (table_ != 0) {
    Require(table_entries_ > 0, "an empty indirect table");
    RawDescriptor descriptor = ring.descriptor(last_);
    descriptor.address = table_;
    descriptor.length = 16 * uint32_t{table_entries_};
    ring.SetDescriptor(last_, descriptor);
  }
  ring.SetAvailableEntry(driver_->next_available_++, head_);
  driver_->in_use_[head_] = true;
  return std::exchange(head_, kNone);
}

void FakeDriver::Publish() {
  published_ = next_available_;
  ring_.SetAvailableIndex(published_);
}

bool FakeDriver::NeedsKick() {
  FullBarrier();
  const uint16_t old_index = std::exchange(kick_checked_, published_);
  if (!options_.event_idx) return (ring_.used_flags() & 1) == 0;
  const uint16_t event = ring_.avail_event();
  return static_cast<uint16_t>(published_ - event - 1) <
         static_cast<uint16_t>(published_ - old_index);
}

std::optional<UsedElement> FakeDriver::TakeUsed() {
  if (!HasUsed()) return std::nullopt;
  const UsedElement element = ring_.used_element(next_used_++);
  Require(element.head < ring_.size() && in_use_[element.head],
          "the device returned what it was not given");
  in_use_[element.head] = false;
  Free(static_cast<uint16_t>(element.head));
  return element;
}

void FakeDriver::EnableInterrupts(uint16_t later) {
  if (options_.event_idx) {
    ring_.SetUsedEvent(static_cast<uint16_t>(next_used_ + later));
  } else {
    ring_.SetAvailableFlags(0);
  }
  FullBarrier();
}

void FakeDriver::DisableInterrupts() {
  if (options_.event_idx) {
    ring_.SetUsedEvent(static_cast<uint16_t>(next_used_ - 1));  // behind: passed already
  } else {
    ring_.SetAvailableFlags(1);
  }
}

}  // namespace ringside::testing
