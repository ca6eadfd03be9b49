#include "devices/msix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <poll.h>

#include "base/status.h"
#include "devices/state_check.h"

namespace ringside {
namespace {

// A table entry (section 6.8.2.6 to 6.8.2.9).
constexpr uint64_t kEntrySize = 16;
constexpr uint64_t kAddressLow = 0;
constexpr uint64_t kAddressHigh = 4;
constexpr uint64_t kData = 8;
constexpr uint64_t kControl = 12;                       // Vector Control
constexpr uint32_t kMessageAddressBits = ~uint32_t{3};  // section 6.8.2.7
constexpr uint32_t kMasked = 1;  // the other bits of the control word are reserved

constexpr uint64_t kWord = sizeof(uint32_t);

// What a driver may use on both structures (section 6.8.2).
bool IsWordAccess(uint64_t offset, size_t size) {
  return (size == kWord || size == 2 * kWord) && offset % size == 0;
}

// Returns whether it differed.
bool Exchange(uint32_t& target, uint32_t value) {
  return std::exchange(target, value) != value;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Msix>> Msix::Create(uint16_t vectors, PciPlatform& platform) {
  if (vectors < 1 || vectors > kMaxVectors) {
    return BadInput("%d MSI-X vectors are out of range: a function has 1 to %d", vectors,
                    kMaxVectors);
  }
  std::unique_ptr<Msix> msix(new Msix());
  for (uint16_t i = 0; i < vectors; ++i) {
    RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<MsiVector> vector, platform.NewMsiVector());
    msix->entries_.push_back({.vector = std::move(vector)});
  }
  return msix;
}

const EventFd* Msix::event(uint16_t vector) const {
  return vector < entries_.size() ? &entries_[vector].vector->event() : nullptr;
}

void Msix::SetControl(bool enabled, bool function_masked) {
  const MutexLock lock(mutex_);
  control_ = (enabled ? kEnable : 0) | (function_masked ? kFunctionMask : 0);
  for (Entry& entry : entries_) Apply(entry, false);
}

Msix::State Msix::Save() const {
  const MutexLock lock(mutex_);
  State state = {.control = control_, .entries = {}};
  uint64_t pending = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i % 64 == 0) pending = Pending(i, std::min<size_t>(64, entries_.size() - i));
    const Entry& entry = entries_[i];
    state.entries.push_back({.address_low = entry.address_low,
                             .address_high = entry.address_high,
                             .data = entry.data,
                             .control = entry.control,
                             .pending = static_cast<uint32_t>(pending >> (i % 64) & 1)});
  }
  return state;
}

absl::Status Msix::Check(const State& state) const {
  RINGSIDE_RETURN_IF_ERROR(
      CheckBits("MSI-X message control", state.control, kEnable | kFunctionMask));
  if (state.entries.size() != entries_.size()) {
    return BadInput("the saved MSI-X table has %d vectors; this device has %d",
                    state.entries.size(), entries_.size());
  }
  for (const EntryState& entry : state.entries) {
    RINGSIDE_RETURN_IF_ERROR(CheckBits("MSI-X vector control", entry.control, kMasked));
    RINGSIDE_RETURN_IF_ERROR(CheckBits("MSI-X address", entry.address_low, kMessageAddressBits));
    RINGSIDE_RETURN_IF_ERROR(CheckBits("MSI-X pending bit", entry.pending, 1));
    if (entry.pending != 0 && Delivers(state.control, entry.control)) {
      return BadInput(
          "the saved pending bit of MSI-X vector %d is 1; it is 0 while nothing masks it",
          &entry - state.entries.data());
    }
  }
  return absl::OkStatus();
}

absl::Status Msix::Restore(const State& state) {
  RINGSIDE_RETURN_IF_ERROR(Check(state));
  const MutexLock lock(mutex_);
  control_ = state.control;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const EntryState& from = state.entries[i];
    Entry& entry = entries_[i];
    entry.address_low = from.address_low;
    entry.address_high = from.address_high;
    entry.data = from.data;
    entry.control = from.control;
    if (from.pending != 0) entry.vector->event().Signal();
    Apply(entry, false);
  }
  return absl::OkStatus();
}

bool Msix::Delivers(uint16_t control, uint32_t vector_control) {
  return (control & (kEnable | kFunctionMask)) == kEnable && (vector_control & kMasked) == 0;
}

// Registers may be written in any order: Linux writes messages while MSI-X is still off, with the
// entry masked or not, and other drivers unmask first and enable last. So nothing but the state
// after a whole write counts. A message that changes while its vector does not deliver goes to
// Unmask later; one that changes under a delivering vector, which section 6.8.2 leaves undefined,
// is exchanged at once.
void Msix::Apply(Entry& entry, bool new_message) {
  const bool deliver = Delivers(control_, entry.control);
  if (deliver && (!entry.delivers || new_message)) {
    entry.vector->Unmask(uint64_t{entry.address_high} << 32 | entry.address_low, entry.data);
  } else if (!deliver && entry.delivers) {
    entry.vector->Mask();
  }
  entry.delivers = deliver;
}

uint32_t Msix::ReadWord(uint64_t offset) const {
  if (offset / kEntrySize >= entries_.size()) return 0;
  const Entry& entry = entries_[offset / kEntrySize];
  switch (offset % kEntrySize) {
    case kAddressLow:
      return entry.address_low;
    case kAddressHigh:
      return entry.address_high;
    case kData:
      return entry.data;
    case kControl:
      return entry.control;
    default:
      return 0;  // not reached: offsets are whole words
  }
}

bool Msix::WriteWord(uint64_t offset, uint32_t value) {
  if (offset / kEntrySize >= entries_.size()) return false;
  Entry& entry = entries_[offset / kEntrySize];
  switch (offset % kEntrySize) {
    case kAddressLow:
      return Exchange(entry.address_low, value & kMessageAddressBits);
    case kAddressHigh:
      return Exchange(entry.address_high, value);
    case kData:
      return Exchange(entry.data, value);
    case kControl:
      entry.control = value & kMasked;
      return false;
    default:
      return false;  // not reached: offsets are whole words
  }
}

void Msix::Table::Read(uint64_t offset, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
  if (!IsWordAccess(offset, data.size())) return;
  const MutexLock lock(msix_.mutex_);
  for (uint64_t at = 0; at < data.size(); at += kWord) {
    const uint32_t word = msix_.ReadWord(offset + at);
    std::memcpy(&data[at], &word, kWord);
  }
}

void Msix::Table::Write(uint64_t offset, std::span<const std::byte> data) {
  if (!IsWordAccess(offset, data.size())) return;
  const MutexLock lock(msix_.mutex_);
  bool new_message = false;
  for (uint64_t at = 0; at < data.size(); at += kWord) {
    uint32_t word;
    std::memcpy(&word, &data[at], kWord);
    new_message |= msix_.WriteWord(offset + at, word);
  }
  // Once for both halves of 8 bytes: nothing goes to an address half written.
  const uint64_t vector = offset / kEntrySize;
  if (vector < msix_.entries_.size()) msix_.Apply(msix_.entries_[vector], new_message);
}

// A vector that delivers has nothing pending, whatever its event's counter: the counter is the
// platform's on its way to the guest.
uint64_t Msix::Pending(size_t first, size_t count) const {
  std::array<pollfd, 64> events;
  for (size_t i = 0; i < count; ++i) {
    const Entry& entry = entries_[first + i];
    // poll(2) passes over negative descriptors.
    events[i] = {
        .fd = entry.delivers ? -1 : entry.vector->event().fd(), .events = POLLIN, .revents = 0};
  }
  if (::poll(events.data(), count, 0) <= 0) return 0;
  uint64_t pending = 0;
  for (size_t i = 0; i < count; ++i) {
    if ((events[i].revents & POLLIN) != 0) pending |= uint64_t{1} << i;
  }
  return pending;
}

void Msix::PendingBits::Read(uint64_t offset, std::span<std::byte> data) {
  std::ranges::fill(data, std::byte{0});
  if (!IsWordAccess(offset, data.size())) return;
  const MutexLock lock(msix_.mutex_);
  const uint64_t first = offset * 8;  // a bit a vector
  if (first >= msix_.entries_.size()) return;
  const uint64_t count = std::min<uint64_t>(data.size() * 8, msix_.entries_.size() - first);
  const uint64_t pending = msix_.Pending(first, count);
  std::memcpy(data.data(), &pending, data.size());
}

}  // namespace ringside
