// A virtio-pci function that is saved and made anew on another host bridge: what its driver sees.
#include <gtest/gtest.h>
#include <memory>

#include "devices/pci_host.h"
#include "tests/support/devices/random_state.h"
#include "tests/support/devices/virtio_pci_fixture.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::FakePciPlatform;
using testing::FakeVirtioDevice;
using testing::RandomState;
using testing::ReadAs;
using testing::WriteAs;
using Transport = VirtioTransport;

constexpr uint64_t kWindow = 0xc0000000;
constexpr uint64_t kWindowSize = 0x10000000;
constexpr uint64_t kBarPlace = kWindow + 0x100000;
constexpr uint64_t kMessage = 0xfee01000;
constexpr uint32_t kSlot = 1 << 15;  // in ECAM

struct Saved {
  PciHost::State host;
  VirtioPci::State pci;
  bool operator==(const Saved&) const = default;
};

// The function, its device and its bus; there are two in each test.
class Machine final : public testing::VirtioPciFixture {
 public:
  using VirtioPciFixture::Config;
  using VirtioPciFixture::EnableMsix;
  using VirtioPciFixture::Get;
  using VirtioPciFixture::kConfigVector;
  using VirtioPciFixture::kDeviceFeatureSelect;
  using VirtioPciFixture::kDriverFeatureSelect;
  using VirtioPciFixture::kQueueSelect;
  using VirtioPciFixture::kQueueVector;
  using VirtioPciFixture::kStatus;
  using VirtioPciFixture::Run;
  using VirtioPciFixture::Set;
  using VirtioPciFixture::SetConfig;
  using VirtioPciFixture::SetWindow;
  using VirtioPciFixture::window_data;

  Machine() { added_ = host_.Add(*pci_).ok(); }
  ~Machine() override { pci_->transport().ResetAndWait(); }

  VirtioPci& pci() { return *pci_; }
  FakeVirtioDevice& device() { return device_; }
  FakePciPlatform& platform() { return platform_; }
  FakePciPlatform::Vector& vector(size_t index) { return *platform_.vectors[index]; }
  IoHandler& bar() { return *bar_; }
  Bus& memory() { return memory_; }

  // As a driver does, with its BAR where it wants it.
  void MapBar() {
    WriteAs<uint32_t>(host_.ecam(), kSlot | 0x10, static_cast<uint32_t>(kBarPlace));
    WriteAs<uint16_t>(host_.ecam(), kSlot | 0x04, 6);
  }
  void SetMessage(uint64_t index, uint32_t data, bool masked) {
    const uint64_t entry = VirtioPci::kTablePage + 16 * index;
    WriteAs<uint64_t>(*bar_, entry, kMessage);
    WriteAs<uint64_t>(*bar_, entry + 8, uint64_t{masked} << 32 | data);
  }
  // A driver with queue 1 on vector 2 and a masked vector 3 for the configuration.
  void RunWithVectors() {
    MapBar();
    EnableMsix(true);
    SetMessage(2, 0x42, false);
    SetMessage(3, 0x43, true);
    Run();
    Set<uint16_t>(kQueueVector, 2);  // Run has selected queue 1
    Set<uint16_t>(kConfigVector, 3);
  }

  Saved Save() { return {.host = host_.Save(), .pci = *pci_->Save()}; }
  absl::Status Restore(const Saved& saved) {
    RINGSIDE_RETURN_IF_ERROR(host_.Check(saved.host));
    RINGSIDE_RETURN_IF_ERROR(pci_->Restore(saved.pci));
    return host_.Restore(saved.host);
  }
  bool added() const { return added_; }

 private:
  void TestBody() override {}

  Bus memory_;
  PciHost host_{memory_, kWindow, kWindowSize};
  bool added_;
};

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

void UseAsADriver(Machine& machine, RandomState& random) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t at = random.Below(VirtioPci::kBarSize / 4096) * 4096 + 4 * random.Below(20);
    WriteAs<uint32_t>(machine.bar(), at, random.Value<uint32_t>());
    ReadAs<uint64_t>(machine.bar(), at);
    const auto offset = static_cast<uint32_t>(random.Below(PciFunction::kConfigSize));
    machine.SetConfig<uint8_t>(offset, random.Value<uint8_t>());
    machine.Config<uint32_t>(offset);
  }
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
    UseAsADriver(*machine, random);
    const Saved later = machine->Save();
    machine = std::make_unique<Machine>();
    ASSERT_EQ(machine->Restore(later), absl::OkStatus());
    machine = std::make_unique<Machine>();
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace ringside
