#include "devices/assigned_function.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "devices/pci_host.h"
#include "tests/support/devices/fake_device_memory.h"
#include "tests/support/devices/fake_pci_platform.h"
#include "tests/support/devices/pci_model.h"
#include "tests/support/recording_log.h"
#include "tests/support/registers.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vfio/fake_pci_device.h"
#include "vfio/pci_capability.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using testing::FakeDeviceMemory;
using testing::FakePciDevice;
using testing::FakePciPlatform;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::kWindow;
using testing::kWindowSize;
using ::testing::Pair;
using testing::ReadAs;
using testing::WriteAs;

constexpr uint32_t kBar0 = 0x10;
constexpr uint64_t kPage = FakePciDevice::kPage;
constexpr uint16_t kEnable = PCI_MSIX_FLAGS_ENABLE;
constexpr uint16_t kMaskAll = PCI_MSIX_FLAGS_MASKALL;

// As device 1 of a guest's bus.
class AssignedFunctionTest : public ::testing::Test {
 protected:
  void Make(uint32_t vectors = 4) {
    device_owned_ = std::make_unique<FakePciDevice>(record_, vectors);
    device_ = device_owned_.get();
  }
  absl::Status Create() {
    auto function =
        AssignedFunction::Create(std::move(device_owned_), platform_, memory_, Logger(&log_));
    if (!function.ok()) return function.status();
    function_ = *std::move(function);
    return host_.Add(*function_);
  }
  void MakeAndCreate() {
    Make();
    ASSERT_TRUE(Create().ok());
    record_.config_writes.clear();
  }
  std::string Refusal() {
    const absl::Status status = Create();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return std::string(Message(status));
  }

  template <typename T>
  T Config(uint32_t offset) {
    return ReadAs<T>(host_.ecam(), 1 << 15 | offset);
  }
  template <typename T>
  void SetConfig(uint32_t offset, T value) {
    WriteAs<T>(host_.ecam(), 1 << 15 | offset, value);
  }
  uint32_t Capability(uint8_t id) {
    for (uint32_t at = Config<uint8_t>(PCI_CAPABILITY_LIST); at != 0;
         at = Config<uint8_t>(at + 1)) {
      if (Config<uint8_t>(at) == id) return at;
    }
    return 0;
  }
  void SetMsix(uint16_t control) {
    SetConfig<uint16_t>(Capability(PCI_CAP_ID_MSIX) + PCI_MSIX_FLAGS, control);
  }
  uint64_t Bar(size_t index) {
    return Config<uint32_t>(static_cast<uint32_t>(kBar0 + 4 * index)) & ~0xfU;
  }
  void Decode() { SetConfig<uint16_t>(PCI_COMMAND, PCI_COMMAND_MEMORY); }
  // All that the guest could do to the device's configuration space is its bus master bit.
  bool OnlyBusMasterIsWritten() {
    for (const auto& write : record_.config_writes) {
      constexpr uint32_t kElse = PCI_COMMAND_SERR | PCI_COMMAND_MEMORY;
      if (write.offset != PCI_COMMAND || write.size != 2) return false;
      if ((write.value & ~uint32_t{PCI_COMMAND_MASTER}) != kElse) return false;
    }
    return true;
  }

  FakePciDevice::Record record_;
  std::unique_ptr<FakePciDevice> device_owned_;
  FakePciDevice* device_ = nullptr;
  FakePciPlatform platform_;
  FakeDeviceMemory memory_;
  testing::RecordingLog log_;
  Bus bus_;
  PciHost host_{bus_, kWindow, kWindowSize};
  std::unique_ptr<AssignedFunction> function_;
};

TEST_F(AssignedFunctionTest, ShowsWhatTheDeviceIs) {
  MakeAndCreate();
  EXPECT_EQ(Config<uint32_t>(PCI_VENDOR_ID), 0x0a551234u);
  EXPECT_EQ(Config<uint32_t>(PCI_CLASS_REVISION), 0x08800007u);
  EXPECT_EQ(Config<uint32_t>(PCI_SUBSYSTEM_VENDOR_ID), 0x87654321u);
  EXPECT_EQ(Config<uint16_t>(PCI_COMMAND), 0);
  EXPECT_EQ(Config<uint16_t>(PCI_STATUS), PCI_STATUS_CAP_LIST);
  EXPECT_EQ(Config<uint8_t>(PCI_HEADER_TYPE), 0);
  EXPECT_EQ(Config<uint8_t>(PCI_INTERRUPT_PIN), 0);
  EXPECT_EQ(Config<uint32_t>(PCI_ROM_ADDRESS), 0u);
  for (uint32_t offset = 0x100; offset < 0x1000; offset += 4) {
    EXPECT_EQ(Config<uint32_t>(offset), 0u) << "extended capabilities";
  }
}

TEST_F(AssignedFunctionTest, ShowsMsixAndExpressAndNoOtherCapability) {
  MakeAndCreate();
  const uint32_t msix = Capability(PCI_CAP_ID_MSIX);
  ASSERT_NE(msix, 0u);
  EXPECT_EQ(Config<uint16_t>(msix + PCI_MSIX_FLAGS), 3);
  EXPECT_EQ(Config<uint32_t>(msix + PCI_MSIX_TABLE), FakePciDevice::kTable);
  EXPECT_EQ(Config<uint32_t>(msix + PCI_MSIX_PBA), FakePciDevice::kPendingBits);
  for (const uint8_t id : {PCI_CAP_ID_PM, PCI_CAP_ID_MSI, PCI_CAP_ID_VNDR}) {
    EXPECT_EQ(Capability(id), 0u) << int{id};
  }
  const uint32_t express = Capability(PCI_CAP_ID_EXP);
  ASSERT_NE(express, 0u);
  EXPECT_EQ(Config<uint16_t>(express + PCI_EXP_FLAGS), 0x92);
  EXPECT_EQ(Config<uint32_t>(express + PCI_EXP_DEVCAP) & PCI_EXP_DEVCAP_FLR, 0u);
  EXPECT_EQ(Config<uint16_t>(express + PCI_EXP_DEVCTL) & PCI_EXP_DEVCTL_BCR_FLR, 0);
  EXPECT_NE(Config<uint16_t>(express + PCI_EXP_DEVCTL) & PCI_EXP_DEVCTL_PAYLOAD, 0);
}

TEST_F(AssignedFunctionTest, OnlyBusMasteringPasses) {
  MakeAndCreate();
  // Every register, with every bit set and every bit clear.
  for (const uint32_t value : {0xffffffffU, 0U, 0xffffffffU}) {
    for (uint32_t offset = 0; offset < 4096; offset += 4) SetConfig<uint32_t>(offset, value);
  }
  EXPECT_THAT(record_.config_writes, ::testing::SizeIs(3));
  EXPECT_TRUE(OnlyBusMasterIsWritten());
  EXPECT_NE(record_.config_writes.back().value & PCI_COMMAND_MASTER, 0u);
  SetConfig<uint8_t>(PCI_COMMAND, 0);
  EXPECT_EQ(record_.config_writes.back().value & PCI_COMMAND_MASTER, 0u);
  SetConfig<uint8_t>(PCI_COMMAND + 1, 0xff);
  EXPECT_THAT(record_.config_writes, ::testing::SizeIs(4)) << "what changes nothing is not written";
}

TEST_F(AssignedFunctionTest, TheDeviceDecodesAndIsNoBusMasterWhenTheGuestStarts) {
  Make();
  device_->Put<uint16_t>(PCI_COMMAND, PCI_COMMAND_SERR | PCI_COMMAND_MASTER);
  ASSERT_TRUE(Create().ok());
  EXPECT_EQ(device_->Get<uint16_t>(PCI_COMMAND), PCI_COMMAND_SERR | PCI_COMMAND_MEMORY);
}

TEST_F(AssignedFunctionTest, BarsAreTheGuestsOwn) {
  MakeAndCreate();
  EXPECT_EQ(Bar(0), kWindow);
  EXPECT_EQ(Bar(2), kWindow + FakePciDevice::kBar0Size);
  SetConfig<uint32_t>(kBar0, 0xffffffff);
  EXPECT_EQ(Config<uint32_t>(kBar0), 0xffffc000u) << "32 bits, not prefetchable";
  SetConfig<uint32_t>(kBar0 + 8, 0xffffffff);
  EXPECT_EQ(Config<uint32_t>(kBar0 + 8), 0xfffff000u) << "a page at least";
  for (const uint32_t index : {1U, 3U, 4U, 5U}) {
    SetConfig<uint32_t>(kBar0 + 4 * index, 0xffffffff);
    EXPECT_EQ(Config<uint32_t>(kBar0 + 4 * index), 0u) << "no upper half, no ports";
  }
  EXPECT_THAT(record_.config_writes, IsEmpty());
}

TEST_F(AssignedFunctionTest, WhatMayBeMappedIsMemoryWhileItDecodes) {
  MakeAndCreate();
  EXPECT_THAT(memory_.pieces, IsEmpty());
  Decode();
  std::byte* const host = device_->memory();
  // Not the registers that the device keeps, nor the page with the vectors.
  EXPECT_THAT(memory_.pieces, ElementsAre(Pair(kWindow, FakeDeviceMemory::Piece{host, kPage}),
                                          Pair(kWindow + 3 * kPage,
                                               FakeDeviceMemory::Piece{host + 3 * kPage, kPage})));
  SetConfig<uint32_t>(kBar0, kWindow + 0x100000);
  EXPECT_THAT(memory_.pieces, ElementsAre(Pair(kWindow + 0x100000, ::testing::_),
                                          Pair(kWindow + 0x103000, ::testing::_)));
  SetConfig<uint32_t>(kBar0, 0x1000);
  EXPECT_THAT(memory_.pieces, IsEmpty()) << "outside of the window";
  SetConfig<uint32_t>(kBar0, kWindow);
  EXPECT_THAT(memory_.pieces, ::testing::SizeIs(2));
  SetConfig<uint16_t>(PCI_COMMAND, 0);
  EXPECT_THAT(memory_.pieces, IsEmpty());
  Decode();
  function_.reset();
  EXPECT_THAT(memory_.pieces, IsEmpty());
}

TEST_F(AssignedFunctionTest, AreasAreCutToWholePagesOfTheBar) {
  Make();
  device_->bar0.mappable = {{0x10, 0x1ff0}, {0x2000, ~uint64_t{0}}, {~uint64_t{0}, 0x1000}};
  ASSERT_TRUE(Create().ok());
  Decode();
  EXPECT_THAT(
      memory_.pieces,
      ElementsAre(Pair(kWindow + kPage, FakeDeviceMemory::Piece{device_->memory() + kPage, kPage}),
                  Pair(kWindow + 3 * kPage, ::testing::_)));
}

TEST_F(AssignedFunctionTest, WhatIsNotMappedReachesTheDevice) {
  MakeAndCreate();
  Decode();
  const uint64_t at = kWindow + FakePciDevice::kOrders + 0x100;
  WriteAs<uint64_t>(bus_, at, 0x1122334455667788);
  EXPECT_EQ(ReadAs<uint64_t>(bus_, at), 0x1122334455667788u);
  EXPECT_EQ(ReadAs<uint32_t>(bus_, at + 4), 0x11223344u);
  EXPECT_EQ(ReadAs<uint16_t>(bus_, at + 2), 0x5566u);
  EXPECT_EQ(ReadAs<uint8_t>(bus_, at + 1), 0x77u);
  EXPECT_EQ(ReadAs<uint32_t>(bus_, at + 1), 0x44556677u) << "in pieces that are aligned";
  EXPECT_EQ(ReadAs<uint32_t>(bus_, Bar(2) + 0x80), 0x22222222u);
  EXPECT_EQ(ReadAs<uint32_t>(bus_, Bar(2) + 0x100), 0xffffffffu) << "it has 256 bytes";
  EXPECT_EQ(function_->exits(), 8u);
  // Beside the table, in its page.
  WriteAs<uint32_t>(bus_, kWindow + FakePciDevice::kTable + 0x40, 0xabcdef01);
  EXPECT_EQ(ReadAs<uint32_t>(bus_, kWindow + FakePciDevice::kTable + 0x40), 0xabcdef01u);
}

TEST_F(AssignedFunctionTest, WithoutSlotsEverythingReachesTheDevice) {
  memory_.refuses = true;
  MakeAndCreate();
  Decode();
  WriteAs<uint32_t>(bus_, kWindow + 0x20, 0x12345678);
  EXPECT_EQ(ReadAs<uint32_t>(bus_, kWindow + 0x20), 0x12345678u);
  EXPECT_EQ(log_.lines().size(), 1u);
}

TEST_F(AssignedFunctionTest, TheDevicesTableIsOutOfReach) {
  MakeAndCreate();
  Decode();
  std::byte* const table = device_->memory() + FakePciDevice::kTable;
  for (uint64_t offset = 0; offset < 4 * 16; ++offset) {
    WriteAs<uint8_t>(bus_, kWindow + FakePciDevice::kTable + offset, 0xff);
    if (offset % 4 != 0) continue;
    WriteAs<uint32_t>(bus_, kWindow + FakePciDevice::kTable + offset, 0xffffffff);
    WriteAs<uint64_t>(bus_, kWindow + FakePciDevice::kTable + offset - 4, ~uint64_t{0});
  }
  EXPECT_TRUE(
      std::all_of(table, table + 4 * 16, [](std::byte each) { return each == std::byte(); }));
  const uint64_t pending = FakePciDevice::kPendingBits;
  WriteAs<uint64_t>(bus_, kWindow + pending, ~uint64_t{0});
  EXPECT_EQ(device_->memory()[pending], std::byte());
}

TEST_F(AssignedFunctionTest, VectorsAreTheDevicesWhileTheGuestHasThemEnabled) {
  MakeAndCreate();
  EXPECT_THAT(record_.vector_counts, IsEmpty());
  SetMsix(kEnable | kMaskAll);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4));
  SetMsix(kEnable);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4));
  SetMsix(0);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4, 0));
  SetMsix(kEnable);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4, 0, 4));
  EXPECT_EQ(function_->most_vectors(), 4u);
}

TEST_F(AssignedFunctionTest, AnInterruptThatIsHeldBackIsPendingAndComes) {
  MakeAndCreate();
  Decode();
  const uint64_t entry = kWindow + FakePciDevice::kTable + 16;
  const uint64_t pending = kWindow + FakePciDevice::kPendingBits;
  SetMsix(kEnable);
  WriteAs<uint64_t>(bus_, entry, 0xfee00000);
  WriteAs<uint32_t>(bus_, entry + 8, 0x41);
  device_->Raise(1);
  EXPECT_EQ(ReadAs<uint64_t>(bus_, pending), 2u);
  EXPECT_FALSE(platform_.vectors[1]->unmasked);
  SetMsix(kEnable | kMaskAll);
  WriteAs<uint32_t>(bus_, entry + 12, 0);
  EXPECT_FALSE(platform_.vectors[1]->unmasked);
  EXPECT_EQ(ReadAs<uint64_t>(bus_, pending), 2u);
  SetMsix(kEnable);
  EXPECT_TRUE(platform_.vectors[1]->unmasked);
  EXPECT_EQ(platform_.vectors[1]->data, 0x41u);
  EXPECT_EQ(platform_.vectors[1]->event().Clear(), 1u) << "what the platform delivers first";
}

TEST_F(AssignedFunctionTest, AHostShortOfInterruptsGivesSome) {
  MakeAndCreate();
  device_->SetGiven(2);
  SetMsix(kEnable);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4, 2));
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_THAT(log_.lines()[0], HasSubstr("the guest has 2 of 4 vectors"));
  device_->SetGiven(0);
  SetMsix(0);
  SetMsix(kEnable);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4, 2, 0, 4, 2, 1));
  SetMsix(kEnable | kMaskAll);
  SetMsix(0);
  EXPECT_THAT(record_.vector_counts, ::testing::SizeIs(6)) << "nothing to switch off";
  EXPECT_EQ(log_.lines().size(), 1u) << "the log is the host's";
}

TEST_F(AssignedFunctionTest, AGuestSees256VectorsAtMost) {
  Make(400);
  device_->Put<uint32_t>(FakePciDevice::kMsix + PCI_MSIX_PBA, 0x3f00);
  ASSERT_TRUE(Create().ok()) << "the table takes two pages";
  const uint32_t msix = Capability(PCI_CAP_ID_MSIX);
  EXPECT_EQ(Config<uint16_t>(msix + PCI_MSIX_FLAGS), 255);
  Decode();
  WriteAs<uint32_t>(bus_, kWindow + FakePciDevice::kTable + 300 * 16, 0x1234);
  EXPECT_EQ(device_->memory()[FakePciDevice::kTable + 300 * 16], std::byte())
      << "of its other vectors nothing can be reached either";
}

TEST_F(AssignedFunctionTest, OnceItHasLeftTheBusTheGuestDoesNotBringItBack) {
  MakeAndCreate();
  SetConfig<uint16_t>(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  function_->LeaveBus();
  EXPECT_EQ(record_.config_writes.back().value & PCI_COMMAND_MASTER, 0u);
  const size_t writes = record_.config_writes.size();
  SetConfig<uint16_t>(PCI_COMMAND, PCI_COMMAND_MEMORY);
  SetConfig<uint16_t>(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  function_->LeaveBus();
  EXPECT_EQ(record_.config_writes.size(), writes);
  EXPECT_EQ(record_.resets, 0) << "which would take its time";
}

TEST_F(AssignedFunctionTest, AtTheEndItIsNoBusMasterAndReset) {
  MakeAndCreate();
  SetConfig<uint16_t>(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
  SetMsix(kEnable);
  function_->Stop();
  EXPECT_EQ(record_.resets, 1);
  EXPECT_FALSE(record_.bus_master_at_reset);
  EXPECT_THAT(record_.vector_counts, ElementsAre(4, 0));
  function_->Stop();
  EXPECT_EQ(record_.resets, 1);
  EXPECT_TRUE(record_.is_open);
  function_.reset();
  EXPECT_FALSE(record_.is_open);
}

TEST_F(AssignedFunctionTest, ADeviceThatNoGuestCanHaveIsRefused) {
  Make();
  device_->Put<uint8_t>(PCI_HEADER_TYPE, 0x81);
  EXPECT_THAT(Refusal(), HasSubstr("'0000:0a:00.0' is a bridge"));
  Make();
  device_->Put<uint8_t>(FakePciDevice::kMsi + 1, 0);
  EXPECT_THAT(Refusal(), HasSubstr("has no MSI-X"));
  Make();
  device_->Put<uint16_t>(PCI_VENDOR_ID, 0xffff);
  EXPECT_THAT(Refusal(), HasSubstr("does not answer"));
  for (const uint32_t place : {1U, 6U, 7U, 4U, 0x4000U, 0x3fe0U, 0xfffffff8U}) {
    Make();
    device_->Put<uint32_t>(FakePciDevice::kMsix + PCI_MSIX_TABLE, place);
    EXPECT_THAT(Refusal(), HasSubstr("where it has no memory")) << place;
  }
  Make();
  device_->bar0.size = uint64_t{4} << 30;
  EXPECT_THAT(Refusal(), HasSubstr("BAR 0 of PCI device '0000:0a:00.0' has 4G"));
}

TEST_F(AssignedFunctionTest, ACapabilityListThatGoesInCirclesHasAnEnd) {
  Make();
  device_->Put<uint8_t>(FakePciDevice::kMsi + 1, FakePciDevice::kPower);
  EXPECT_THAT(Refusal(), HasSubstr("has no MSI-X"));
  Make();
  device_->Put<uint8_t>(FakePciDevice::kMsix + 1, FakePciDevice::kMsix);
  EXPECT_TRUE(Create().ok());
}

TEST_F(AssignedFunctionTest, ACapabilityAtTheEndOfConfigurationSpaceIsRead) {
  Make();
  device_->Put<uint8_t>(FakePciDevice::kMsi + 1, 0xff);
  device_->Put<uint8_t>(0xfc, PCI_CAP_ID_MSIX);
  EXPECT_THAT(Refusal(), HasSubstr("where it has no memory"));
}

}  // namespace
}  // namespace ringside
