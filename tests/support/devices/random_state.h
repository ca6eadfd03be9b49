// Saved state as an enemy would write it: any bytes, or a valid state with a few fields changed,
// which gets past the first checks. What it chooses comes from a seed, or from bytes of a fuzzer.
//
// Fields() names the fields of a struct. A structured binding stands in it, so that a field that is
// added and not named does not compile.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

#include "devices/msix.h"
#include "devices/pci_host.h"
#include "devices/serial.h"
#include "devices/virtio_pci.h"

namespace ringside {

// Beside the structs, where the templates below look for them.
inline auto Fields(Serial::State& state) {
  auto& [enable, fifo, line, modem, scratch, divisor, overrun, transmitter, input] = state;
  return std::tie(enable, fifo, line, modem, scratch, divisor, overrun, transmitter, input);
}
inline auto Fields(Msix::EntryState& state) {
  auto& [address_low, address_high, data, control, pending] = state;
  return std::tie(address_low, address_high, data, control, pending);
}
inline auto Fields(Msix::State& state) {
  auto& [control, entries] = state;
  return std::tie(control, entries);
}
inline auto Fields(PciFunction::ConfigState& state) {
  auto& [bytes] = state;
  return std::tie(bytes);
}
inline auto Fields(PciHost::State& state) {
  auto& [config_address, functions] = state;
  return std::tie(config_address, functions);
}
inline auto Fields(VirtioTransport::QueueState& state) {
  auto& [max_size, size, enabled, descriptors, driver, device, vector, next] = state;
  return std::tie(max_size, size, enabled, descriptors, driver, device, vector, next);
}
inline auto Fields(VirtioTransport::State& state) {
  auto& [id, status, generation, isr, config_vector, features, queues, device] = state;
  return std::tie(id, status, generation, isr, config_vector, features, queues, device);
}
inline auto Fields(VirtioPci::State& state) {
  auto& [config, msix, transport, device_select, driver_select, queue_select] = state;
  return std::tie(config, msix, transport, device_select, driver_select, queue_select);
}

namespace testing {

class RandomState {
 public:
  explicit RandomState(uint64_t seed) : random_(seed) {}
  // Which outlive it. Zeroes come behind them.
  explicit RandomState(std::span<const uint8_t> bytes) : bytes_(bytes), from_bytes_(true) {}

  uint64_t Below(uint64_t end) { return Next() % end; }
  // A value at an edge as often as any other.
  template <std::unsigned_integral T>
  T Value() {
    const uint64_t bits = Next();
    const int shift = static_cast<int>(bits % 64);
    switch (Next() % 8) {
      case 0:
      case 1:
        return 0;
      case 2:
        return 1;
      case 3:
        return std::numeric_limits<T>::max();
      case 4:
        return static_cast<T>(uint64_t{1} << shift);
      default:
        return static_cast<T>(bits >> shift);
    }
  }

  // Every field, and vectors of up to `most_elements`.
  template <typename State>
  void Fill(State& state, size_t most_elements) {
    ForEach(
        state, [&](auto& value) { value = Value<std::remove_reference_t<decltype(value)>>(); },
        [&](auto& vector) { vector.resize(Below(most_elements + 1)); });
  }

  // One to three fields, or lengths of vectors.
  template <typename State>
  void Mutate(State& state) {
    for (uint64_t left = 1 + Below(3); left > 0; --left) {
      size_t count = 0;
      const auto one_more = [&count](auto&) { ++count; };
      ForEach(state, one_more, one_more);
      size_t until = Below(count);
      const auto is_it = [&until] { return until-- == 0; };
      ForEach(
          state,
          [&](auto& value) {
            if (is_it()) Change(value);
          },
          [&](auto& vector) {
            if (is_it()) vector.resize(Below(vector.size() + 3));
          });
    }
  }

 private:
  template <typename T, typename OnValue, typename OnVector>
  static void ForEach(T& field, const OnValue& on_value, const OnVector& on_vector) {
    if constexpr (std::is_integral_v<T>) {
      on_value(field);
    } else if constexpr (requires { field.begin(); }) {
      if constexpr (requires { field.resize(1); }) on_vector(field);
      for (auto& element : field) ForEach(element, on_value, on_vector);
    } else {
      std::apply([&](auto&... each) { (ForEach(each, on_value, on_vector), ...); }, Fields(field));
    }
  }

  template <typename T>
  void Change(T& value) {
    if (Below(2) == 0) {
      value = static_cast<T>(value ^ T{1} << Below(std::numeric_limits<T>::digits));
    } else {
      value = Value<T>();
    }
  }

  uint64_t Next() {
    if (!from_bytes_) return random_();
    uint64_t value = 0;
    const size_t size = std::min(sizeof value, bytes_.size());
    std::copy_n(bytes_.begin(), size, reinterpret_cast<uint8_t*>(&value));
    bytes_ = bytes_.subspan(size);
    return value;
  }

  std::mt19937_64 random_;
  std::span<const uint8_t> bytes_;
  bool from_bytes_ = false;
};

}  // namespace testing
}  // namespace ringside
