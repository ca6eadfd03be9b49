// Register accesses as a driver in a guest makes them, on a device or on a bus.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ringside::testing {

template <typename Value, typename Target>
Value ReadAs(Target& target, uint64_t address) {
  Value value{};
  target.Read(address, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

template <typename Value, typename Target>
void WriteAs(Target& target, uint64_t address, Value value) {
  target.Write(address, std::as_bytes(std::span(&value, 1)));
}

inline std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace ringside::testing
