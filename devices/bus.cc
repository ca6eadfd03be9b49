#include "devices/bus.h"

#include <algorithm>

#include "base/status.h"

namespace ringside {

absl::Status Bus::Add(uint64_t base, uint64_t size, IoHandler& handler) {
  const MutexLock lock(mutex_);
  const auto above = ranges_.lower_bound(base);
  const bool wraps = size == 0 || base + size - 1 < base;
  const bool hits_above = above != ranges_.end() && above->second.base - base < size;
  const bool hits_below = above != ranges_.begin() &&
                          base - std::prev(above)->second.base < std::prev(above)->second.size;
  if (wraps || hits_above || hits_below) {
    return absl::AlreadyExistsError(
        absl::StrFormat("bus range %#x of %d bytes overlaps another", base, size));
  }
  ranges_[base] = {base, size, &handler};
  return absl::OkStatus();
}

void Bus::Remove(uint64_t base) {
  const MutexLock lock(mutex_);
  ranges_.erase(base);
}

std::optional<Bus::Range> Bus::Find(uint64_t address, uint64_t length) const {
  const MutexLock lock(mutex_);
  const auto above = ranges_.upper_bound(address);
  if (above == ranges_.begin()) return std::nullopt;
  const Range& range = std::prev(above)->second;
  const uint64_t offset = address - range.base;
  if (offset >= range.size || length > range.size - offset) return std::nullopt;
  return range;
}

void Bus::Read(uint64_t address, std::span<std::byte> data) const {
  if (const std::optional<Range> range = Find(address, data.size())) {
    range->handler->Read(address - range->base, data);
  } else {
    std::ranges::fill(data, std::byte{0xff});
  }
}

void Bus::Write(uint64_t address, std::span<const std::byte> data) const {
  if (const std::optional<Range> range = Find(address, data.size())) {
    range->handler->Write(address - range->base, data);
  }
}

}  // namespace ringside
