// The PCI host bridge: configuration space through ports 0xcf8 and 0xcfc (mechanism 1, PCI 3.0
// section 3.2.2.3.2) and through ECAM memory (PCI Express 5.0 section 7.2.2). One bus; the bridge
// itself is its device 0.
//
// Threads: both are accessed from any vCPU thread; a mutex guards the address latch.
#pragma once

#include <array>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "base/sync.h"
#include "devices/bus.h"

namespace ringside {

class PciHost {
 public:
  static constexpr uint64_t kPortSize = 8;
  static constexpr uint64_t kEcamSize = 1 << 20;  // one bus: 32 devices, 8 functions, 4 KiB each

  PciHost();

  IoHandler& ports() { return ports_; }
  IoHandler& ecam() { return ecam_; }

 private:
  // Offset 0 to 3 is CONFIG_ADDRESS, 4 to 7 CONFIG_DATA.
  class Ports final : public IoHandler {
   public:
    explicit Ports(const PciHost& host) : host_(host) {}
    void Read(uint64_t offset, std::span<std::byte> data) override;
    void Write(uint64_t offset, std::span<const std::byte> data) override;

   private:
    const PciHost& host_;
    Mutex mutex_;
    uint32_t address_ ABSL_GUARDED_BY(mutex_) = 0;
  };

  class Ecam final : public IoHandler {
   public:
    explicit Ecam(const PciHost& host) : host_(host) {}
    void Read(uint64_t offset, std::span<std::byte> data) override;
    void Write(uint64_t, std::span<const std::byte>) override {}

   private:
    const PciHost& host_;
  };

  // `address` is laid out as in ECAM: bus 27:20, device 19:15, function 14:12, register 11:0.
  // The bridge has nothing to write.
  void ReadConfig(uint32_t address, std::span<std::byte> data) const;

  std::array<std::byte, 64> bridge_{};
  Ports ports_{*this};
  Ecam ecam_{*this};
};

}  // namespace ringside
