// Machines whose devices are made anew from saved state, again and again, while their guests check
// every byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "tests/support/devices/random_state.h"
#include "tests/support/devices/zero_disk.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"

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

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RandomState;
using testing::TempFile;

constexpr uint64_t kMiB = 1 << 20;
#ifdef RINGSIDE_TSAN
constexpr const char* kRuntime = "100ms";
constexpr int kStates = 60;
constexpr int kRestores = 20;
#else
constexpr const char* kRuntime = "300ms";
constexpr int kStates = 400;
constexpr int kRestores = 80;
#endif

class RestoreMachineTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const std::string& command_line, Engine engine = Engine::kAuto) const {
    MachineConfig config = GuestConfig(console_, command_line);
    config.disks = {{.backend = FileConfig{.path = image_.path(), .aio = engine}}};
    return config;
  }
  std::unique_ptr<Machine> Begin(const MachineConfig& config) {
    auto machine = Machine::Create(config);
    EXPECT_TRUE(machine.ok()) << machine.status();
    EXPECT_TRUE((*machine)->Start().ok());
    return *std::move(machine);
  }
  // A power-off after checks that found nothing wrong.
  void EndWell(Machine& machine) {
    const MachineEnd& end = machine.Wait();
    EXPECT_EQ(end.kind, EndKind::kPowerOff) << end.detail;
    EXPECT_THAT(console_.Output(), Not(HasSubstr("FAIL")));
    EXPECT_THAT(console_.Output(), HasSubstr("\"errors\":0,\"mismatches\":0"));
  }
  static bool IsOver(const Machine& machine) {
    return testing::WaitForFd(machine.end_event().fd(), POLLIN, absl::ZeroDuration());
  }
  // Since the devices were last made.
  static uint64_t Requests(Machine& machine) {
    const MachineStatistics statistics = machine.Statistics();
    uint64_t sum = 0;
    for (const QueueStatistics& queue : statistics.disks[0].queues) sum += queue.requests();
    return sum;
  }
  static void ExpectProgress(Machine& machine) {
    const uint64_t before = Requests(machine);
    EXPECT_TRUE(testing::SpinUntil([&] { return IsOver(machine) || Requests(machine) > before; }));
  }

  const TempFile image_{16 * kMiB, "."};
  TestConsole console_;
};

struct Load {
  Engine engine;
  const char* wait;
  int cpus;
};

class RestoreUnderLoadTest : public RestoreMachineTest, public ::testing::WithParamInterface<Load> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(RestoreUnderLoadTest, TheGuestGoesOnWithDevicesMadeAnew) {
  const auto& [engine, wait, cpus] = GetParam();
  MachineConfig config = Config(std::string("rw=randrw verify=1 size=1M qd=1,16 runtime=") +
                                    kRuntime + " wait=" + wait + " queues=" + std::to_string(cpus),
                                engine);
  config.cpus = static_cast<uint32_t>(cpus);
  config.disks[0].queues = static_cast<uint16_t>(cpus);
  const auto machine = Begin(config);
  std::mt19937 random(1);
  int restored = 0;
  while (restored < kRestores && !IsOver(*machine) && machine->Pause().ok()) {
    const absl::StatusOr<DevicesState> state = machine->SaveDevices();
    ASSERT_TRUE(state.ok()) << state.status();
    ASSERT_EQ(machine->RestoreDevices(*state), absl::OkStatus());
    EXPECT_EQ(*machine->SaveDevices(), *state);
    EXPECT_EQ(Requests(*machine), 0);
    machine->Resume();
    ++restored;
    if (restored % 4 == 0) ExpectProgress(*machine);
    testing::Delay(static_cast<int>(random() % 100'000));
  }
  EndWell(*machine);
  EXPECT_GT(restored, kRestores / 2);
}

INSTANTIATE_TEST_SUITE_P(
    , RestoreUnderLoadTest,
    ::testing::Values(Load{Engine::kIoUring, "poll", 1}, Load{Engine::kIoUring, "irq", 2},
                      Load{Engine::kNative, "irq", 1}, Load{Engine::kThreads, "poll", 2}),
    [](const auto& info) {
      return std::string(EngineName(info.param.engine)) + "_" + info.param.wait;
    });

// What is refused has changed nothing; what is taken is a device's that could be so, and is put
// right by the state that was saved.
TEST_F(RestoreMachineTest, AnyStateIsTakenOrRefused) {
  const auto machine = Begin(Config("rw=randrw verify=1 size=1M qd=16 runtime=1s wait=irq"));
  ExpectProgress(*machine);
  RandomState random(7);
  int taken = 0;
  for (int round = 0; round < kStates; ++round) {
    ASSERT_TRUE(machine->Pause().ok());
    const DevicesState here = *machine->SaveDevices();
    DevicesState state = here;
    random.Mutate(state);
    const absl::Status status = machine->RestoreDevices(state);
    if (status.ok()) {
      ++taken;
      EXPECT_EQ(*machine->SaveDevices(), state);
      ASSERT_EQ(machine->RestoreDevices(here), absl::OkStatus());
    } else {
      ASSERT_TRUE(absl::IsInvalidArgument(status)) << status;
    }
    ASSERT_EQ(*machine->SaveDevices(), here);
    machine->Resume();
    if (round % 8 == 0) ExpectProgress(*machine);
  }
  EXPECT_GT(taken, kStates / 50);
  EXPECT_LT(taken, kStates);
  EndWell(*machine);
}

TEST_F(RestoreMachineTest, AStateIsTakenForTheSameDevicesOnly) {
  const auto machine = Begin(Config("rw=randread size=1M qd=4 runtime=300ms"));
  ASSERT_TRUE(machine->Pause().ok());
  const DevicesState here = *machine->SaveDevices();
  DevicesState state = here;
  state.functions.pop_back();
  EXPECT_THAT(machine->RestoreDevices(state), IsBadInput("has 1 virtio", "one has 2"));
  state = here;
  state.functions[1].name = "net0";
  EXPECT_THAT(machine->RestoreDevices(state), IsBadInput("'net0'", "'rng'"));
  machine->Resume();
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
}

TEST_F(RestoreMachineTest, OnlyAPausedMachineIsSavedAndRestored) {
  const auto machine = Begin(Config("rw=randread size=1M qd=4 runtime=300ms"));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->SaveDevices().status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->RestoreDevices({})));
  ASSERT_TRUE(machine->Pause().ok());
  const DevicesState state = *machine->SaveDevices();
  machine->Resume();
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->RestoreDevices(state)));
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->SaveDevices().status()));
}

TEST_F(RestoreMachineTest, QueuesStayOnTheirThreadsAndOwnDevicesComeAlong) {
  MachineConfig config = Config("rw=randread qd=4 runtime=400ms wait=irq");
  config.io_threads = {{.name = "a"}, {.name = "b"}};
  int made = 0;
  config.devices = {{.name = "zeroes", .create = [&](const DeviceContext& context) {
                       ++made;
                       return std::make_unique<testing::ZeroDisk>(
                           context.memory, std::vector{context.io_threads.Find("b")->get()},
                           QueuedDevice::QueueConfig{});
                     }}};
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "b").ok());
  ASSERT_TRUE(machine->RemoveIoThread("a").ok());
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(machine->RestoreDevices(*machine->SaveDevices()), absl::OkStatus());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(machine->Statistics().disks[0].queues[0].io_thread, "b");
  EXPECT_EQ(*machine->AddIoThread({.name = "c"}), "c");
  EXPECT_TRUE(machine->MoveQueue("disk0", 0, "c").ok()) << "while it is paused";
  machine->Resume();
  ExpectProgress(*machine);
  EXPECT_EQ(machine->Statistics().disks[0].queues[0].io_thread, "c");
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), Not(HasSubstr("FAIL")));
}

// It holds when that is over, also if it came from a thread that the restore waits for.
TEST_F(RestoreMachineTest, AResumeThatComesInTheMiddleIsNotLost) {
  IoThreads* io_threads = nullptr;
  MachineConfig config = Config("rw=randrw verify=1 size=1M qd=4 runtime=300ms wait=irq");
  Machine* resumed = nullptr;
  config.devices = {{.name = "zeroes", .create = [&](const DeviceContext& context) {
                       io_threads = &context.io_threads;
                       if (resumed != nullptr) {
                         (*io_threads->Find("io0"))->RunAndWait([&] { resumed->Resume(); });
                         EXPECT_TRUE(resumed->paused());
                       }
                       return std::make_unique<testing::ZeroDisk>(
                           context.memory, std::vector{context.io_threads.Find("io0")->get()},
                           QueuedDevice::QueueConfig{});
                     }}};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  const absl::StatusOr<DevicesState> state = machine->SaveDevices();
  resumed = machine.get();
  ASSERT_EQ(machine->RestoreDevices(*state), absl::OkStatus());
  EXPECT_FALSE(machine->paused());
  EndWell(*machine);
}

TEST_F(RestoreMachineTest, AMachineMayEndAtAnyTimeOfIt) {
  for (int round = 0; round < 20; ++round) {
    const auto machine = Begin(Config("rw=randwrite qd=16 runtime=10s"));
    ExpectProgress(*machine);
    std::thread restorer([&] {
      while (machine->Pause().ok()) {
        if (const auto state = machine->SaveDevices(); state.ok()) {
          (void)machine->RestoreDevices(*state);
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
