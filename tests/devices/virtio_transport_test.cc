#include "devices/virtio_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/support/devices/virtio_transport_fixture.h"
#include "tests/support/races.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using testing::FakeVirtioDevice;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VirtioTransportTest : public testing::VirtioTransportFixture {};

TEST_F(VirtioTransportTest, ADriverThatKeepsToTheBookRuns) {
  Run();
  EXPECT_EQ(device_.activations, 1);
  EXPECT_EQ(device_.accepted, kVirtioVersion1);
  ASSERT_EQ(device_.setups.size(), 1u);
  const QueueSetup& queue = device_.setups[0];
  EXPECT_EQ(queue.index, 0);
  EXPECT_EQ(queue.size, 64);
  EXPECT_EQ(queue.descriptor_area, 0x10000u);
  EXPECT_EQ(queue.driver_area, 0x14000u);
  EXPECT_EQ(queue.device_area, 0x18000u);
  EXPECT_EQ(queue.kick, &transport_->kick(0));
  EXPECT_THAT(log_.lines(), IsEmpty());
}

struct FeatureCase {
  const char* name;
  std::array<uint32_t, 4> words;
  bool acceptable;
};
class VirtioFeaturesTest : public testing::VirtioTransportFixture,
                           public ::testing::WithParamInterface<FeatureCase> {};

TEST_P(VirtioFeaturesTest, FeaturesOkStaysOnlyWithAcceptableFeatures) {
  transport_->SetStatus(kFound);
  for (uint32_t i = 0; i < 4; ++i) transport_->SetDriverFeatures(i, GetParam().words[i]);
  transport_->SetStatus(kNegotiated);
  EXPECT_EQ(transport_->status(), GetParam().acceptable ? kNegotiated : kFound);
  transport_->SetStatus(kRunning);
  EXPECT_EQ(transport_->status(), GetParam().acceptable ? kRunning : kFound);
  EXPECT_EQ(device_.activations, GetParam().acceptable ? 1 : 0);
}
INSTANTIATE_TEST_SUITE_P(
    All, VirtioFeaturesTest,
    ::testing::Values(FeatureCase{"version_1", {0, 1}, true},
                      FeatureCase{"all", {FakeVirtioDevice::kFeatures, 1}, true},
                      FeatureCase{"none", {}, false},
                      FeatureCase{"no_version_1", {FakeVirtioDevice::kFeatures, 0}, false},
                      FeatureCase{"not_offered_low", {1 << 10, 1}, false},
                      FeatureCase{"not_offered_high", {0, 3}, false},
                      FeatureCase{"bit_64", {0, 1, 1}, false},
                      FeatureCase{"bit_127", {0, 1, 0, 0x80000000}, false},
                      FeatureCase{"ones", {~0u, ~0u, ~0u, ~0u}, false}),
    [](const auto& test) { return test.param.name; });

TEST_F(VirtioTransportTest, ARefusedDriverMayAskForLess) {
  transport_->SetStatus(kFound);
  Accept(kVirtioVersion1 | 1);
  transport_->SetStatus(kNegotiated);
  ASSERT_EQ(transport_->status(), kFound);
  Accept(kVirtioVersion1);
  transport_->SetStatus(kNegotiated);
  EXPECT_EQ(transport_->status(), kNegotiated);
}

TEST_F(VirtioTransportTest, FeaturesAreFixedOnceAgreed) {
  Accept(kVirtioVersion1);
  transport_->SetStatus(kNegotiated);
  Accept(kVirtioVersion1 | kVirtioRingEventIdx);
  transport_->SetStatus(kRunning);
  EXPECT_EQ(device_.accepted, kVirtioVersion1);
  EXPECT_EQ(transport_->DriverFeatures(0), 0u);
}

TEST_F(VirtioTransportTest, OffersItsDevicesFeaturesAndVersion1) {
  EXPECT_EQ(transport_->DeviceFeatures(0), FakeVirtioDevice::kFeatures);
  EXPECT_EQ(transport_->DeviceFeatures(1), 1u);
  for (const uint32_t select : {2u, 3u, 4u, 0x80000000u, ~0u}) {
    EXPECT_EQ(transport_->DeviceFeatures(select), 0u) << select;
    transport_->SetDriverFeatures(select, ~0u);
  }
  EXPECT_EQ(transport_->DriverFeatures(4), 0u);
  EXPECT_EQ(transport_->DriverFeatures(~0u), 0u);
}

// Every order of four status writes, with features that are acceptable and not: what must hold
// after each.
TEST_F(VirtioTransportTest, EveryOrderOfStatusWritesKeepsTheRules) {
  constexpr uint8_t kWrites[] = {0, 1, 2, 3, 4, 8, 11, 12, 15, 16, 64, 128, 255};
  constexpr size_t kCount = std::size(kWrites);
  constexpr uint8_t kPlain = kFound | Transport::kFailed;  // what a driver just sets
  for (const bool acceptable : {true, false}) {
    for (size_t order = 0; order < kCount * kCount * kCount * kCount; ++order) {
      transport_->ResetAndWait();
      Accept(acceptable ? kVirtioVersion1 : 0);
      const int activations = device_.activations;
      uint8_t written = 0;
      bool ran = false;
      size_t rest = order;
      for (int i = 0; i < 4; ++i, rest /= kCount) {
        const uint8_t write = kWrites[rest % kCount];
        const uint8_t before = transport_->status();
        transport_->SetStatus(write);
        const uint8_t after = transport_->status();
        if (write == 0) {
          ASSERT_EQ(after, 0);
          ASSERT_FALSE(device_.active);
          Accept(acceptable ? kVirtioVersion1 : 0);
        } else {
          ASSERT_EQ(after & before, before) << "bits are only added";
        }
        written = write == 0 ? 0 : written | write;
        ASSERT_EQ(after & kPlain, written & kPlain);
        ASSERT_EQ(after & ~(kRunning | Transport::kFailed), 0) << "reserved, or the device's";
        ASSERT_EQ((after & Transport::kFeaturesOk) != 0,
                  acceptable && (written & Transport::kFeaturesOk) != 0);
        if ((after & Transport::kDriverOk) != 0) {
          ASSERT_NE(after & Transport::kFeaturesOk, 0);
        }
        ASSERT_EQ(device_.active, (after & Transport::kDriverOk) != 0);
        ran |= device_.active;
      }
      if (!ran) {
        ASSERT_EQ(device_.activations, activations);
      }
    }
  }
  EXPECT_EQ(log_.lines().size(), 0u);
}

TEST_F(VirtioTransportTest, DriverOkTwiceActivatesOnce) {
  Run();
  transport_->SetStatus(kRunning);
  transport_->SetStatus(Transport::kDriverOk);
  EXPECT_EQ(device_.activations, 1);
  EXPECT_EQ(transport_->status(), kRunning);
}

TEST_F(VirtioTransportTest, ADriverThatGaveUpDoesNotStart) {
  Accept(kVirtioVersion1);
  transport_->SetStatus(kNegotiated);
  transport_->SetStatus(kNegotiated | Transport::kFailed);
  transport_->SetStatus(kRunning);
  EXPECT_EQ(transport_->status(), kNegotiated | Transport::kFailed);
  EXPECT_EQ(device_.activations, 0);
  transport_->SetStatus(0);
  Run();
}

TEST_F(VirtioTransportTest, OneThatGivesUpWhileItRunsIsResetAsAnyOther) {
  Run();
  transport_->SetStatus(kRunning | Transport::kFailed);
  EXPECT_EQ(transport_->status(), kRunning | Transport::kFailed);
  EXPECT_TRUE(device_.active);
  transport_->SetStatus(0);
  EXPECT_EQ(transport_->status(), 0);
  EXPECT_EQ(device_.resets, 1);
}

TEST_F(VirtioTransportTest, QueueSizesThatCannotBeAreIgnored) {
  EXPECT_EQ(transport_->queue(1).size, FakeVirtioDevice::kMaxSize);
  for (const uint16_t size : {0, 3, 65, 257, 512, 0x8000, 0xffff}) {
    transport_->SetQueueSize(1, size);
    EXPECT_EQ(transport_->queue(1).size, FakeVirtioDevice::kMaxSize) << size;
  }
  for (const uint16_t size : {1, 2, 64, 256}) {
    transport_->SetQueueSize(1, size);
    EXPECT_EQ(transport_->queue(1).size, size);
  }
}

TEST_F(VirtioTransportTest, AQueueIsFixedOnceEnabled) {
  SetUpQueue(1);
  transport_->SetQueueSize(1, 128);
  SetArea(1, &Queue::descriptor_area, 0x99990);
  EXPECT_EQ(transport_->queue(1).size, 64);
  EXPECT_EQ(transport_->queue(1).descriptor_area, 0x20000u);
  EXPECT_TRUE(transport_->queue(1).enabled);
}

TEST_F(VirtioTransportTest, QueuesAreFixedOnceTheDeviceRuns) {
  Run();
  transport_->SetQueueSize(1, 128);
  SetArea(1, &Queue::driver_area, 0x9990);
  transport_->EnableQueue(1);
  EXPECT_EQ(transport_->queue(1).size, FakeVirtioDevice::kMaxSize);
  EXPECT_EQ(transport_->queue(1).driver_area, 0u);
  EXPECT_FALSE(transport_->queue(1).enabled);
}

TEST_F(VirtioTransportTest, AQueueThatDoesNotExistReadsZeroAndTakesNothing) {
  for (const uint16_t index : {FakeVirtioDevice::kQueues, uint16_t{0x100}, uint16_t{0xffff}}) {
    SetUpQueue(index);
    transport_->SetQueueVector(index, 0);
    const Queue queue = transport_->queue(index);
    EXPECT_EQ(queue.size, 0);
    EXPECT_FALSE(queue.enabled);
    EXPECT_EQ(queue.descriptor_area, 0u);
    EXPECT_EQ(queue.vector, Transport::kNoVector);
  }
}

TEST_F(VirtioTransportTest, OnlyEnabledQueuesAreHandedOver) {
  Accept(kVirtioVersion1);
  SetUpQueue(2);
  SetUpQueue(0);
  SetArea(1, &Queue::descriptor_area, 3);  // whatever is wrong with it: it is not used
  transport_->SetStatus(kRunning);
  ASSERT_EQ(device_.setups.size(), 2u);
  EXPECT_EQ(device_.setups[0].index, 0);
  EXPECT_EQ(device_.setups[1].index, 2);
}

struct AreaCase {
  uint64_t VirtioTransport::Queue::* area;
  uint64_t address;
  bool good;
};
class VirtioAreaTest : public testing::VirtioTransportFixture,
                       public ::testing::WithParamInterface<AreaCase> {};

TEST_P(VirtioAreaTest, AreasAreAlignedAndDoNotWrap) {
  Accept(kVirtioVersion1);
  transport_->SetQueueSize(1, 64);
  SetArea(1, GetParam().area, GetParam().address);
  transport_->EnableQueue(1);
  transport_->SetStatus(kRunning);
  if (GetParam().good) {
    EXPECT_EQ(transport_->status(), kRunning);
    EXPECT_THAT(log_.lines(), IsEmpty());
    return;
  }
  EXPECT_EQ(transport_->status(), kRunning | Transport::kNeedsReset);
  EXPECT_EQ(device_.activations, 0);
  EXPECT_EQ(transport_->TakeIsr(), Transport::kIsrConfig);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("disk0")));
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("queue 1")));
  transport_->SetStatus(kRunning);
  EXPECT_EQ(device_.activations, 0);
  transport_->SetStatus(0);
  EXPECT_EQ(transport_->status(), 0);
  EXPECT_EQ(device_.resets, 0);
  Run();
}
constexpr uint64_t kTop = ~uint64_t{0};
INSTANTIATE_TEST_SUITE_P(
    All, VirtioAreaTest,
    ::testing::Values(AreaCase{&VirtioTransport::Queue::descriptor_area, 16, true},
                      AreaCase{&VirtioTransport::Queue::descriptor_area, 8, false},
                      AreaCase{&VirtioTransport::Queue::descriptor_area, kTop - 15, false},
                      AreaCase{&VirtioTransport::Queue::descriptor_area, 0 - uint64_t{1040}, true},
                      AreaCase{&VirtioTransport::Queue::descriptor_area, 0 - uint64_t{1008}, false},
                      AreaCase{&VirtioTransport::Queue::driver_area, 2, true},
                      AreaCase{&VirtioTransport::Queue::driver_area, 1, false},
                      AreaCase{&VirtioTransport::Queue::driver_area, kTop - 1, false},
                      AreaCase{&VirtioTransport::Queue::device_area, 4, true},
                      AreaCase{&VirtioTransport::Queue::device_area, 2, false},
                      AreaCase{&VirtioTransport::Queue::device_area, kTop - 3, false}));

TEST_F(VirtioTransportTest, AnInterruptGoesToItsVector) {
  transport_->EnableVectors(true);
  transport_->SetQueueVector(0, 2);
  Run();
  device_.setups[0].call->Signal();
  EXPECT_EQ(events_[2]->Clear(), 1u);
  EXPECT_EQ(transport_->TakeIsr(), 0);

  transport_->SetQueueVector(0, 3);  // also while it runs
  device_.setups[0].call->Signal();
  EXPECT_EQ(events_[2]->Clear(), 0u);
  EXPECT_EQ(events_[3]->Clear(), 1u);

  transport_->SetQueueVector(0, Transport::kNoVector);
  device_.setups[0].call->Signal();
  EXPECT_EQ(events_[3]->Clear(), 0u);
}

TEST_F(VirtioTransportTest, WithoutVectorsInterruptsShowInTheIsr) {
  transport_->SetQueueVector(0, 2);
  Run();
  device_.setups[0].call->Signal();
  EXPECT_EQ(transport_->isr(), Transport::kIsrQueue);
  EXPECT_EQ(transport_->TakeIsr(), Transport::kIsrQueue);
  EXPECT_EQ(transport_->TakeIsr(), 0);

  transport_->EnableVectors(true);
  EXPECT_EQ(events_[2]->Clear(), 0u);
  device_.setups[0].call->Signal();
  EXPECT_EQ(events_[2]->Clear(), 1u);

  transport_->EnableVectors(false);
  device_.setups[0].call->Signal();
  EXPECT_EQ(events_[2]->Clear(), 0u);
  EXPECT_EQ(transport_->TakeIsr(), Transport::kIsrQueue);
}

TEST_F(VirtioTransportTest, WhoObservesAnInterruptHearsOfEachOfItsEvents) {
  struct Observer final : InterruptLine::Observer {
    void EventChanged(const EventFd* event) override { heard.push_back(event); }
    std::vector<const EventFd*> heard;
  } observer;
  transport_->EnableVectors(true);
  transport_->SetQueueVector(0, 2);
  Run();
  InterruptLine& call = *device_.setups[0].call;
  call.Observe(&observer);
  transport_->SetQueueVector(0, 3);
  transport_->EnableVectors(false);
  transport_->EnableVectors(true);
  EXPECT_THAT(observer.heard,
              ElementsAre(events_[2].get(), events_[3].get(), nullptr, events_[3].get()));
  call.Observe(nullptr);
  transport_->SetQueueVector(0, 1);
  EXPECT_EQ(observer.heard.size(), 4u);
}

TEST_F(VirtioTransportTest, AVectorThatDoesNotExistIsNone) {
  transport_->EnableVectors(true);
  for (const uint16_t vector : {kVectors, uint16_t{0x7ff}, uint16_t{0xffff}}) {
    transport_->SetQueueVector(0, 1);
    transport_->SetConfigVector(1);
    transport_->SetQueueVector(0, vector);
    transport_->SetConfigVector(vector);
    EXPECT_EQ(transport_->queue(0).vector, Transport::kNoVector);
    EXPECT_EQ(transport_->config_vector(), Transport::kNoVector);
  }
}

TEST_F(VirtioTransportTest, ConfigurationWritesCarryWhatWasAgreed) {
  const std::byte value[] = {std::byte{7}};
  Accept(kVirtioVersion1);
  const uint8_t generation = transport_->config_generation();
  transport_->WriteConfig(2, value);
  EXPECT_EQ(device_.config_write_features, 0u);
  EXPECT_NE(transport_->config_generation(), generation);
  transport_->SetStatus(kNegotiated);
  transport_->WriteConfig(2, value);
  EXPECT_EQ(device_.config_write_features, kVirtioVersion1);
  std::byte read[2] = {};
  transport_->ReadConfig(2, read);
  EXPECT_EQ(read[0], std::byte{7});
}

// A driver reads it again when the generation has changed, and is not told before it runs.
TEST_F(VirtioTransportTest, AConfigurationThatChangesByItselfHasANewGeneration) {
  transport_->EnableVectors(true);
  transport_->SetConfigVector(0);
  const uint8_t generation = transport_->config_generation();
  transport_->ConfigChanged();
  EXPECT_EQ(transport_->config_generation(), generation + 1);
  EXPECT_EQ(events_[0]->Clear(), 0u);
  EXPECT_EQ(transport_->TakeIsr(), 0);
  Run();
  device_.events->ConfigChanged();
  EXPECT_EQ(transport_->config_generation(), generation + 2);
  EXPECT_EQ(events_[0]->Clear(), 1u);
  EXPECT_EQ(transport_->TakeIsr(), Transport::kIsrConfig);
}

// Read as drivers read what is longer than an access: again until the generation has not changed.
// It has 8 bits (section 4.1.4.3), so what 256 changes went by tells nothing.
TEST_F(VirtioTransportTest, WhatIsReadUnderOneGenerationBelongsTogether) {
  std::atomic<bool> over{false};
  std::atomic<int> changes{0};
  std::thread changer([&] {
    for (int i = 0; i < testing::kRaces; ++i) {
      transport_->ChangeConfig([&] {
        device_.config.fill(static_cast<std::byte>(i));
        testing::Delay(200);  // before the next generation
      });
      ++changes;
    }
    over = true;
  });
  int read = 0, torn = 0;
  while (!over || read == 0) {
    const int changes_before = changes;
    const uint8_t generation = transport_->config_generation();
    std::byte low[4], high[4];
    transport_->ReadConfig(0, low);
    transport_->ReadConfig(4, high);
    if (transport_->config_generation() != generation) continue;
    if (changes - changes_before > 250) continue;
    ++read;
    if (low[0] != high[0]) ++torn;
  }
  changer.join();
  EXPECT_EQ(torn, 0) << "of " << read;
}

// The log is the host's: a driver that breaks its device and resets it for ever fills it no
// further.
TEST_F(VirtioTransportTest, ComplainsAFewTimesOnly) {
  for (int i = 0; i < 100; ++i) {
    Run();
    device_.events->NeedsReset("a test");
    ASSERT_EQ(transport_->status(), kRunning | Transport::kNeedsReset);
    transport_->ResetAndWait();
  }
  ASSERT_EQ(log_.lines().size(), 10u);
  EXPECT_NE(log_.lines().back().find("no more of these"), std::string::npos);
}

}  // namespace
}  // namespace ringside
