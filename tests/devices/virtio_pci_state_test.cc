// A virtio-pci function that is saved and made anew on another host bridge: what its driver sees.
#include <gtest/gtest.h>
#include <memory>

#include "tests/support/devices/restorable_function.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::FakeVirtioDevice;
using testing::RandomState;
using testing::ReadAs;
using testing::WriteAs;
using Transport = VirtioTransport;
// There are two in each test.
using Machine = testing::RestorableFunction;
using Saved = Machine::Saved;
constexpr uint64_t kBarPlace = Machine::kBarPlace;
constexpr uint64_t kMessage = Machine::kMessage;

void ExpectRestored(Machine& machine, const Saved& state) {
  ASSERT_TRUE(machine.added());
  ASSERT_EQ(machine.Restore(state), absl::OkStatus());
  EXPECT_EQ(machine.Save(), state);
}

TEST(VirtioPciState, ARunningFunctionComesBackWithItsBarAndDoorbells) {
  Machine before;
  before.RunWithVectors();
  before.device().positions[1] = 77;
  before.Set<uint32_t>(Machine::kDeviceFeatureSelect, 0xdeadbeef);
  before.Set<uint32_t>(Machine::kDriverFeatureSelect, 1);

  Machine after;
  ExpectRestored(after, before.Save());
  EXPECT_EQ(after.device().activations, 1);
  ASSERT_EQ(after.device().setups.size(), 1u);
  EXPECT_EQ(after.device().setups[0].next, 77);
  for (uint64_t at = 0; at < 60; at += 4) {
    const uint64_t address = kBarPlace + VirtioPci::kCommonPage + at;
    EXPECT_EQ(ReadAs<uint32_t>(after.memory(), address), ReadAs<uint32_t>(before.memory(), address))
        << at;
  }
  EXPECT_EQ(ReadAs<uint8_t>(after.memory(), kBarPlace + Machine::kStatus), 15);
  ASSERT_EQ(after.platform().doorbells.size(), size_t{FakeVirtioDevice::kQueues});
  EXPECT_EQ(after.platform().doorbells[kBarPlace + VirtioPci::kNotifyPage + 4],
            &after.pci().transport().kick(1));
}

TEST(VirtioPciState, AQueuesInterruptGoesToTheVectorItHad) {
  Machine before;
  before.RunWithVectors();

  Machine after;
  ExpectRestored(after, before.Save());
  EXPECT_TRUE(after.vector(2).unmasked);
  EXPECT_EQ(after.vector(2).address, kMessage);
  EXPECT_EQ(after.vector(2).data, 0x42u);
  after.device().setups[0].call->Signal();
  EXPECT_EQ(after.vector(2).event().Clear(), 1u);
}

TEST(VirtioPciState, AMaskedPendingVectorFiresWhenItIsUnmasked) {
  Machine before;
  before.RunWithVectors();
  before.pci().transport().ConfigChanged();
  ASSERT_EQ(ReadAs<uint64_t>(before.bar(), VirtioPci::kPendingPage), 8u);

  Machine after;
  ExpectRestored(after, before.Save());
  EXPECT_EQ(ReadAs<uint64_t>(after.bar(), VirtioPci::kPendingPage), 8u);
  EXPECT_FALSE(after.vector(3).unmasked);
  after.SetMessage(3, 0x43, false);
  EXPECT_TRUE(after.vector(3).unmasked);
  EXPECT_EQ(after.vector(3).event().Clear(), 1u);
}

TEST(VirtioPciState, WithoutVectorsTheIsrStatusComesBackAndThePciStatusFollows) {
  Machine before;
  before.Run();
  before.device().setups[0].call->Signal();
  ASSERT_EQ(before.Config<uint16_t>(6) & 8, 8);

  Machine after;
  ExpectRestored(after, before.Save());
  EXPECT_EQ(after.Config<uint16_t>(6) & 8, 8);
  EXPECT_EQ(ReadAs<uint8_t>(after.bar(), VirtioPci::kIsrPage), Transport::kIsrQueue);
  EXPECT_EQ(after.Config<uint16_t>(6) & 8, 0);
}

// Restoring its data register is no write of it.
TEST(VirtioPciState, TheAccessWindowStaysWhereItWasAndIsNotUsed) {
  Machine before;
  before.SetWindow(0, Machine::kStatus, 1);
  before.Run();

  Machine after;
  ExpectRestored(after, before.Save());
  EXPECT_EQ(after.Get<uint8_t>(Machine::kStatus), 15);
  EXPECT_EQ(after.Config<uint8_t>(after.window_data()), 15);
  after.SetConfig<uint8_t>(after.window_data(), 0);
  EXPECT_EQ(after.device().resets, 1);
}

TEST(VirtioPciState, WhatDoesNotFitIsRefusedAndChangesNothing) {
  Machine before, after;
  before.RunWithVectors();
  const Saved valid = before.Save();
  const Saved fresh = after.Save();
  const auto refused = [&](auto spoil, const char* what, const char* value) {
    Saved state = valid;
    spoil(state.pci);
    const absl::Status status = after.Restore(state);
    EXPECT_THAT(status, IsBadInput(what, value));
    EXPECT_THAT(status, IsBadInput("disk0: ", ""));
    EXPECT_EQ(after.Save(), fresh);
  };
  refused([](auto& pci) { pci.config.bytes[2] ^= 1; }, "byte 0x2", "0x6b");
  refused([](auto& pci) { pci.msix.control = 0; }, "is 0;", "0x8000");
  refused([](auto& pci) { pci.msix.entries.pop_back(); }, "3 vectors", "4");
  refused([](auto& pci) { pci.transport.status |= 32; }, "status", "0x2f");
  refused([](auto& pci) { pci.transport.queues[1].size = 3; }, "queue 1 is 3", "256");
  EXPECT_EQ(after.device().activations, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(before.Restore(fresh)));
  EXPECT_EQ(before.Save(), valid);
}

TEST(VirtioPciState, NothingIsSavedWhileAResetIsUnderWay) {
  Machine machine;
  Task* reset_done = nullptr;
  machine.device().on_reset = [&](Task& done) { reset_done = &done; };
  machine.Run();
  machine.Set<uint8_t>(Machine::kStatus, 0);
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.pci().Save().status()));
  reset_done->Run();
  EXPECT_TRUE(machine.pci().Save().ok());
}

TEST(VirtioPciState, AnyBytesAreTakenOrRefused) {
  Machine running;
  running.RunWithVectors();
  running.device().positions[1] = 0xffff;
  const Saved valid = running.Save();
  RandomState random(6);
  auto machine = std::make_unique<Machine>();
  const Saved fresh = machine->Save();
  int taken = 0;
  for (int round = 0; round < 10000; ++round) {
    Saved state = round % 4 == 1 ? fresh : valid;
    switch (round % 8) {
      case 0:
        random.Fill(state.pci, 4);
        break;
      case 2:
        random.Mutate(state.pci.transport);
        break;
      case 4:
        random.Mutate(state.pci.msix);
        break;
      case 6:
        // The BAR: any address may have been written to it.
        state.pci.config.bytes[0x13] = random.Value<uint8_t>();
        break;
      default:
        random.Mutate(state.pci);
    }
    if (!machine->Restore(state).ok()) {
      ASSERT_EQ(machine->Save(), fresh);
      continue;
    }
    ++taken;
    ASSERT_EQ(machine->Save(), state);
    machine->Use(random);
    const Saved later = machine->Save();
    machine = std::make_unique<Machine>();
    ASSERT_EQ(machine->Restore(later), absl::OkStatus());
    machine = std::make_unique<Machine>();
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace ringside
