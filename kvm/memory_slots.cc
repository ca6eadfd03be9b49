#include "kvm/memory_slots.h"

#include <algorithm>

#include "base/status.h"

namespace ringside {

absl::Status MemorySlots::Add(uint64_t address, std::byte* host, uint64_t size) {
  const MutexLock lock(mutex_);
  auto slot = std::ranges::find(addresses_, kFree);
  if (slot == addresses_.end()) slot = addresses_.insert(slot, kFree);
  const auto number = first_ + static_cast<uint32_t>(slot - addresses_.begin());
  RINGSIDE_RETURN_IF_ERROR(vm_.SetMemorySlot(number, address, host, size));
  *slot = address;
  return absl::OkStatus();
}

void MemorySlots::Remove(uint64_t address) {
  const MutexLock lock(mutex_);
  const auto slot = std::ranges::find(addresses_, address);
  if (slot == addresses_.end()) return;
  const auto number = first_ + static_cast<uint32_t>(slot - addresses_.begin());
  if (absl::Status status = vm_.SetMemorySlot(number, address, nullptr, 0); !status.ok()) {
    // KVM takes a slot away whatever happens; should it ever not, its number is not used again.
    log_.Log(Severity::kError, "memory of a device at %#x stays in the guest: %s", address,
             Message(status));
    return;
  }
  *slot = kFree;
}

}  // namespace ringside
