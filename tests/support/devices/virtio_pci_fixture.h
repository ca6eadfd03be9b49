// A virtio-pci function as its driver finds it: by walking the capabilities (section 4.1.4).
#pragma once

#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "devices/virtio_pci.h"
#include "tests/support/devices/fake_pci_platform.h"
#include "tests/support/devices/fake_virtio_device.h"
#include "tests/support/recording_log.h"
#include "tests/support/registers.h"

namespace ringside::testing {

class VirtioPciFixture : public ::testing::Test {
 protected:
  struct Structure {
    uint32_t capability;  // its place in configuration space
    uint8_t length;
    uint8_t bar;
    uint32_t offset;
    uint32_t size;
  };
  enum Type : uint8_t { kCommon = 1, kNotify, kIsr, kDevice, kAccessWindow };
  // Of the common configuration (section 4.1.4.3).
  enum Register : uint64_t {
    kDeviceFeatureSelect = 0,
    kDeviceFeature = 4,
    kDriverFeatureSelect = 8,
    kDriverFeature = 12,
    kConfigVector = 16,
    kNumQueues = 18,
    kStatus = 20,
    kGeneration = 21,
    kQueueSelect = 22,
    kQueueSize = 24,
    kQueueVector = 26,
    kQueueEnable = 28,
    kQueueNotifyOff = 30,
    kQueueDesc = 32,
    kQueueDriver = 40,
    kQueueDevice = 48,
  };
  static constexpr uint64_t kBarAddress = 0xd0000000;

  VirtioPciFixture() {
    pci_ = *VirtioPci::Create(device_, "disk0", platform_, Logger(&log_));
    bar_ = pci_->bar(0).handler;
    FindStructures();
  }

  template <typename T>
  T Config(uint32_t offset) {
    T value{};
    pci_->ReadConfig(offset, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <typename T>
  void SetConfig(uint32_t offset, T value) {
    pci_->WriteConfig(offset, std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  T Get(Register reg) {
    return ReadAs<T>(*bar_, structures_[kCommon].offset + reg);
  }
  template <typename T>
  void Set(Register reg, T value) {
    WriteAs<T>(*bar_, structures_[kCommon].offset + reg, value);
  }

  void EnableMsix(bool enabled) { SetConfig<uint16_t>(msix_capability_ + 2, enabled ? 0x8000 : 0); }
  // What a driver does (section 3.1.1), with queue 1 for its own.
  void Run() {
    Set<uint8_t>(kStatus, 1);
    Set<uint8_t>(kStatus, 3);
    Set<uint32_t>(kDriverFeatureSelect, 1);
    Set<uint32_t>(kDriverFeature, 1);
    Set<uint8_t>(kStatus, 11);
    ASSERT_EQ(Get<uint8_t>(kStatus), 11);
    Set<uint16_t>(kQueueSelect, 1);
    Set<uint16_t>(kQueueSize, 128);
    Set<uint32_t>(kQueueDesc, 0x10000);
    Set<uint32_t>(static_cast<Register>(kQueueDesc + 4), 1);
    Set<uint64_t>(kQueueDriver, 0x200014000);
    Set<uint32_t>(static_cast<Register>(kQueueDevice + 4), 3);
    Set<uint32_t>(kQueueDevice, 0x18000);
    Set<uint16_t>(kQueueEnable, 1);
    Set<uint8_t>(kStatus, 15);
    ASSERT_EQ(Get<uint8_t>(kStatus), 15);
  }
  // The access window (section 4.1.4.9).
  void SetWindow(uint8_t bar, uint32_t offset, uint32_t length) {
    const uint32_t capability = structures_[kAccessWindow].capability;
    SetConfig<uint8_t>(capability + 4, bar);
    SetConfig<uint32_t>(capability + 8, offset);
    SetConfig<uint32_t>(capability + 12, length);
  }
  uint32_t window_data() { return structures_[kAccessWindow].capability + 16; }

  RecordingLog log_;
  FakePciPlatform platform_;
  FakeVirtioDevice device_;
  std::unique_ptr<VirtioPci> pci_;
  IoHandler* bar_ = nullptr;
  std::map<uint8_t, Structure> structures_;
  uint32_t msix_capability_ = 0;

 private:
  void FindStructures() {
    uint32_t at = Config<uint8_t>(0x34);
    for (int limit = 48; at != 0 && limit > 0; at = Config<uint8_t>(at + 1), --limit) {
      if (Config<uint8_t>(at) == 0x11) msix_capability_ = at;
      if (Config<uint8_t>(at) != 0x09) continue;
      structures_.emplace(Config<uint8_t>(at + 3), Structure{.capability = at,
                                                             .length = Config<uint8_t>(at + 2),
                                                             .bar = Config<uint8_t>(at + 4),
                                                             .offset = Config<uint32_t>(at + 8),
                                                             .size = Config<uint32_t>(at + 12)});
    }
  }
};

}  // namespace ringside::testing
