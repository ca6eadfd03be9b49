// A PCI function: configuration space, BARs and capabilities. A device derives from it, adds its
// capabilities and BARs, and hands itself to the PciHost, which answers the guest's accesses with
// it and puts its BARs where the guest wants them.
//
// Threads: construction before the first vCPU runs; the rest is called by the PciHost under its
// lock, from any vCPU's thread. So nothing called here may call the PciHost.
// Ownership: BAR handlers outlive the bus's last access.
// Spec: PCI Local Bus 3.0, chapter 6.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "absl/status/status.h"
#include "devices/bus.h"

namespace ringside {

class PciFunction {
 public:
  static constexpr size_t kBars = 6;
  static constexpr size_t kConfigSize = 256;

  struct Identity {
    uint16_t vendor;
    uint16_t device;
    uint16_t subsystem_vendor;
    uint16_t subsystem;
    uint32_t class_code;  // 24 bits: class, subclass, programming interface
    uint8_t revision;
  };

  // A 32-bit memory BAR. No handler: there is none.
  struct Bar {
    uint64_t size = 0;  // a power of two, from 4096
    IoHandler* handler = nullptr;
  };

  // Configuration space as the guest reads it, for what derives from this to save. Bits that the
  // guest cannot write are there to be compared: they say which device it was. Of the status only
  // the interrupt bit changes by itself, and it reads 0 here, since it follows from the device.
  struct ConfigState {
    std::array<uint8_t, kConfigSize> bytes = {};
    bool operator==(const ConfigState&) const = default;
  };

  // A function without BARs and writable capabilities has nothing to switch on or off: all of its
  // configuration space is read-only. The first BAR makes the command register's memory space, bus
  // master and interrupt disable bits writable, and the interrupt line.
  explicit PciFunction(const Identity& identity);
  virtual ~PciFunction() = default;
  PciFunction(const PciFunction&) = delete;
  PciFunction& operator=(const PciFunction&) = delete;

  // Within configuration space; any size and alignment. Reads beyond it give zeroes. WriteConfig
  // changes only what is writable.
  void ReadConfig(uint32_t offset, std::span<std::byte> data);
  void WriteConfig(uint32_t offset, std::span<const std::byte> data);

  const Bar& bar(size_t index) const { return bars_[index]; }
  // Where the guest wants it now: a multiple of its size, or 0 while memory decoding is off (and
  // for a BAR that does not exist). A guest may write any address, 0 too, and does when it sizes a
  // BAR with decoding on: what can be decoded is for the PciHost to say.
  uint64_t BarAddress(size_t index) const;
  // What firmware would have done: gives a BAR its address. Decoding stays off.
  void AssignBar(size_t index, uint64_t address);

  // The PciHost has put a BAR at an address, or has taken it away from there. For doorbells.
  virtual void BarMapped(size_t /*index*/, uint64_t /*address*/) {}
  virtual void BarUnmapped(size_t /*index*/, uint64_t /*address*/) {}

 protected:
  // `size` is a power of two from 4 KiB to 2 GiB.
  void AddBar(size_t index, uint64_t size, IoHandler& handler);
  // Appends a capability and returns its offset. `body` follows the two bytes of id and next;
  // `writable` is a mask of the bits of body that the guest may change (shorter: the rest is
  // read-only). 0 if configuration space is full, which is a mistake in the device.
  uint32_t AddCapability(uint8_t id, std::span<const std::byte> body,
                         std::span<const std::byte> writable = {});
  template <typename T>
  static std::span<const std::byte> BytesOf(const T& value) {
    return std::as_bytes(std::span(&value, 1));
  }

  // Called before the guest reads, and after it wrote, bytes of configuration space. Writes to
  // read-only bytes are reported too, though they changed nothing.
  virtual void BeforeConfigRead(uint32_t /*offset*/, size_t /*size*/) {}
  virtual void AfterConfigWrite(uint32_t /*offset*/, size_t /*size*/) {}
  // Whether that was about any byte of a field.
  static bool Overlaps(uint32_t offset, size_t size, uint32_t field, size_t field_size) {
    return offset < field + field_size && field < offset + size;
  }

  static constexpr uint32_t kCommand = 0x04;
  static constexpr uint32_t kStatus = 0x06;
  // Section 6.2.2: whether it may read and write memory by itself.
  bool MastersBus() const;
  // Section 6.2.3: an interrupt by pin is pending. Not saved, as it follows from the device.
  void SetInterruptStatus(bool pending);

  // Raw bytes, for derived classes: they may read and write all of configuration space.
  template <typename T>
  T Get(uint32_t offset) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, &config_[offset], sizeof value);
    return value;
  }
  template <typename T>
  void Put(uint32_t offset, T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(&config_[offset], &value, sizeof value);
  }

  ConfigState SaveConfig() const;
  // Restore into a function that is new. InvalidArgument unless all that the guest cannot write is
  // as it is here. Restoring calls nobody: what follows from the bytes is for derived classes to
  // do, and for PciHost::Restore. Nothing has changed if it is refused.
  absl::Status CheckConfig(const ConfigState& state) const;
  absl::Status RestoreConfig(const ConfigState& state);

 private:
  // The part of an access of `size` bytes that lies in configuration space.
  static size_t Within(uint32_t offset, size_t size);
  void MakeWritable(uint32_t offset, uint16_t mask);

  std::array<std::byte, kConfigSize> config_{};
  std::array<std::byte, kConfigSize> writable_{};
  std::array<Bar, kBars> bars_{};
  size_t capabilities_end_;
};

}  // namespace ringside
