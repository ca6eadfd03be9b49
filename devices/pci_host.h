// The PCI host bridge: configuration space through ports 0xcf8 and 0xcfc (mechanism 1, PCI 3.0
// section 3.2.2.3.2) and through ECAM memory (PCI Express 5.0 section 7.2.2). One bus; the bridge
// itself is its device 0, and every device has one function.
//
// Functions that are added get BAR addresses in the bridge's memory window, as firmware would give
// them, so that a guest without firmware uses them as found. Memory decoding is off, as after a
// reset: every driver turns it on for itself, and one that moves BARs first, as many kernels do,
// does not drag the doorbells along.
//
// A BAR is on the memory bus where the guest last put it, once the write that put it there is
// through. The bridge forwards its window and nothing else, so a BAR that is moved onto memory, the
// APICs or ECAM is not there; of two that overlap, the one that came first stays, and the other
// appears when the place is free.
//
// Threads: Add before the first vCPU runs; ports and ECAM from any vCPU's. One mutex over all of
// configuration space; while it is held the functions, and through them the memory bus, are called.
// Ownership: functions, their BAR handlers and the memory bus outlive the host's last access.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/sync.h"
#include "devices/bus.h"
#include "devices/pci_function.h"

namespace ringside {

class PciHost {
 public:
  static constexpr uint64_t kPortSize = 8;
  static constexpr uint64_t kEcamSize = 1 << 20;  // one bus: 32 devices, 8 functions, 4 KiB each
  static constexpr uint32_t kDevices = 32;

  // Where BARs are mapped is not here: it follows from the functions' registers. Of two that
  // overlap, whichever the guest put there first, the one that was added first is mapped again.
  struct State {
    uint32_t config_address = 0;                    // CONFIG_ADDRESS
    std::array<uint32_t, kDevices> functions = {};  // vendor and device id; all ones: nobody
    bool operator==(const State&) const = default;
  };

  // BARs live on `memory`, in the window: not at address 0, and below 4 GiB.
  PciHost(Bus& memory, uint64_t window_base, uint64_t window_size);

  // Gives the function a device number, and addresses for its BARs: number `home`, or, if that is
  // taken, the next that is free, around the end. ResourceExhausted if there is none left, or no
  // room in the window.
  absl::Status Add(PciFunction& function, uint32_t home = 1);

  State Save() const;
  // Restore into a host that is new and has its functions, which have been restored: maps their
  // BARs. InvalidArgument unless the same functions are at the same numbers; nothing has changed
  // then.
  absl::Status Check(const State& state) const;
  absl::Status Restore(const State& state);

  IoHandler& ports() { return ports_; }
  IoHandler& ecam() { return ecam_; }

 private:
  // Offset 0 to 3 is CONFIG_ADDRESS, 4 to 7 CONFIG_DATA.
  class Ports final : public IoHandler {
   public:
    explicit Ports(PciHost& host) : host_(host) {}
    void Read(uint64_t offset, std::span<std::byte> data) override;
    void Write(uint64_t offset, std::span<const std::byte> data) override;

   private:
    PciHost& host_;
  };

  class Ecam final : public IoHandler {
   public:
    explicit Ecam(PciHost& host) : host_(host) {}
    void Read(uint64_t offset, std::span<std::byte> data) override;
    void Write(uint64_t offset, std::span<const std::byte> data) override;

   private:
    PciHost& host_;
  };

  struct PlacedBar {
    PciFunction* function;
    size_t index;
    uint64_t address = 0;  // where the bus has it; 0: nowhere
  };

  // `address` is laid out as in ECAM: bus 27:20, device 19:15, function 14:12, register 11:0.
  void ReadConfig(uint32_t address, std::span<std::byte> data) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteConfig(uint32_t address, std::span<const std::byte> data)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if nobody answers there.
  PciFunction* Find(uint32_t address) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the range lies within the window.
  bool Forwards(uint64_t address, uint64_t size) const;
  // Brings the memory bus to where the functions want their BARs.
  void MoveBars() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Bus& memory_;
  const uint64_t window_base_;
  const uint64_t window_size_;
  PciFunction bridge_;
  Ports ports_{*this};
  Ecam ecam_{*this};

  mutable Mutex mutex_;
  // By device number; null: nobody has it.
  std::array<PciFunction*, kDevices> functions_ ABSL_GUARDED_BY(mutex_) = {};
  std::vector<PlacedBar> bars_ ABSL_GUARDED_BY(mutex_);
  uint64_t assigned_end_ ABSL_GUARDED_BY(mutex_);  // of the addresses given out so far
  uint32_t config_address_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ringside
