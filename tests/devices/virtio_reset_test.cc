// Resets that take their time, and devices that ask for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "poll/io_thread.h"
#include "tests/support/devices/virtio_transport_fixture.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using testing::FakeVirtioDevice;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SpinUntil;

class VirtioResetTest : public testing::VirtioTransportFixture {
 protected:
  // Resets wait for Finish.
  void HoldResets() {
    device_.on_reset = [this](Task& done) { held_ = &done; };
  }
  void Finish() {
    Task* done = std::exchange(held_, nullptr);
    ASSERT_NE(done, nullptr);
    done->Run();
  }
  ~VirtioResetTest() override {
    // Nobody would finish it.
    if (held_ != nullptr) held_->Run();
    device_.on_reset = [](Task& done) { done.Run(); };
  }

  Task* held_ = nullptr;
};

TEST_F(VirtioResetTest, OneThatNeverRanIsResetAtOnce) {
  Accept(kVirtioVersion1);
  transport_->SetStatus(kNegotiated);
  SetUpQueue(0);
  transport_->SetQueueVector(0, 1);
  transport_->SetStatus(0);
  EXPECT_EQ(transport_->status(), 0);
  EXPECT_EQ(device_.resets, 0);
  EXPECT_FALSE(transport_->queue(0).enabled);
  EXPECT_EQ(transport_->queue(0).descriptor_area, 0u);
  EXPECT_EQ(transport_->queue(0).vector, Transport::kNoVector);
}

TEST_F(VirtioResetTest, TheStatusReadsAsItWasUntilTheResetIsDone) {
  HoldResets();
  Run();
  transport_->SetStatus(0);
  EXPECT_EQ(transport_->status(), kRunning);
  EXPECT_EQ(device_.resets, 1);
  transport_->SetStatus(0);  // a driver that is impatient
  EXPECT_EQ(device_.resets, 1);
  Finish();
  EXPECT_EQ(transport_->status(), 0);
}

TEST_F(VirtioResetTest, WhatIsWrittenMeanwhileIsIgnored) {
  HoldResets();
  Run();
  transport_->SetStatus(0);
  const std::byte value[] = {std::byte{7}};
  transport_->SetStatus(Transport::kFailed);
  transport_->SetStatus(kRunning);
  Accept(kVirtioVersion1);
  SetUpQueue(1);
  transport_->SetQueueVector(1, 1);
  transport_->SetConfigVector(1);
  transport_->WriteConfig(0, value);
  EXPECT_EQ(transport_->status(), kRunning);
  EXPECT_EQ(transport_->queue(1).vector, Transport::kNoVector);
  EXPECT_EQ(transport_->config_vector(), Transport::kNoVector);
  Finish();
  EXPECT_EQ(transport_->status(), 0);
  EXPECT_EQ(transport_->DriverFeatures(1), 0u);
  EXPECT_FALSE(transport_->queue(1).enabled);
  EXPECT_EQ(transport_->queue(1).size, FakeVirtioDevice::kMaxSize);
  EXPECT_EQ(transport_->queue(1).vector, Transport::kNoVector);
  EXPECT_EQ(transport_->config_vector(), Transport::kNoVector);
  EXPECT_EQ(device_.config[0], std::byte{0});
  EXPECT_EQ(device_.activations, 1);
}

TEST_F(VirtioResetTest, AfterwardsAllIsAsAtFirst) {
  transport_->EnableVectors(true);
  transport_->SetQueueVector(0, 1);
  transport_->SetConfigVector(0);
  Run();
  const InterruptLine* call = device_.setups[0].call;
  transport_->SetQueueVector(0, Transport::kNoVector);
  call->Signal();  // in the ISR
  transport_->SetQueueVector(0, 1);
  transport_->SetStatus(0);
  EXPECT_EQ(transport_->isr(), 0);
  EXPECT_EQ(transport_->DriverFeatures(1), 0u);
  EXPECT_FALSE(transport_->queue(0).enabled);
  EXPECT_EQ(transport_->queue(0).size, FakeVirtioDevice::kMaxSize);
  EXPECT_EQ(transport_->queue(0).driver_area, 0u);
  EXPECT_EQ(transport_->config_vector(), Transport::kNoVector);
  call->Signal();  // reaches no vector any more
  EXPECT_EQ(events_[1]->Clear(), 0u);
  Run();
  EXPECT_EQ(device_.activations, 2);
}

TEST_F(VirtioResetTest, ADeviceThatNeedsAResetSaysSoOnce) {
  transport_->EnableVectors(true);
  transport_->SetConfigVector(2);
  Run();
  device_.events->NeedsReset("the ring is broken");
  device_.events->NeedsReset("the ring is still broken");
  EXPECT_EQ(transport_->status(), kRunning | Transport::kNeedsReset);
  EXPECT_EQ(events_[2]->Clear(), 1u);
  EXPECT_EQ(transport_->TakeIsr(), Transport::kIsrConfig);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("disk0")));
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("the ring is broken")));

  transport_->SetStatus(0);
  EXPECT_EQ(transport_->status(), 0);
  Run();
  EXPECT_EQ(transport_->status(), kRunning);
  device_.events->NeedsReset("again");
  EXPECT_EQ(log_.lines().size(), 2u);
}

TEST_F(VirtioResetTest, ADriverCannotTakeBackNeedsReset) {
  Run();
  device_.events->NeedsReset("broken");
  transport_->SetStatus(kRunning);
  EXPECT_EQ(transport_->status(), kRunning | Transport::kNeedsReset);
}

TEST_F(VirtioResetTest, AResetOutrunsTheNeedForOne) {
  HoldResets();
  Run();
  transport_->SetStatus(0);
  device_.events->NeedsReset("too late");
  EXPECT_EQ(transport_->status(), kRunning);
  Finish();
  device_.events->NeedsReset("much too late");
  EXPECT_EQ(transport_->status(), 0);
  EXPECT_EQ(transport_->isr(), 0);
  EXPECT_THAT(log_.lines(), IsEmpty());
}

TEST_F(VirtioResetTest, ADeviceMayRefuseWhatItIsGivenFromWithinActivate) {
  device_.on_activate = [this] { device_.events->NeedsReset("the ring is not in memory"); };
  Accept(kVirtioVersion1);
  transport_->SetStatus(kRunning);
  EXPECT_EQ(transport_->status(), kRunning | Transport::kNeedsReset);
  transport_->SetStatus(0);
  EXPECT_EQ(device_.resets, 1);
  EXPECT_EQ(transport_->status(), 0);
}

TEST_F(VirtioResetTest, TheEndWaitsForAResetUnderWay) {
  HoldResets();
  Run();
  transport_->SetStatus(0);
  std::atomic<bool> waited{false};
  std::thread waiter([&] {
    transport_->ResetAndWait();
    EXPECT_EQ(transport_->status(), 0);
    waited = true;
  });
  EXPECT_FALSE(waited);
  Finish();
  EXPECT_TRUE(SpinUntil([&] { return waited.load(); }));
  waiter.join();
  EXPECT_EQ(device_.resets, 1);
}

TEST_F(VirtioResetTest, TheTransportMayGoAsSoonAsItsEndIsSeen) {
  const auto io_thread = *IoThread::Start("test");
  device_.on_reset = [&](Task& done) { io_thread->Post(done); };
  for (int i = 0; i < 200; ++i) {
    Run();
    transport_.reset();  // resets and waits
    ASSERT_FALSE(device_.active);
    transport_ = *Transport::Create(device_, "disk0", Logger(&log_), {});
  }
  device_.on_reset = [](Task& done) { done.Run(); };
}

// A device on an I/O thread that keeps asking for a reset, a driver on two vCPUs that keeps giving
// it one: for ThreadSanitizer, and for the contract that the fake device checks.
TEST_F(VirtioResetTest, ResetsAndTheNeedForThemRace) {
  constexpr int kRounds = 300;
  const auto io_thread = *IoThread::Start("test");
  std::atomic<VirtioEvents*> events{nullptr};
  device_.on_activate = [&] { events = device_.events; };
  TaskOf complain([&] { events.load()->NeedsReset("broken"); });
  Task* done_task = nullptr;
  TaskOf finish([&] { done_task->Run(); });
  device_.on_reset = [&](Task& done) {
    done_task = &done;
    io_thread->Post(finish);
  };
  const auto drive = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      Accept(kVirtioVersion1);
      SetUpQueue(0);
      transport_->SetQueueVector(0, 1);
      transport_->SetStatus(kRunning);
      if (events.load() != nullptr) io_thread->Post(complain);
      transport_->EnableVectors(i % 2 == 0);
      transport_->SetStatus(0);
      // Another vCPU may start it again at once, so it need not read 0 here.
      for (int tries = 0; tries < 100 && transport_->status() != 0; ++tries) {
        std::this_thread::yield();
      }
    }
  };
  std::thread other([&] { drive(kRounds); });
  drive(kRounds);
  other.join();
  transport_->ResetAndWait();
  EXPECT_EQ(transport_->status(), 0);
  EXPECT_EQ(device_.activations, device_.resets);
  EXPECT_FALSE(device_.active);
}

}  // namespace
}  // namespace ringside
