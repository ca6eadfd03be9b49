#include "devices/virtio_pci.h"

#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <thread>

#include "base/clock.h"
#include "tests/support/devices/virtio_pci_fixture.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using testing::FakeVirtioDevice;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using testing::ReadAs;
using testing::WriteAs;

class VirtioPciTest : public testing::VirtioPciFixture {};

TEST_F(VirtioPciTest, IdentifiesItself) {
  EXPECT_EQ(Config<uint32_t>(0x00), 0x1af4u | (0x1040u + FakeVirtioDevice::kId) << 16);
  EXPECT_EQ(Config<uint32_t>(0x08), 0x01000001u);  // class 01.00.00, revision 1
  EXPECT_EQ(Config<uint32_t>(0x2c), 0x11001af4u);
  EXPECT_EQ(Config<uint8_t>(0x3d), 0) << "no interrupt pin";
  EXPECT_NE(Config<uint16_t>(0x06) & 0x10, 0) << "there are capabilities";
  EXPECT_EQ(pci_->bar(0).size, 32768u);
}

TEST_F(VirtioPciTest, ADriverFindsEveryStructureInTheBarOnAPageOfItsOwn) {
  ASSERT_EQ(structures_.size(), 5u);
  std::set<uint32_t> pages;
  for (const auto& [type, structure] : structures_) {
    EXPECT_EQ(structure.length, type == kNotify || type == kAccessWindow ? 20 : 16);
    if (type == kAccessWindow) continue;
    EXPECT_EQ(structure.bar, 0);
    EXPECT_EQ(structure.offset % 4096, 0u);
    EXPECT_GT(structure.size, 0u);
    EXPECT_LE(structure.size, 4096u);
    EXPECT_LE(structure.offset + structure.size, pci_->bar(0).size);
    EXPECT_TRUE(pages.insert(structure.offset).second);
  }
  EXPECT_GE(structures_[kCommon].size, 56u);
  EXPECT_EQ(Config<uint32_t>(structures_[kNotify].capability + 16), 4u) << "the multiplier";

  ASSERT_NE(msix_capability_, 0u);
  EXPECT_EQ(Config<uint16_t>(msix_capability_ + 2), FakeVirtioDevice::kQueues);  // one less
  for (const uint32_t field : {4u, 8u}) {  // table, pending bits
    const auto place = Config<uint32_t>(msix_capability_ + field);
    EXPECT_EQ(place & 7, 0u);
    EXPECT_TRUE(pages.insert(place).second);
    EXPECT_LT(place, pci_->bar(0).size);
  }
}

TEST_F(VirtioPciTest, EveryDoorbellIsWithinTheNotifyStructure) {
  EXPECT_EQ(Get<uint16_t>(kNumQueues), FakeVirtioDevice::kQueues);
  for (uint16_t i = 0; i < FakeVirtioDevice::kQueues; ++i) {
    Set<uint16_t>(kQueueSelect, i);
    EXPECT_EQ(Get<uint16_t>(kQueueNotifyOff), i);
    EXPECT_LE(Get<uint16_t>(kQueueNotifyOff) * 4u + 4, structures_[kNotify].size);
  }
}

TEST_F(VirtioPciTest, ADriverRunsTheDevice) {
  Run();
  ASSERT_EQ(device_.setups.size(), 1u);
  const QueueSetup& queue = device_.setups[0];
  EXPECT_EQ(queue.index, 1);
  EXPECT_EQ(queue.size, 128);
  EXPECT_EQ(queue.descriptor_area, 0x100010000u);
  EXPECT_EQ(queue.driver_area, 0x200014000u);
  EXPECT_EQ(queue.device_area, 0x300018000u);
  EXPECT_EQ(device_.accepted, kVirtioVersion1);

  EXPECT_EQ(Get<uint16_t>(kQueueEnable), 1);
  EXPECT_EQ(Get<uint64_t>(kQueueDriver), 0x200014000u);
  EXPECT_EQ(Get<uint32_t>(static_cast<Register>(kQueueDriver + 4)), 2u);

  Set<uint8_t>(kStatus, 0);
  EXPECT_EQ(Get<uint8_t>(kStatus), 0);
  EXPECT_EQ(Get<uint16_t>(kQueueSelect), 0);
  Set<uint16_t>(kQueueSelect, 1);
  EXPECT_EQ(Get<uint16_t>(kQueueEnable), 0);
  EXPECT_EQ(Get<uint64_t>(kQueueDesc), 0u);
  EXPECT_EQ(Get<uint16_t>(kQueueSize), FakeVirtioDevice::kMaxSize);
}

TEST_F(VirtioPciTest, ShowsFeaturesBySelector) {
  EXPECT_EQ(Get<uint32_t>(kDeviceFeature), FakeVirtioDevice::kFeatures);
  Set<uint32_t>(kDeviceFeatureSelect, 1);
  EXPECT_EQ(Get<uint32_t>(kDeviceFeature), 1u);
  Set<uint32_t>(kDeviceFeatureSelect, 2);
  EXPECT_EQ(Get<uint32_t>(kDeviceFeature), 0u);
  Set<uint32_t>(kDriverFeature, 0x30000000);
  EXPECT_EQ(Get<uint32_t>(kDriverFeature), 0x30000000u);
  Set<uint32_t>(kDriverFeatureSelect, 1);
  EXPECT_EQ(Get<uint32_t>(kDriverFeature), 0u);
}

TEST_F(VirtioPciTest, AQueueOutOfRangeReadsZero) {
  for (const uint16_t index : {FakeVirtioDevice::kQueues, uint16_t{256}, uint16_t{0xffff}}) {
    Set<uint16_t>(kQueueSelect, index);
    Set<uint16_t>(kQueueSize, 16);
    Set<uint64_t>(kQueueDesc, 0x1000);
    Set<uint16_t>(kQueueVector, 0);
    Set<uint16_t>(kQueueEnable, 1);
    EXPECT_EQ(Get<uint16_t>(kQueueSize), 0);
    EXPECT_EQ(Get<uint16_t>(kQueueEnable), 0);
    EXPECT_EQ(Get<uint16_t>(kQueueNotifyOff), 0);
    EXPECT_EQ(Get<uint64_t>(kQueueDesc), 0u);
    EXPECT_EQ(Get<uint16_t>(kQueueVector), 0xffff);
  }
}

TEST_F(VirtioPciTest, AnEnableOtherThanOneIsIgnored) {
  for (const uint16_t value : {0, 2, 3, 0xffff}) {
    Set<uint16_t>(kQueueEnable, value);
    EXPECT_EQ(Get<uint16_t>(kQueueEnable), 0) << value;
  }
  Set<uint16_t>(kQueueEnable, 1);
  Set<uint16_t>(kQueueEnable, 0);
  EXPECT_EQ(Get<uint16_t>(kQueueEnable), 1);
}

TEST_F(VirtioPciTest, AVectorReadsBackIfItExists) {
  EXPECT_EQ(Get<uint16_t>(kConfigVector), 0xffff);
  EXPECT_EQ(Get<uint16_t>(kQueueVector), 0xffff);
  for (uint16_t vector = 0; vector <= FakeVirtioDevice::kQueues; ++vector) {
    Set<uint16_t>(kConfigVector, vector);
    Set<uint16_t>(kQueueVector, vector);
    EXPECT_EQ(Get<uint16_t>(kConfigVector), vector);
    EXPECT_EQ(Get<uint16_t>(kQueueVector), vector);
  }
  Set<uint16_t>(kConfigVector, FakeVirtioDevice::kQueues + 1);
  Set<uint16_t>(kQueueVector, 0x800);
  EXPECT_EQ(Get<uint16_t>(kConfigVector), 0xffff);
  EXPECT_EQ(Get<uint16_t>(kQueueVector), 0xffff);
}

TEST_F(VirtioPciTest, InterruptsFollowMsix) {
  Run();
  Set<uint16_t>(kQueueSelect, 1);
  Set<uint16_t>(kQueueVector, 2);
  const InterruptLine& call = *device_.setups[0].call;
  const auto pending = [&] {
    return ReadAs<uint32_t>(*bar_, Config<uint32_t>(msix_capability_ + 8));
  };

  // Off: the ISR, and the status register for a driver that polls.
  EXPECT_EQ(Config<uint16_t>(0x06) & 8, 0);
  call.Signal();
  EXPECT_EQ(pending(), 0u);
  EXPECT_NE(Config<uint16_t>(0x06) & 8, 0);
  EXPECT_EQ(ReadAs<uint8_t>(*bar_, structures_[kIsr].offset), 1);
  EXPECT_EQ(ReadAs<uint8_t>(*bar_, structures_[kIsr].offset), 0) << "a read clears";
  EXPECT_EQ(Config<uint16_t>(0x06) & 8, 0);

  // On, and masked as it starts: pending.
  EnableMsix(true);
  call.Signal();
  EXPECT_EQ(pending(), 1u << 2);
  EXPECT_EQ(ReadAs<uint8_t>(*bar_, structures_[kIsr].offset), 0);
  WriteAs<uint32_t>(*bar_, Config<uint32_t>(msix_capability_ + 4) + 2 * 16 + 12, 0);
  EXPECT_TRUE(platform_.vectors[2]->unmasked);

  SetConfig<uint16_t>(msix_capability_ + 2, 0xc000);  // the whole function masked
  EXPECT_FALSE(platform_.vectors[2]->unmasked);
  EnableMsix(true);
  EXPECT_TRUE(platform_.vectors[2]->unmasked);

  EnableMsix(false);
  EXPECT_FALSE(platform_.vectors[2]->unmasked);
  call.Signal();
  EXPECT_EQ(ReadAs<uint8_t>(*bar_, structures_[kIsr].offset), 1);
}

TEST_F(VirtioPciTest, AConfigurationChangeShowsInTheIsrAndOnItsVector) {
  EnableMsix(true);
  Set<uint16_t>(kConfigVector, 3);
  Run();
  device_.events->NeedsReset("broken");
  EXPECT_EQ(Get<uint8_t>(kStatus), 15 | 64);
  EXPECT_EQ(ReadAs<uint32_t>(*bar_, Config<uint32_t>(msix_capability_ + 8)), 1u << 3);
  EXPECT_EQ(Config<uint16_t>(0x06) & 8, 0) << "only of use without vectors";
  EXPECT_EQ(ReadAs<uint8_t>(*bar_, structures_[kIsr].offset), 2);
}

TEST_F(VirtioPciTest, ShowsTheDevicesConfiguration) {
  const uint64_t at = structures_[kDevice].offset;
  const auto generation = Get<uint8_t>(kGeneration);
  WriteAs<uint16_t>(*bar_, at + 6, 0x1234);
  EXPECT_NE(Get<uint8_t>(kGeneration), generation);
  EXPECT_EQ(ReadAs<uint16_t>(*bar_, at + 6), 0x1234);
  EXPECT_EQ(ReadAs<uint64_t>(*bar_, at), uint64_t{0x1234} << 48);
  EXPECT_EQ(ReadAs<uint64_t>(*bar_, at + 4088), 0u);
}

// As by a kernel that starts another one in its place.
TEST_F(VirtioPciTest, ADeviceThatMayMasterTheBusNoMoreIsReset) {
  constexpr uint16_t kMemorySpace = 2, kBusMaster = 4;
  Run();
  SetConfig<uint16_t>(0x04, kMemorySpace);  // a driver that never set it goes on
  EXPECT_TRUE(device_.active);
  SetConfig<uint16_t>(0x04, kMemorySpace | kBusMaster);
  SetConfig<uint8_t>(0x04, kMemorySpace | kBusMaster);
  EXPECT_TRUE(device_.active);
  SetConfig<uint16_t>(0x04, kMemorySpace);
  EXPECT_FALSE(device_.active);
  EXPECT_EQ(Get<uint8_t>(kStatus), 0);
  Run();
  EXPECT_TRUE(device_.active);
  SetConfig<uint16_t>(0x04, kMemorySpace);  // once
  EXPECT_TRUE(device_.active);
}

// The kernel that comes next does not wait for anything.
TEST_F(VirtioPciTest, WhoTakesBusMasteringAwayGoesOnWhenTheResetIsOver) {
  constexpr uint16_t kBusMaster = 4;
  Run();
  SetConfig<uint16_t>(0x04, kBusMaster);
  std::atomic<bool> is_over = false;
  std::thread late;
  device_.on_reset = [&](Task& done) {
    late = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      is_over = true;
      done.Run();
    });
  };
  const int64_t before_ns = MonotonicNs();
  SetConfig<uint16_t>(0x04, 0);
  EXPECT_TRUE(is_over || MonotonicNs() - before_ns > 900'000'000) << "it has not waited";
  late.join();
  // But not for ever.
  Run();
  SetConfig<uint16_t>(0x04, kBusMaster);
  Task* held = nullptr;
  device_.on_reset = [&](Task& done) { held = &done; };
  SetConfig<uint16_t>(0x04, 0);
  ASSERT_NE(held, nullptr);
  // Nor for the same reset twice.
  const int64_t again_ns = MonotonicNs();
  for (int i = 0; i < 60; ++i) {
    SetConfig<uint16_t>(0x04, kBusMaster);
    SetConfig<uint16_t>(0x04, 0);
  }
  EXPECT_LT(MonotonicNs() - again_ns, 30'000'000'000);
  held->Run();
  // But for the next.
  Run();
  SetConfig<uint16_t>(0x04, kBusMaster);
  const int64_t next_ns = MonotonicNs();
  SetConfig<uint16_t>(0x04, 0);
  EXPECT_GE(MonotonicNs() - next_ns, 900'000'000);
  held->Run();
  // Nor is the driver's own next one mistaken for it.
  Run();
  SetConfig<uint16_t>(0x04, kBusMaster);
  Set<uint8_t>(kStatus, 0);
  const int64_t own_ns = MonotonicNs();
  SetConfig<uint16_t>(0x04, 0);
  EXPECT_GE(MonotonicNs() - own_ns, 900'000'000);
  held->Run();
}

TEST_F(VirtioPciTest, DoorbellsFollowTheBar) {
  const auto& transport = pci_->transport();
  const uint64_t offset = structures_[kNotify].offset;
  pci_->BarMapped(0, kBarAddress);
  EXPECT_THAT(platform_.doorbells, ElementsAre(Pair(kBarAddress + offset, &transport.kick(0)),
                                               Pair(kBarAddress + offset + 4, &transport.kick(1)),
                                               Pair(kBarAddress + offset + 8, &transport.kick(2))));
  pci_->BarUnmapped(0, kBarAddress);
  EXPECT_THAT(platform_.doorbells, IsEmpty());
  pci_->BarMapped(0, 2 * kBarAddress);
  EXPECT_EQ(platform_.doorbells.begin()->first, 2 * kBarAddress + offset);
  pci_->BarMapped(1, kBarAddress);
  pci_->BarUnmapped(1, kBarAddress);
  EXPECT_EQ(platform_.doorbells.size(), 3u);
  EXPECT_EQ(platform_.doorbells.begin()->first, 2 * kBarAddress + offset) << "not by another BAR";
  pci_.reset();
  EXPECT_THAT(platform_.doorbells, IsEmpty());
}

TEST_F(VirtioPciTest, DoorbellsAreTakenBackOnce) {
  pci_->BarMapped(0, kBarAddress);
  const auto added = platform_.doorbells;
  pci_->BarUnmapped(0, kBarAddress);
  platform_.doorbells = added;  // somebody else's now
  pci_.reset();
  EXPECT_EQ(platform_.doorbells, added);
}

TEST_F(VirtioPciTest, WithoutADoorbellAWriteKicks) {
  const uint64_t at = structures_[kNotify].offset;
  platform_.doorbells[kBarAddress + at + 4] = &pci_->transport().kick(1);  // taken
  pci_->BarMapped(0, kBarAddress);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("disk0")));
  WriteAs<uint16_t>(*bar_, at + 4, 1);
  EXPECT_EQ(pci_->transport().kick(1).Clear(), 1u);
  WriteAs<uint32_t>(*bar_, at + 8, 0xffffffff);
  EXPECT_EQ(pci_->transport().kick(2).Clear(), 1u);
  for (const uint64_t offset : {1, 2, 6, 12, 4092}) WriteAs<uint16_t>(*bar_, at + offset, 0);
  for (uint16_t i = 0; i < 3; ++i) EXPECT_EQ(pci_->transport().kick(i).Clear(), 0u);

  pci_->BarMapped(0, kBarAddress);
  EXPECT_EQ(log_.lines().size(), 1u) << "a guest that moves its BARs does not fill the log";
  pci_->BarUnmapped(0, kBarAddress);
  EXPECT_EQ(platform_.doorbells.size(), 1u) << "what was there before stays";
}

template <typename T>
void Touch(IoHandler& bar, uint64_t offset, T value) {
  WriteAs<T>(bar, offset, value);
  ReadAs<T>(bar, offset);
}

// The fake device checks its contract meanwhile, and the sanitizers the rest.
TEST_F(VirtioPciTest, AccessesOfEveryWidthAndAlignmentDoNoHarm) {
  for (const uint64_t value : {uint64_t{0}, ~uint64_t{0}, uint64_t{0x0f0f0f0f0f0f0f0f}}) {
    for (uint64_t page = 0; page < pci_->bar(0).size; page += 4096) {
      for (uint64_t i = 0; i < 160; ++i) {
        const uint64_t offset = page + (i < 80 ? i : 4096 - (160 - i));
        const uint64_t room = pci_->bar(0).size - offset;
        Touch(*bar_, offset, static_cast<uint8_t>(value));
        if (room >= 2) Touch(*bar_, offset, static_cast<uint16_t>(value));
        if (room >= 4) Touch(*bar_, offset, static_cast<uint32_t>(value));
        if (room >= 8) Touch(*bar_, offset, value);
      }
    }
  }
  Set<uint8_t>(kStatus, 0);
  Run();
}

TEST_F(VirtioPciTest, WritesOfAnotherWidthThanTheFieldsAreIgnored) {
  Set<uint32_t>(static_cast<Register>(kQueueSize), 0x00010010);  // with the vector
  EXPECT_EQ(Get<uint16_t>(kQueueSize), FakeVirtioDevice::kMaxSize);
  EXPECT_EQ(Get<uint16_t>(kQueueVector), 0xffff);
  Set<uint16_t>(kStatus, 0x0001);
  Set<uint32_t>(kStatus, 1);
  EXPECT_EQ(Get<uint8_t>(kStatus), 0);
  Set<uint16_t>(kQueueDesc, 0x1234);
  Set<uint32_t>(static_cast<Register>(kQueueDesc + 2), 0x1234);
  Set<uint64_t>(static_cast<Register>(kQueueDesc + 4), 0x1234);
  EXPECT_EQ(Get<uint64_t>(kQueueDesc), 0u);
  EXPECT_EQ(Get<uint64_t>(kQueueDriver), 0u);
  // Reads may have any: four bytes with the size and the vector.
  EXPECT_EQ(Get<uint32_t>(kQueueSize), 0xffff0000u | FakeVirtioDevice::kMaxSize);
}

TEST_F(VirtioPciTest, ReadOnlyRegistersStay) {
  Set<uint32_t>(kDeviceFeature, 0);
  Set<uint16_t>(kNumQueues, 7);
  Set<uint8_t>(kGeneration, 7);
  Set<uint16_t>(kQueueNotifyOff, 7);
  EXPECT_EQ(Get<uint32_t>(kDeviceFeature), FakeVirtioDevice::kFeatures);
  EXPECT_EQ(Get<uint16_t>(kNumQueues), FakeVirtioDevice::kQueues);
  EXPECT_EQ(Get<uint8_t>(kGeneration), 0);
  EXPECT_EQ(Get<uint16_t>(kQueueNotifyOff), 0);
}

TEST_F(VirtioPciTest, TooManyQueuesForTheVectorsAreRefused) {
  class Wide final : public VirtioDevice {
   public:
    uint16_t id() const override { return 2; }
    uint64_t features() const override { return 0; }
    uint16_t queue_count() const override { return count; }
    uint32_t pci_class() const override { return 0; }
    uint16_t max_queue_size(uint16_t) const override { return 8; }
    void ReadConfig(uint64_t, std::span<std::byte>) override {}
    void WriteConfig(uint64_t, std::span<const std::byte>, uint64_t) override {}
    void Activate(uint64_t, std::span<const QueueSetup>, VirtioEvents&) override {}
    void Reset(Task&) override {}
    void Pause(Task&) override {}
    void Resume() override {}
    uint16_t Position(uint16_t) const override { return 0; }
    uint16_t count = 0;
  } wide;
  const auto create = [&](uint16_t count) {
    wide.count = count;
    testing::FakePciPlatform platform;
    return VirtioPci::Create(wide, "wide", platform, Logger()).status();
  };
  EXPECT_TRUE(create(255).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(create(256)));
  EXPECT_TRUE(absl::IsInvalidArgument(create(0xffff)));
}

}  // namespace
}  // namespace ringside
