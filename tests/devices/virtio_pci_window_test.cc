// VIRTIO_PCI_CAP_PCI_CFG: BAR accesses through configuration space (VIRTIO 1.2 section 4.1.4.9).
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/devices/virtio_pci_fixture.h"

namespace ringside {
namespace {

using testing::FakeVirtioDevice;
using testing::ReadAs;

class VirtioPciWindowTest : public testing::VirtioPciFixture {
 protected:
  uint32_t Common(Register reg) { return structures_[kCommon].offset + reg; }
  template <typename T>
  T Read(uint32_t offset) {
    SetWindow(0, offset, sizeof(T));
    return Config<T>(window_data());
  }
  template <typename T>
  void Write(uint32_t offset, T value) {
    SetWindow(0, offset, sizeof(T));
    SetConfig<T>(window_data(), value);
  }
};

TEST_F(VirtioPciWindowTest, ReachesRegistersOfEveryWidth) {
  EXPECT_EQ(Read<uint16_t>(Common(kNumQueues)), FakeVirtioDevice::kQueues);
  EXPECT_EQ(Read<uint32_t>(Common(kDeviceFeature)), FakeVirtioDevice::kFeatures);
  Write<uint8_t>(Common(kStatus), 3);
  EXPECT_EQ(Read<uint8_t>(Common(kStatus)), 3);
  Write<uint16_t>(Common(kQueueSelect), 2);
  Write<uint32_t>(Common(kQueueDesc), 0x12340);
  EXPECT_EQ(Get<uint16_t>(kQueueSelect), 2);
  EXPECT_EQ(Get<uint64_t>(kQueueDesc), 0x12340u);
}

TEST_F(VirtioPciWindowTest, RunsADeviceToItsKickWithoutTheBar) {
  Write<uint32_t>(Common(kDriverFeatureSelect), 1);
  Write<uint32_t>(Common(kDriverFeature), 1);
  Write<uint8_t>(Common(kStatus), 11);
  Write<uint16_t>(Common(kQueueEnable), 1);
  Write<uint8_t>(Common(kStatus), 15);
  EXPECT_TRUE(device_.active);
  Write<uint16_t>(structures_[kNotify].offset + 4, 1);
  EXPECT_EQ(pci_->transport().kick(1).Clear(), 1u);
  device_.setups.at(0).call->Signal();
  EXPECT_EQ(Read<uint8_t>(structures_[kIsr].offset), 1);
  EXPECT_EQ(Read<uint8_t>(structures_[kIsr].offset), 0);
}

TEST_F(VirtioPciWindowTest, ReachesTheVectorTable) {
  const auto table = Config<uint32_t>(msix_capability_ + 4);
  Write<uint32_t>(table, 0xfee01000);
  EXPECT_EQ(Read<uint32_t>(table), 0xfee01000u);
  EXPECT_EQ(ReadAs<uint32_t>(*bar_, table), 0xfee01000u);
}

TEST_F(VirtioPciWindowTest, WhatIsNoAccessIsIgnored) {
  struct Case {
    uint8_t bar;
    uint32_t offset;
    uint32_t length;
  };
  const uint32_t status = Common(kStatus);
  const auto end = static_cast<uint32_t>(pci_->bar(0).size);
  const Case cases[] = {
      {0, status, 0},          {0, status, 3},     {0, status, 5},
      {0, status, 8},          {0, status, 0x101}, {0, status, 0x80000001},
      {0, status, 0xffffffff}, {1, status, 1},     {5, status, 1},
      {6, status, 1},          {0xff, status, 1},  {0, end, 1},
      {0, end - 1, 2},         {0, end - 2, 4},    {0, 0xffffffff, 1},
      {0, 0xfffffffe, 2},      {0, 0xfffffffc, 4}, {0, status + end, 1},
      {0, status - 1, 4},      {0, status + 1, 2}, {0, 0x80000000 + status, 1},
  };
  for (const Case& bad : cases) {
    SetWindow(0, Common(kNumQueues), 2);
    SetConfig<uint32_t>(window_data(), 0);
    SetWindow(bad.bar, bad.offset, bad.length);
    SetConfig<uint32_t>(window_data(), 0x01010101);
    EXPECT_EQ(Config<uint32_t>(window_data()), 0x01010101u) << "what was written";
    EXPECT_EQ(Get<uint8_t>(kStatus), 0) << bad.offset << " for " << bad.length;
  }
  // What is chosen reads back all the same.
  EXPECT_EQ(Config<uint32_t>(structures_[kAccessWindow].capability + 8), 0x80000000 + status);
}

// A tool that dumps configuration space must not work the device.
TEST_F(VirtioPciWindowTest, IsClosedAtFirst) {
  Run();
  device_.setups.at(0).call->Signal();
  for (uint32_t offset = 0; offset < 256; offset += 4) Config<uint32_t>(offset);
  EXPECT_EQ(ReadAs<uint8_t>(*bar_, structures_[kIsr].offset), 1);
}

// Only the length counts, however much of the data a configuration access covers.
TEST_F(VirtioPciWindowTest, TheLengthIsTheWindows) {
  SetWindow(0, Common(kStatus), 1);
  SetConfig<uint32_t>(window_data(), 0xffffff03);
  EXPECT_EQ(Get<uint8_t>(kStatus), 3);
  EXPECT_EQ(Get<uint16_t>(kQueueSelect), 0);
  SetWindow(0, Common(kNumQueues), 2);
  EXPECT_EQ(Config<uint8_t>(window_data()), FakeVirtioDevice::kQueues);
  EXPECT_EQ(Config<uint64_t>(window_data() - 4) >> 32 & 0xffff, FakeVirtioDevice::kQueues);
}

TEST_F(VirtioPciWindowTest, TheRestOfTheCapabilitiesIsReadOnly) {
  std::vector<uint32_t> before;
  for (uint32_t at = 0x40; at < 256; at += 4) before.push_back(Config<uint32_t>(at));
  const uint32_t window = structures_[kAccessWindow].capability;
  for (uint32_t at = 0x40; at < 256; at += 4) {
    if (at < window || at >= window + 20) SetConfig<uint32_t>(at, 0xffffffff);
  }
  for (uint32_t at = 0x40; at < 256; at += 4) {
    const uint32_t writable = at == msix_capability_ ? 0xc0000000 : 0;
    EXPECT_EQ(Config<uint32_t>(at) & ~writable, before[(at - 0x40) / 4]) << at;
  }
}

}  // namespace
}  // namespace ringside
