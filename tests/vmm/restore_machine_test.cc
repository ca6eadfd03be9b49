// Machines whose devices are made anew from saved state, again and again, while their guests check
// every byte.
#include <atomic>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "tests/support/devices/random_state.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/pausing_machine.h"

namespace ringside {

inline auto Fields(DevicesState::Function& state) {
  auto& [name, pci] = state;
  return std::tie(pci);
}
inline auto Fields(DevicesState& state) {
  auto& [serial, pci_host, functions] = state;
  return std::tie(serial, pci_host, functions);
}

namespace {

using testing::CheckedLoad;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RandomState;

#ifdef RINGSIDE_TSAN
constexpr const char* kRuntime = "100ms";
constexpr int kStates = 60;
constexpr int kRestores = 20;
constexpr uint32_t kSeeds = 2;
#else
constexpr const char* kRuntime = "300ms";
constexpr int kStates = 400;
constexpr int kRestores = 80;
constexpr uint32_t kSeeds = 6;
#endif

using RestoreMachineTest = testing::PausingMachine;
using RestoreUnderLoadTest = testing::PausingMachineUnderLoad;

TEST_P(RestoreUnderLoadTest, TheGuestGoesOnWithDevicesMadeAnew) {
  const auto machine = Begin(LoadConfig(kRuntime));
  std::mt19937 random(1);
  int restored = 0;
  while (restored < kRestores && !IsOver(*machine) && machine->Pause().ok()) {
    const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
    ASSERT_TRUE(state.ok()) << state.status();
    ASSERT_EQ(machine->internals().RestoreDevices(*state), absl::OkStatus());
    EXPECT_EQ(*machine->internals().SaveDevices(), *state);
    EXPECT_EQ(Requests(*machine), 0);
    machine->Resume();
    ++restored;
    if (restored % 4 == 0) ExpectProgress(*machine);
    testing::Delay(static_cast<int>(random() % 100'000));
  }
  EndWell(*machine);
  EXPECT_GT(restored, 1);
}

INSTANTIATE_TEST_SUITE_P(, RestoreUnderLoadTest,
                         ::testing::Values(CheckedLoad{Engine::kIoUring, "poll", 1},
                                           CheckedLoad{Engine::kIoUring, "irq", 2},
                                           CheckedLoad{Engine::kNative, "irq", 1},
                                           CheckedLoad{Engine::kThreads, "poll", 2}),
                         [](const auto& info) { return NameOf(info.param); });

// The guest has nothing else to do, and has kicked before the pause.
TEST_F(RestoreMachineTest, QueuesWithUnreadEntriesGoOn) {
  MachineConfig config = Config("rw=randread qd=1 runtime=60s wait=irq");
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  config.devices = {Zeroes("io0")};
  const auto machine = Begin(config);
  IoThread& io_thread = ThreadOf(*machine, "io0");
  int unread = 0;
  for (int round = 0; round < kRestores || (unread == 0 && round < 10 * kRestores); ++round) {
    unread += PauseWithUnread(*machine, io_thread);
    ASSERT_EQ(machine->internals().RestoreDevices(*machine->internals().SaveDevices()),
              absl::OkStatus());
    machine->Resume();
    ExpectProgress(*machine);
  }
  EXPECT_GT(unread, 0);  // on a busy machine most are read
}

// What is refused has changed nothing; what is taken is a device's that could be so, and is put
// right by the state that was saved.
TEST_F(RestoreMachineTest, AnyStateIsTakenOrRefused) {
  const auto machine = Begin(Config("rw=randrw verify=1 size=1M qd=16 runtime=1s wait=irq"));
  ExpectProgress(*machine);
  RandomState random(7);
  int taken = 0, round = 0;
  for (; round < kStates && machine->Pause().ok(); ++round) {  // or until the guest is done
    const DevicesState here = *machine->internals().SaveDevices();
    DevicesState state = here;
    random.Mutate(state);
    const absl::Status status = machine->internals().RestoreDevices(state);
    if (status.ok()) {
      ++taken;
      EXPECT_EQ(*machine->internals().SaveDevices(), state);
      ASSERT_EQ(machine->internals().RestoreDevices(here), absl::OkStatus());
    } else {
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << status;
    }
    ASSERT_EQ(*machine->internals().SaveDevices(), here);
    machine->Resume();
    if (round % 8 == 0) ExpectProgress(*machine);
  }
  if (round >= 50) {  // fewer are a matter of chance
    EXPECT_GT(taken, round / 50);
    EXPECT_LT(taken, round);
  }
  EndWell(*machine);
}

// A hostile state is not only taken, but run with, and what is saved of that is taken again.
TEST_F(RestoreMachineTest, AnyStateMayBeRunWith) {
  int taken = 0;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    MachineConfig config =
        Config(seed % 2 == 0 ? "rw=randrw size=1M qd=16 runtime=20s wait=irq" : "hostile=all");
    config.cpus = 1 + seed % 2;
    const auto machine = Begin(config);
    RandomState random(seed);
    for (int round = 0; round < kStates / 4 && machine->Pause().ok(); ++round) {
      const absl::StatusOr<DevicesState> here = machine->internals().SaveDevices();
      ASSERT_TRUE(here.ok()) << here.status();
      for (int tries = 0; tries < 20; ++tries) {
        DevicesState state = *here;
        random.Mutate(state);
        if (!machine->internals().RestoreDevices(state).ok()) continue;
        ++taken;
        ASSERT_EQ(machine->internals().RestoreDevices(*machine->internals().SaveDevices()),
                  absl::OkStatus());
        break;
      }
      machine->Resume();
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  }
  EXPECT_GT(taken, kStates / 8);
}

TEST_F(RestoreMachineTest, NothingIsLeftBehind) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto machine = Begin(Config("rw=randread qd=4 runtime=100s wait=irq"));
  ptrdiff_t before = 0;
  for (int round = 0; round < kRestores; ++round) {
    ASSERT_TRUE(machine->Pause().ok());
    ASSERT_EQ(machine->internals().RestoreDevices(*machine->internals().SaveDevices()),
              absl::OkStatus());
    machine->Resume();
    if (round == 0) before = descriptors();
  }
  EXPECT_EQ(descriptors(), before);
}

TEST_F(RestoreMachineTest, AMachineWhoseDevicesCannotBeMadeIsAsBefore) {
  bool refuses = false;
  MachineConfig config = Config("rw=randrw verify=1 size=1M qd=4 runtime=400ms wait=irq");
  config.devices = {Zeroes("io0", [&] {
    return refuses ? absl::ResourceExhaustedError("none is left") : absl::OkStatus();
  })};
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->Pause().ok());
  refuses = true;
  EXPECT_TRUE(absl::IsResourceExhausted(
      machine->internals().RestoreDevices(*machine->internals().SaveDevices())));
  EXPECT_TRUE(machine->paused());
  machine->Resume();
  EndWell(*machine);
}

TEST_F(RestoreMachineTest, AStateIsTakenForTheSameDevicesOnly) {
  const auto machine = Begin(Config("rw=randread size=1M qd=4 runtime=300ms"));
  ASSERT_TRUE(machine->Pause().ok());
  const DevicesState here = *machine->internals().SaveDevices();
  DevicesState state = here;
  state.functions.pop_back();
  EXPECT_THAT(machine->internals().RestoreDevices(state), IsBadInput("has 1 virtio", "one has 2"));
  state = here;
  state.functions[1].name = "net0";
  EXPECT_THAT(machine->internals().RestoreDevices(state), IsBadInput("'net0'", "'rng'"));
  machine->Resume();
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
}

TEST_F(RestoreMachineTest, OnlyAPausedMachineIsSavedAndRestored) {
  const auto machine = Begin(Config("rw=randread size=1M qd=4 runtime=300ms"));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->internals().SaveDevices().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->internals().RestoreDevices({})));
  ASSERT_TRUE(machine->Pause().ok());
  const DevicesState state = *machine->internals().SaveDevices();
  machine->Resume();
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->internals().RestoreDevices(state)));
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->internals().SaveDevices().status()));
}

TEST_F(RestoreMachineTest, QueuesStayOnTheirThreadsAndOwnDevicesComeAlong) {
  MachineConfig config = Config("rw=randread qd=4 runtime=1s wait=irq");
  config.io_threads = {{.id = "a"}, {.id = "b"}};
  int made = 0;
  config.devices = {Zeroes("b", [&] {
    ++made;
    return absl::OkStatus();
  })};
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "b").ok());
  ASSERT_TRUE(machine->RemoveIoThread("a").ok());
  ASSERT_EQ(*machine->AddIoThread({.id = "c"}), "c");
  ASSERT_TRUE(machine->MoveQueue("zeroes", 0, "c").ok());
  ASSERT_TRUE(machine->MoveQueue("rng", 0, "c").ok());
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(machine->internals().RestoreDevices(*machine->internals().SaveDevices()),
            absl::OkStatus());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(machine->Statistics().disks[0].queues[0].io_thread, "b");
  for (const auto& device : machine->Statistics().devices) {
    EXPECT_EQ(device.queues[0].io_thread, "c") << device.id;
  }
  EXPECT_TRUE(machine->MoveQueue("disk0", 0, "c").ok()) << "while it is paused";
  machine->Resume();
  ExpectProgress(*machine);
  EXPECT_EQ(machine->Statistics().disks[0].queues[0].io_thread, "c");
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), Not(HasSubstr("FAIL")));
}

// It holds when that is over, also if it came from a thread that the restore waits for.
TEST_F(RestoreMachineTest, AResumeThatComesInTheMiddleIsNotLost) {
  MachineConfig config = Config("rw=randrw verify=1 size=1M qd=4 runtime=300ms wait=irq");
  Machine* resumed = nullptr;
  config.devices = {Zeroes("io0", [&] {
    if (resumed != nullptr) {
      ThreadOf(*resumed, "io0").RunAndWait([&] { resumed->Resume(); });
      EXPECT_TRUE(resumed->paused());
    }
    return absl::OkStatus();
  })};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
  resumed = machine.get();
  ASSERT_EQ(machine->internals().RestoreDevices(*state), absl::OkStatus());
  EXPECT_FALSE(machine->paused());
  EndWell(*machine);
}

TEST_F(RestoreMachineTest, AMachineMayEndAtAnyTimeOfIt) {
  for (int round = 0; round < 20; ++round) {
    const auto machine = Begin(Config("rw=randwrite qd=16 runtime=10s"));
    ExpectProgress(*machine);
    std::thread restorer([&] {
      while (machine->Pause().ok()) {
        if (const auto state = machine->internals().SaveDevices(); state.ok()) {
          (void)machine->internals().RestoreDevices(*state);
        }
        machine->Resume();
      }
    });
    testing::Delay(round * 40'000);
    machine->Stop();
    EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
    restorer.join();
  }
}

}  // namespace
}  // namespace ringside
