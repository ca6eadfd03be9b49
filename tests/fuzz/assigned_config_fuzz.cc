// libFuzzer: any bytes as a device's configuration space, and as a guest's accesses to what it is
// shown of it and to its BARs. Whatever either does, the device is written nothing but its bus
// master bit, its MSI-X table stays as it is, and what is guest memory is the device's to show.
//
// The first bytes are eight registers of the device (where, value); each further eight are an
// access.
#include <cstdio>
#include <linux/pci_regs.h>
#include <memory>

#include "devices/assigned_function.h"
#include "tests/fuzz/config_access.h"
#include "tests/support/devices/fake_device_memory.h"
#include "tests/support/devices/fake_pci_platform.h"
#include "tests/support/vfio/fake_pci_device.h"

namespace ringside {
namespace {

using testing::FakePciDevice;
using testing::ReadAs;
using testing::WriteAs;

constexpr uint32_t kVectors = 4;
constexpr uint64_t kTableBytes = kVectors * PCI_MSIX_ENTRY_SIZE;
constexpr size_t kPatches = 8;

class Assigned {
 public:
  Assigned() : device_owned_(std::make_unique<FakePciDevice>(record_, kVectors)) {
    device_ = device_owned_.get();
  }
  void Patch(uint8_t offset, uint8_t value) { device_->Put(offset, value); }
  // False if such a device is refused.
  bool Create() {
    auto function =
        AssignedFunction::Create(std::move(device_owned_), platform_, memory_, Logger(nullptr));
    if (!function.ok()) return false;
    function_ = *std::move(function);
    if (!host.Add(*function_).ok()) return false;
    else_ = device_->Get<uint16_t>(PCI_COMMAND);
    record_.config_writes.clear();
    return true;
  }

  // To a BAR of the device, where the guest has put it.
  void AccessBar(const testing::ConfigAccess& access) {
    const uint64_t address = Config<uint32_t>(PCI_BASE_ADDRESS_0) + access.offset % 0x4000;
    std::array<std::byte, 8> data{};
    std::memcpy(data.data(), &access.value, sizeof access.value);
    const auto bytes = std::span(data).first(size_t{1} << access.size);
    if (access.write) {
      bus_.Write(address, bytes);
    } else {
      bus_.Read(address, bytes);
    }
  }

  // The first promise found broken, or null.
  const char* Broken() {
    for (const auto& write : record_.config_writes) {
      if (write.offset != PCI_COMMAND || write.size != 2) return "a register of the device";
      if ((write.value & ~uint32_t{PCI_COMMAND_MASTER}) != else_) return "a bit of the device";
    }
    record_.config_writes.clear();
    const auto command = Config<uint16_t>(PCI_COMMAND);
    if ((command & PCI_COMMAND_MASTER) !=
        (device_->Get<uint16_t>(PCI_COMMAND) & PCI_COMMAND_MASTER)) {
      return "bus mastering is not as the guest wants it";
    }
    if (ReadsLikeADevice()) return BrokenMemory();
    return "configuration space";
  }

  Bus bus_;
  PciHost host{bus_, testing::kWindow, testing::kWindowSize};

 private:
  template <typename T>
  T Config(uint32_t offset) {
    return ReadAs<T>(host.ecam(), 1 << 15 | offset);
  }

  bool ReadsLikeADevice() {
    int capabilities = 0;
    for (uint32_t at = Config<uint8_t>(PCI_CAPABILITY_LIST); at != 0;
         at = Config<uint8_t>(at + 1)) {
      const auto id = Config<uint8_t>(at);
      if (id != PCI_CAP_ID_MSIX && id != PCI_CAP_ID_EXP) return false;
      if (id == PCI_CAP_ID_MSIX) msix_ = at;
      if (++capabilities > 2) return false;
    }
    return Config<uint8_t>(PCI_INTERRUPT_PIN) == 0 && Config<uint32_t>(PCI_ROM_ADDRESS) == 0;
  }

  // The device's table is all zeroes, wherever it has said that the table is.
  const char* BrokenMemory() {
    const auto table = Config<uint32_t>(msix_ + PCI_MSIX_TABLE);
    const uint32_t at = table & ~uint32_t{PCI_MSIX_TABLE_BIR};
    const bool in_memory = (table & PCI_MSIX_TABLE_BIR) == 0;
    for (uint64_t i = 0; in_memory && i < kTableBytes; ++i) {
      if (device_->memory()[at + i] != std::byte()) return "the device's MSI-X table";
    }
    const uint64_t bar = Config<uint32_t>(PCI_BASE_ADDRESS_0);
    const bool decodes = (Config<uint16_t>(PCI_COMMAND) & PCI_COMMAND_MEMORY) != 0;
    for (const auto& [address, piece] : memory_.pieces) {
      const uint64_t offset = address - bar;
      if (!decodes || offset >= FakePciDevice::kBar0Size) return "memory left behind";
      if (piece.host != device_->memory() + offset) return "memory in the wrong place";
      if (offset + piece.size > FakePciDevice::kBar0Size) return "memory that is not there";
      if (in_memory && offset < at + kTableBytes && at < offset + piece.size) return "table mapped";
    }
    const bool enabled = (Config<uint16_t>(msix_ + PCI_MSIX_FLAGS) & PCI_MSIX_FLAGS_ENABLE) != 0;
    for (const auto* vector : platform_.vectors) {
      if (vector->unmasked && !enabled) return "a vector delivers while MSI-X is off";
    }
    return nullptr;
  }

  FakePciDevice::Record record_;
  std::unique_ptr<FakePciDevice> device_owned_;
  FakePciDevice* device_;
  testing::FakePciPlatform platform_;
  testing::FakeDeviceMemory memory_;
  uint16_t else_ = 0;  // the device's command register, without bus mastering
  uint32_t msix_ = 0;
  std::unique_ptr<AssignedFunction> function_;
};

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  Assigned assigned;
  if (size < 2 * kPatches) return 0;
  for (size_t i = 0; i < kPatches; ++i) assigned.Patch(data[2 * i], data[2 * i + 1]);
  if (!assigned.Create()) return 0;
  for (size_t at = 2 * kPatches; size - at >= sizeof(testing::ConfigAccess);
       at += sizeof(testing::ConfigAccess)) {
    testing::ConfigAccess access;
    std::memcpy(&access, data + at, sizeof access);
    // Half of them go to the BAR.
    const bool to_bar = (access.device & 1) != 0;
    access.device = 1;
    access.function = 0;
    if (to_bar) {
      assigned.AccessBar(access);
    } else {
      access.Do(assigned.host);
    }
    if (const char* what = assigned.Broken()) {
      std::fprintf(stderr, "broken promise: %s\n", what);
      __builtin_trap();
    }
  }
  return 0;
}
