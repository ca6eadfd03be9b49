// Guest memory as a machine lays it out, and its contents as values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "devices/guest_memory.h"
#include "kvm/memory_layout.h"

namespace ringside {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// `size` bytes: up to 3 GiB from address 0, the rest from 4 GiB.
inline std::unique_ptr<GuestMemory> MakeMemory(uint64_t size) {
  std::vector<GuestMemory::Range> ranges = {{0, std::min(size, kLowMemoryEnd)}};
  if (size > kLowMemoryEnd) ranges.push_back({kMemoryAbove4G, size - kLowMemoryEnd});
  auto memory = GuestMemory::Create(ranges);
  if (!memory.ok()) std::abort();
  return *std::move(memory);
}

// Aborts outside memory, as a test that looks there is wrong.
template <typename T>
T Peek(const GuestMemory& memory, uint64_t address) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::byte* host = memory.At(address, sizeof(T));
  if (host == nullptr) std::abort();
  T value;
  std::memcpy(&value, host, sizeof value);
  return value;
}

inline std::vector<uint8_t> PeekBytes(const GuestMemory& memory, uint64_t address, size_t size) {
  const auto* host = reinterpret_cast<const uint8_t*>(memory.At(address, size));
  if (host == nullptr) std::abort();
  return {host, host + size};
}

}  // namespace ringside
