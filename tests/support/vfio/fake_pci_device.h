// A PCI device that notes what is done to it, for those who hand devices to guests.
//
// BAR 0 has 16 KiB: a page of memory (kMemory), a page of registers that may not be mapped
// (kOrders), a page with the MSI-X table and its pending bits (kTable, kPendingBits) and more
// memory behind them, and a last page of memory. BAR 2 has 256 bytes, and BAR 4 is of I/O ports.
// Registers are memory too, but for the orders:
//
//   kRaise (4 bytes)     raises that vector
//   kStoreAt (8 bytes)   writes kStored by DMA to this I/O address
//
// Capabilities: MSI-X, power management, PCI Express, MSI and a vendor's.
//
// Threads: configuration by one at a time, registers by any.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <linux/pci_regs.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "base/sync.h"
#include "vfio/pci_device.h"

namespace ringside::testing {

class FakePciDevice final : public PciDevice {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kBar0Size = 4 * kPage;
  static constexpr uint64_t kBar2Size = 256;
  static constexpr uint64_t kMemory = 0;
  static constexpr uint64_t kOrders = kPage;
  static constexpr uint64_t kRaise = kOrders;
  static constexpr uint64_t kStoreAt = kOrders + 8;
  static constexpr uint64_t kTable = 2 * kPage;
  static constexpr uint64_t kPendingBits = 2 * kPage + 0x800;
  static constexpr uint64_t kStored = 0x5566778811223344;

  static constexpr uint16_t kVendor = 0x1234;
  static constexpr uint16_t kDevice = 0x0a55;
  static constexpr uint8_t kMsix = 0x40, kPower = 0x50, kExpress = 0x60, kMsi = 0xa0, kOwn = 0xc0;

  // What the test keeps: the device belongs to its user.
  struct Record {
    struct ConfigWrite {
      uint32_t offset, size, value;
    };
    std::vector<ConfigWrite> config_writes;
    std::vector<DmaMapping> mappings;
    std::vector<size_t> vector_counts;  // of each SetVectors
    int resets = 0;
    bool bus_master_at_reset = false;
    std::atomic<bool> is_open = true;
    std::function<void()> on_order;  // each store into the page of orders, before it is obeyed
    std::atomic<int> lost_dma = 0;  // without bus mastering, or to where nothing is mapped
  };

  explicit FakePciDevice(Record& record, uint32_t vectors = 4) : record_(record), given_(vectors) {
    memory_fd_ = UniqueFd(memfd_create("bar", MFD_CLOEXEC));
    if (ftruncate(memory_fd_.get(), kBar0Size) != 0) std::abort();
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, kBar0Size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_.get(), 0));
    Put<uint16_t>(PCI_VENDOR_ID, kVendor);
    Put<uint16_t>(PCI_DEVICE_ID, kDevice);
    Put<uint16_t>(PCI_COMMAND, PCI_COMMAND_SERR);
    Put<uint16_t>(PCI_STATUS, PCI_STATUS_CAP_LIST);
    Put<uint32_t>(PCI_CLASS_REVISION, 0x08800007);
    Put<uint32_t>(PCI_BASE_ADDRESS_0, 0xfe000000 | PCI_BASE_ADDRESS_MEM_TYPE_64);
    Put<uint32_t>(PCI_BASE_ADDRESS_2, 0xfe800000);
    Put<uint32_t>(PCI_BASE_ADDRESS_4, 0x0000c001);
    Put<uint32_t>(PCI_ROM_ADDRESS, 0xfe900001);
    Put<uint16_t>(PCI_SUBSYSTEM_VENDOR_ID, 0x4321);
    Put<uint16_t>(PCI_SUBSYSTEM_ID, 0x8765);
    Put<uint8_t>(PCI_INTERRUPT_PIN, 1);
    Put<uint8_t>(PCI_CAPABILITY_LIST, kPower);
    AddCapability(kPower, PCI_CAP_ID_PM, kOwn);
    AddCapability(kOwn, PCI_CAP_ID_VNDR, kExpress);
    AddCapability(kExpress, PCI_CAP_ID_EXP, kMsi);
    AddCapability(kMsi, PCI_CAP_ID_MSI, kMsix);
    AddCapability(kMsix, PCI_CAP_ID_MSIX, 0);
    Put<uint16_t>(kMsix + PCI_MSIX_FLAGS, static_cast<uint16_t>(vectors - 1));
    Put<uint32_t>(kMsix + PCI_MSIX_TABLE, static_cast<uint32_t>(kTable));
    Put<uint32_t>(kMsix + PCI_MSIX_PBA, static_cast<uint32_t>(kPendingBits));
    Put<uint32_t>(kExpress + PCI_EXP_DEVCAP, 0xffffffff);
    Put<uint16_t>(kExpress + PCI_EXP_DEVCTL, 0xffff);
    vectors_ = vectors;
  }
  ~FakePciDevice() override {
    munmap(memory_, kBar0Size);
    record_.is_open = false;
  }

  const std::string& name() const override { return name_; }
  uint32_t ReadConfig(uint32_t offset, uint32_t size) override {
    uint32_t value = 0;
    if (offset + size > config.size()) return 0xffffffff;
    std::memcpy(&value, &config[offset], size);
    return value;
  }
  void WriteConfig(uint32_t offset, uint32_t size, uint32_t value) override {
    record_.config_writes.push_back({offset, size, value});
    if (offset + size <= config.size()) std::memcpy(&config[offset], &value, size);
    bus_master_ = (Get<uint16_t>(PCI_COMMAND) & PCI_COMMAND_MASTER) != 0;
  }
  uint32_t ReadBar(int, uint64_t) override { return 0; }
  void WriteBar(int, uint64_t, uint32_t) override {}
  absl::StatusOr<std::byte*> MapBar(int, uint64_t offset, uint64_t) override {
    return memory_ + offset;
  }
  PciBar bar(int bar) const override {
    if (bar == 0) return bar0;
    if (bar == 2) return {.size = kBar2Size, .mappable = {{0, kBar2Size}}};
    if (bar == 4) return {.size = 32, .mappable = {}};
    return {};
  }
  void ReadRegisters(int bar, uint64_t offset, std::span<std::byte> data) override {
    if (bar == 0) std::memcpy(data.data(), memory_ + offset, data.size());
    if (bar == 2) std::memset(data.data(), 0x22, data.size());
  }
  void WriteRegisters(int bar, uint64_t offset, std::span<const std::byte> data) override {
    if (bar != 0) return;
    if (record_.on_order != nullptr) record_.on_order();
    std::memcpy(memory_ + offset, data.data(), data.size());
    uint64_t value = 0;
    std::memcpy(&value, data.data(), data.size());
    if (offset == kRaise && data.size() == 4) Raise(value);
    if (offset == kStoreAt && data.size() == 8) Store(value);
  }
  std::span<const IovaRange> iova_ranges() const override { return ranges; }
  absl::Status MapDma(const DmaMapping& mapping) override {
    record_.mappings.push_back(mapping);
    return absl::OkStatus();
  }
  absl::Status UnmapDma(uint64_t, uint64_t) override { return absl::OkStatus(); }
  uint32_t vectors() const override { return vectors_; }
  absl::Status SetVectors(std::span<const int> eventfds) override {
    const MutexLock lock(mutex_);
    record_.vector_counts.push_back(eventfds.size());
    if (eventfds.size() > given_) return absl::FailedPreconditionError("the host is short of them");
    eventfds_.clear();
    for (const int fd : eventfds) eventfds_.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    return absl::OkStatus();
  }
  void MaskVector(uint32_t) override {}
  bool UnmaskVector(uint32_t) override { return true; }
  absl::Status Reset() override {
    ++record_.resets;
    record_.bus_master_at_reset = bus_master_;
    return absl::OkStatus();
  }

  // Nothing if no one has enabled it.
  void Raise(uint64_t vector) {
    const MutexLock lock(mutex_);
    if (vector >= eventfds_.size()) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(eventfds_[vector].get(), &one, sizeof one);
  }
  // How many vectors the host has.
  void SetGiven(uint32_t given) { given_ = given; }
  std::byte* memory() { return memory_; }

  template <typename T>
  void Put(uint32_t offset, T value) {
    std::memcpy(&config[offset], &value, sizeof value);
  }
  template <typename T>
  T Get(uint32_t offset) const {
    T value;
    std::memcpy(&value, &config[offset], sizeof value);
    return value;
  }

  std::array<std::byte, 256> config{};
  std::vector<IovaRange> ranges = {{0, ~uint64_t{0}}};
  PciBar bar0 = {.size = kBar0Size, .mappable = {{kMemory, kPage}, {kTable, kBar0Size - kTable}}};

 private:
  void AddCapability(uint8_t offset, uint8_t id, uint8_t next) {
    Put(offset, id);
    Put(offset + 1U, next);
  }
  void Store(uint64_t iova) {
    for (const DmaMapping& mapping : record_.mappings) {
      const uint64_t at = iova - mapping.iova;
      if (!bus_master_ || at > mapping.size - sizeof kStored) continue;
      std::memcpy(mapping.host + at, &kStored, sizeof kStored);
      return;
    }
    ++record_.lost_dma;
  }

  Record& record_;
  const std::string name_ = "0000:0a:00.0";
  UniqueFd memory_fd_;
  std::byte* memory_ = nullptr;
  uint32_t vectors_;
  std::atomic<uint32_t> given_;
  std::atomic<bool> bus_master_ = false;
  Mutex mutex_;
  std::vector<UniqueFd> eventfds_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside::testing
