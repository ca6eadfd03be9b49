// A transport that is saved and made anew: what its driver and its device see, and what a state
// must not say.
#include <gtest/gtest.h>
#include <memory>

#include "tests/support/devices/random_state.h"
#include "tests/support/devices/virtio_transport_fixture.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::FakeVirtioDevice;
using testing::RandomState;
using State = VirtioTransport::State;

// A transport, its device and its vectors; there are two in each test.
class Machine final : public testing::VirtioTransportFixture {
 public:
  using VirtioTransportFixture::Accept;
  using VirtioTransportFixture::Half;
  using VirtioTransportFixture::Queue;
  using VirtioTransportFixture::Run;
  using VirtioTransportFixture::SetArea;
  using VirtioTransportFixture::SetUpQueue;
  using VirtioTransportFixture::Transport;

  static constexpr uint8_t kFound = VirtioTransportFixture::kFound;
  static constexpr uint8_t kNegotiated = VirtioTransportFixture::kNegotiated;
  static constexpr uint8_t kRunning = VirtioTransportFixture::kRunning;

  Transport& transport() { return *transport_; }
  FakeVirtioDevice& device() { return device_; }
  uint64_t Signals(size_t vector) { return events_[vector]->Clear(); }
  State Save() { return *transport_->Save(); }
  bool logged() const { return !log_.lines().empty(); }

 private:
  void TestBody() override {}
};

void ExpectRestored(Machine& machine, const State& state) {
  ASSERT_EQ(machine.transport().Restore(state), absl::OkStatus());
  EXPECT_EQ(machine.Save(), state);
}

TEST(VirtioTransportState, AFreshDeviceComesBack) {
  Machine before, after;
  ExpectRestored(after, before.Save());
  EXPECT_EQ(after.device().activations, 0);
  after.Run();
  EXPECT_EQ(after.device().setups[0].next, 0);
}

TEST(VirtioTransportState, ARunningDeviceGoesOnWhereItsRingsWere) {
  Machine before;
  before.SetUpQueue(2);
  before.Run();
  before.device().positions = {40000, 0, 7};
  before.device().own_state = {5, 255};
  const State state = before.Save();

  Machine after;
  ExpectRestored(after, state);
  EXPECT_EQ(after.transport().status(), Machine::kRunning);
  EXPECT_EQ(after.device().activations, 1);
  EXPECT_EQ(after.device().own_state, before.device().own_state);
  EXPECT_EQ(after.device().accepted, before.device().accepted);
  ASSERT_EQ(after.device().setups.size(), 2u);
  const QueueSetup& queue = after.device().setups[1];
  EXPECT_EQ(queue.index, 2);
  EXPECT_EQ(queue.next, 7);
  EXPECT_EQ(queue.size, 64);
  EXPECT_EQ(queue.descriptor_area, 0x30000u);
  EXPECT_EQ(queue.driver_area, 0x34000u);
  EXPECT_EQ(queue.device_area, 0x38000u);
  EXPECT_EQ(queue.kick, &after.transport().kick(2));
  EXPECT_EQ(after.device().setups[0].next, 40000);

  // The next driver begins at the beginning.
  after.transport().SetStatus(0);
  EXPECT_EQ(after.device().resets, 1);
  after.Run();
  EXPECT_EQ(after.device().setups[0].next, 0);
  EXPECT_FALSE(after.logged());
}

TEST(VirtioTransportState, InterruptsReachTheVectorsTheyHad) {
  Machine before;
  before.transport().EnableVectors(true);
  before.transport().SetConfigVector(3);
  before.transport().SetQueueVector(0, 2);
  before.Run();

  Machine after;
  after.transport().EnableVectors(true);  // the bus's, which has restored its own
  ExpectRestored(after, before.Save());
  after.device().setups[0].call->Signal();
  EXPECT_EQ(after.Signals(2), 1u);
  after.transport().ConfigChanged();
  EXPECT_EQ(after.Signals(3), 1u);
  EXPECT_EQ(after.Signals(0) + after.Signals(1), 0u);
}

TEST(VirtioTransportState, TheIsrStatusAndTheGenerationComeBack) {
  Machine before;
  before.Run();
  before.device().setups[0].call->Signal();
  before.transport().ConfigChanged();
  const uint8_t generation = before.transport().config_generation();
  const State state = before.Save();
  EXPECT_EQ(before.transport().isr(), 3);  // saving takes nothing

  Machine after;
  ExpectRestored(after, state);
  EXPECT_EQ(after.transport().TakeIsr(), 3);
  EXPECT_EQ(after.transport().config_generation(), generation);
}

TEST(VirtioTransportState, ADriverHalfWayThroughGoesOn) {
  Machine before;
  before.transport().SetStatus(Machine::kFound);
  before.Accept(kVirtioVersion1 | kVirtioRingEventIdx | 1);  // too much, and not asked for yet
  before.SetUpQueue(1);
  before.transport().SetQueueSize(0, 8);

  Machine after;
  ExpectRestored(after, before.Save());
  after.Accept(kVirtioVersion1 | kVirtioRingEventIdx);
  after.transport().SetStatus(Machine::kNegotiated);
  after.transport().SetStatus(Machine::kRunning);
  EXPECT_EQ(after.transport().status(), Machine::kRunning);
  ASSERT_EQ(after.device().setups.size(), 1u);
  EXPECT_EQ(after.device().setups[0].index, 1);
  EXPECT_EQ(after.transport().queue(0).size, 8);
}

TEST(VirtioTransportState, ABrokenDeviceStaysSoUntilItsReset) {
  Machine before;
  before.Run();
  before.device().events->NeedsReset("a test");
  const State state = before.Save();

  Machine after;
  ExpectRestored(after, state);
  EXPECT_EQ(after.transport().status(), Machine::kRunning | VirtioTransport::kNeedsReset);
  EXPECT_EQ(after.device().activations, 1);  // its other queues work
  EXPECT_FALSE(after.logged());              // it is no news
  after.transport().SetStatus(0);
  EXPECT_EQ(after.device().resets, 1);
  EXPECT_EQ(after.transport().status(), 0);
}

TEST(VirtioTransportState, ADeviceThatCouldNotBeActivatedIsNot) {
  Machine before;
  before.SetArea(1, &Machine::Queue::descriptor_area, 1);
  before.transport().EnableQueue(1);
  before.Accept(kVirtioVersion1);
  before.transport().SetStatus(Machine::kNegotiated);
  before.transport().SetStatus(Machine::kRunning);
  ASSERT_EQ(before.device().activations, 0);

  Machine after;
  ExpectRestored(after, before.Save());
  EXPECT_EQ(after.device().activations, 0);
  after.transport().SetStatus(0);
  EXPECT_EQ(after.device().resets, 0);
  EXPECT_EQ(after.transport().status(), 0);
}

TEST(VirtioTransportState, NothingIsSavedWhileAResetIsUnderWay) {
  Machine machine;
  Task* reset_done = nullptr;
  machine.device().on_reset = [&](Task& done) { reset_done = &done; };
  machine.Run();
  machine.transport().SetStatus(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.transport().Save().status()));
  reset_done->Run();
  EXPECT_EQ(machine.Save().status, 0);
}

TEST(VirtioTransportState, NothingIsRestoredWhereADriverIs) {
  Machine machine;
  const State fresh = machine.Save();
  machine.Run();
  const State running = machine.Save();
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.transport().Restore(fresh)));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine.transport().Restore(running)));
  EXPECT_EQ(machine.Save(), running);
  EXPECT_EQ(machine.device().activations, 1);
}

struct Refusal {
  const char* name;
  void (*spoil)(State&);
  const char* what;
  const char* value;
};
class VirtioTransportRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(VirtioTransportRefusal, ChangesNothing) {
  Machine before, after;
  before.Run();
  State state = before.Save();
  GetParam().spoil(state);
  const State fresh = after.Save();
  const absl::Status status = after.transport().Restore(state);
  EXPECT_THAT(status, IsBadInput(GetParam().what, GetParam().value));
  EXPECT_THAT(status, IsBadInput("disk0: ", ""));
  EXPECT_EQ(after.Save(), fresh);
  EXPECT_EQ(after.device().activations, 0);
}
INSTANTIATE_TEST_SUITE_P(
    All, VirtioTransportRefusal,
    ::testing::Values(
        Refusal{"id", [](State& s) { s.device_id = 2; }, "id is 2", "42 here"},
        Refusal{"fewer_queues", [](State& s) { s.queues.pop_back(); }, "2 queues", "3 here"},
        Refusal{"more_queues", [](State& s) { s.queues.emplace_back(); }, "4 queues", "3 here"},
        Refusal{"status_bits", [](State& s) { s.status |= 16; }, "device status", "0x1f"},
        Refusal{"isr", [](State& s) { s.isr = 4; }, "ISR", "0x4"},
        Refusal{"config_vector", [](State& s) { s.config_vector = 4; }, "vector is 4", "4,"},
        Refusal{"features", [](State& s) { s.driver_features[0] |= 1; }, "00000001", "00000001"},
        Refusal{"features_high", [](State& s) { s.driver_features[3] = 1; }, "features",
                "00000001"},
        Refusal{"version_1", [](State& s) { s.driver_features[1] = 0; }, "VERSION_1", ""},
        Refusal{"no_features_ok", [](State& s) { s.status = 7; }, "0x7", "FEATURES_OK"},
        Refusal{"needs_reset", [](State& s) { s.status = 64 | 11; }, "0x4b", "DRIVER_OK"},
        Refusal{"area", [](State& s) { s.queues[0].driver_area = 1; }, "0x1", "NEEDS_RESET"},
        Refusal{"max_size", [](State& s) { s.queues[1].max_size = 128; }, "128", "256 here"},
        Refusal{"size", [](State& s) { s.queues[1].size = 12; }, "size of queue 1 is 12", "256"},
        Refusal{"no_size", [](State& s) { s.queues[1].size = 0; }, "size of queue 1 is 0", "256"},
        Refusal{"large", [](State& s) { s.queues[1].size = 512; }, "queue 1 is 512", "256"},
        Refusal{"enabled", [](State& s) { s.queues[0].enabled = 2; }, "queue_enable", "0x2"},
        Refusal{"vector", [](State& s) { s.queues[2].vector = 0xfffe; }, "vector is 65534", "4"},
        Refusal{"next_disabled", [](State& s) { s.queues[1].next = 9; }, "of queue 1 is 9", "0"},
        Refusal{"next_stopped",
                [](State& s) {
                  s.status = Machine::kNegotiated;
                  s.queues[0].next = 9;
                },
                "of queue 0 is 9", "0"}),
    [](const auto& test) { return test.param.name; });

// The fake device holds the transport to its contract, whatever the state says.
void UseAsADriver(Machine& machine, RandomState& random) {
  VirtioTransport& transport = machine.transport();
  for (int i = 0; i < 6; ++i) {
    const auto index = static_cast<uint16_t>(random.Below(4));
    transport.SetQueueVector(index, random.Value<uint16_t>());
    transport.SetQueueSize(index, random.Value<uint16_t>());
    transport.EnableQueue(index);
    transport.SetStatus(random.Below(8) == 0 ? 0 : random.Value<uint8_t>());
    transport.EnableVectors(random.Below(2) == 0);
    for (const QueueSetup& queue : machine.device().setups) queue.call->Signal();
    transport.TakeIsr();
  }
}

TEST(VirtioTransportState, AnyBytesAreTakenOrRefused) {
  Machine running;
  running.SetUpQueue(1);
  running.Run();
  running.device().positions = {1, 0xffff, 0};
  const State valid = running.Save();
  RandomState random(4);
  auto machine = std::make_unique<Machine>();
  const State fresh = machine->Save();
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    State state = round % 4 == 1 ? fresh : valid;
    if (round % 4 == 0) {
      random.Fill(state, 4);
    } else {
      random.Mutate(state);
    }
    if (!machine->transport().Restore(state).ok()) {
      ASSERT_EQ(machine->Save(), fresh);
      continue;
    }
    ++taken;
    ASSERT_EQ(machine->Save(), state);
    UseAsADriver(*machine, random);
    const State later = machine->Save();
    machine = std::make_unique<Machine>();
    ASSERT_EQ(machine->transport().Restore(later), absl::OkStatus());
    machine = std::make_unique<Machine>();
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace ringside
