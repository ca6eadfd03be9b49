// A transport over a fake device, as a driver sees it.
#pragma once

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "devices/virtio_transport.h"
#include "tests/support/devices/fake_virtio_device.h"
#include "tests/support/recording_log.h"

namespace ringside::testing {

class VirtioTransportFixture : public ::testing::Test {
 protected:
  using Transport = VirtioTransport;
  using Queue = VirtioTransport::Queue;
  using Half = VirtioTransport::Half;

  static constexpr uint8_t kFound = Transport::kAcknowledge | Transport::kDriver;
  static constexpr uint8_t kNegotiated = kFound | Transport::kFeaturesOk;
  static constexpr uint8_t kRunning = kNegotiated | Transport::kDriverOk;
  static constexpr uint16_t kVectors = FakeVirtioDevice::kQueues + 1;

  VirtioTransportFixture() {
    std::vector<const EventFd*> vectors;
    for (int i = 0; i < kVectors; ++i) {
      events_.push_back(std::make_unique<EventFd>(*EventFd::Create()));
      vectors.push_back(events_.back().get());
    }
    transport_ = *Transport::Create(device_, "disk0", Logger(&log_), std::move(vectors));
  }

  void Accept(uint64_t features) {
    transport_->SetDriverFeatures(0, static_cast<uint32_t>(features));
    transport_->SetDriverFeatures(1, static_cast<uint32_t>(features >> 32));
  }
  void SetArea(uint16_t index, uint64_t Queue::* area, uint64_t address) {
    transport_->SetQueueAddress(index, area, Half::kLow, static_cast<uint32_t>(address));
    transport_->SetQueueAddress(index, area, Half::kHigh, static_cast<uint32_t>(address >> 32));
  }
  void SetUpQueue(uint16_t index) {
    const uint64_t base = uint64_t{index} << 16;
    transport_->SetQueueSize(index, 64);
    SetArea(index, &Queue::descriptor_area, 0x10000 + base);
    SetArea(index, &Queue::driver_area, 0x14000 + base);
    SetArea(index, &Queue::device_area, 0x18000 + base);
    transport_->EnableQueue(index);
  }
  // What a driver does (section 3.1.1).
  void Run() {
    transport_->SetStatus(Transport::kAcknowledge);
    transport_->SetStatus(kFound);
    Accept(kVirtioVersion1);
    transport_->SetStatus(kNegotiated);
    SetUpQueue(0);
    transport_->SetStatus(kRunning);
    ASSERT_EQ(transport_->status(), kRunning);
    ASSERT_TRUE(device_.active);
  }

  RecordingLog log_;
  FakeVirtioDevice device_;
  std::vector<std::unique_ptr<EventFd>> events_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace ringside::testing
