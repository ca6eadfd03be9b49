// The port of pvpanic, which a guest's kernel writes to when it has crashed. The guest goes on:
// what it does then (stop, reboot) is its own to decide, Linux's by its option `panic=`.
//
// Threads: any; there is no state. Spec: QEMU, docs/specs/pvpanic.rst.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>

#include "devices/bus.h"

namespace ringside {

class PanicPort final : public IoHandler {
 public:
  static constexpr uint64_t kSize = 1;
  static constexpr std::byte kPanicked{1 << 0};
  static constexpr std::byte kCrashLoaded{1 << 1};  // a crash kernel takes over

  // Called on the vCPU's thread, as often as the guest likes.
  explicit PanicPort(std::function<void(bool crash_loaded)> panicked)
      : panicked_(std::move(panicked)) {}

  // The bits that mean something here.
  void Read(uint64_t, std::span<std::byte> data) override {
    std::ranges::fill(data, kPanicked | kCrashLoaded);
  }
  void Write(uint64_t, std::span<const std::byte> data) override {
    if ((data[0] & (kPanicked | kCrashLoaded)) == std::byte{0}) return;
    panicked_((data[0] & kCrashLoaded) != std::byte{0});
  }

 private:
  const std::function<void(bool crash_loaded)> panicked_;
};

}  // namespace ringside
