// A virtio device as an embedder would write one: a disk of zeroes.
#pragma once

#include <cstring>

#include "ringside/config.h"
#include "ringside/device.h"

namespace ringside::testing {

class ZeroDisk final : public Device {
 public:
  static constexpr uint64_t kSectors = 16384;

  uint16_t id() const override { return 2; }
  uint32_t pci_class() const override { return 0x010000; }
  // The capacity (VIRTIO 1.2, section 5.2.4).
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    for (std::byte& each : data) {
      if (offset < sizeof kSectors) each = static_cast<std::byte>(kSectors >> (8 * offset));
      ++offset;
    }
  }
  void Run(DeviceQueue& queue) override {
    while (queue.Pop(request_)) Answer(queue, request_);
  }

  // All of it zero, the status too, which is OK (section 5.2.6).
  static void Answer(DeviceQueue& queue, Request& request) {
    size_t written = 0;
    for (const std::span<std::byte> buffer : request.writable()) {
      std::memset(buffer.data(), 0, buffer.size());
      written += buffer.size();
    }
    queue.Push(request, static_cast<uint32_t>(written));
  }

 private:
  Request request_;
};

}  // namespace ringside::testing
