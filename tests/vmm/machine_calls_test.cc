// What embedders may do at the same time as a machine's devices are moved, made anew or ended.
#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "block/null_device.h"
#include "tests/support/races.h"
#include "tests/support/vmm/metrics_parser.h"
#include "tests/support/vmm/pausing_machine.h"
#include "vmm/metrics.h"

namespace ringside {
namespace {

using testing::kWaitLimit;

constexpr absl::Duration kPatience = absl::Milliseconds(10);

// A null disk whose channels tell when they are closed.
struct Hooks {
  std::function<void()> closes;  // on the channel's thread
  Event ends_soon;
  std::atomic<bool> refuses{false};  // to be opened
};

class HookedChannel final : public BlockChannel {
 public:
  HookedChannel(std::unique_ptr<BlockChannel> below, Hooks& hooks)
      : below_(std::move(below)), hooks_(hooks) {}
  ~HookedChannel() override {
    if (const auto closes = std::exchange(hooks_.closes, nullptr)) closes();
  }
  void Submit(BlockRequest& request) override { below_->Submit(request); }
  void Cancel() override { below_->Cancel(); }

 private:
  const std::unique_ptr<BlockChannel> below_;
  Hooks& hooks_;
};

class HookedDevice final : public BlockDevice {
 public:
  HookedDevice(std::unique_ptr<BlockDevice> below, Hooks& hooks)
      : below_(std::move(below)), hooks_(hooks) {}
  const BlockInfo& info() const override { return below_->info(); }
  void EndSoon() override { hooks_.ends_soon.Notify(); }
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override {
    if (hooks_.refuses) return absl::UnavailableError("not now");
    RINGSIDE_ASSIGN_OR_RETURN(auto below, below_->Open(io_thread));
    return std::make_unique<HookedChannel>(std::move(below), hooks_);
  }

 private:
  const std::unique_ptr<BlockDevice> below_;
  Hooks& hooks_;
};

struct HookedConfig {
  Hooks* hooks;
  BackendDescription Describe() const { return {.name = "hooked"}; }
  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext&) const {
    RINGSIDE_ASSIGN_OR_RETURN(auto below, NullDevice::Create({.size = 16 << 20}));
    return std::make_unique<HookedDevice>(std::move(below), *hooks);
  }
};

class MachineCallsTest : public testing::PausingMachine {
 protected:
  MachineConfig TwoThreads(const std::string& command_line) const {
    MachineConfig config = Config(command_line);
    config.io_threads = {{.id = "a"}, {.id = "b"}};
    return config;
  }
  // Its disk has been served by both threads, and is by "a".
  std::unique_ptr<Machine> BeginHooked(Hooks& hooks) const {
    MachineConfig config = TwoThreads("rw=randread qd=4 runtime=60s wait=irq");
    config.disks = {{.backend = HookedConfig{&hooks}}};
    auto machine = Begin(config);
    ExpectProgress(*machine);
    EXPECT_TRUE(machine->MoveQueue("disk0", 0, "b").ok());
    EXPECT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
    return machine;
  }
  MachineConfig WithZeroes() const {
    MachineConfig config = TwoThreads("rw=randread qd=4 runtime=60s wait=irq");
    config.devices = {Zeroes("b")};
    return config;
  }
  static void ExpectGivenUp(const absl::Status& status) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  }
};

// An I/O thread that does not come back until it is told to.
class BusyThread {
 public:
  explicit BusyThread(IoThread& io_thread) {
    io_thread.Begin([come_back = come_back_] { come_back->Wait(); });
  }
  ~BusyThread() { ComeBack(); }
  BusyThread(const BusyThread&) = delete;
  BusyThread& operator=(const BusyThread&) = delete;
  void ComeBack() { come_back_->Notify(); }
  bool is_busy() const { return !come_back_->HasBeenNotified(); }

 private:
  const std::shared_ptr<Event> come_back_ = std::make_shared<Event>();
};

// The move is a task of the device on a thread that has not come to it yet.
TEST_F(MachineCallsTest, AMoveThatWasGivenUpDoesNotOutliveItsDevice) {
  auto machine = Make(WithZeroes());
  BusyThread busy(ThreadOf(*machine, "b"));
  ExpectGivenUp(machine->MoveQueue("disk0", 0, "b", kPatience));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    busy.ComeBack();
  });
  machine.reset();
  EXPECT_FALSE(busy.is_busy());
  later.join();
}

TEST_F(MachineCallsTest, NoDeviceIsMadeAnewWhileItsQueueMoves) {
  const auto machine = Begin(WithZeroes());
  BusyThread busy(ThreadOf(*machine, "b"));
  ExpectGivenUp(machine->MoveQueue("disk0", 0, "b", kPatience));
  ASSERT_TRUE(machine->Pause().ok());
  const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
  ASSERT_TRUE(state.ok()) << state.status();
  ExpectGivenUp(machine->internals().RestoreDevices(*state, kPatience));
  busy.ComeBack();
  EXPECT_EQ(machine->internals().RestoreDevices(*state), absl::OkStatus());
  EXPECT_EQ(machine->Statistics().disks[0].queues[0].io_thread, "b");
}

// The threads that new devices are made for are nobody's yet.
TEST_F(MachineCallsTest, NoThreadIsRemovedWhileDevicesAreMade) {
  Machine* restored = nullptr;
  MachineConfig config = TwoThreads("rw=randread qd=4 runtime=60s wait=irq");
  config.devices = {Zeroes("b", [&] {
    if (restored != nullptr) ExpectGivenUp(restored->RemoveIoThread("b", kPatience));
    return absl::OkStatus();
  })};
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->MoveQueue("zeroes", 0, "a").ok());
  ASSERT_TRUE(machine->Pause().ok());
  const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
  restored = machine.get();
  ASSERT_EQ(machine->internals().RestoreDevices(*state), absl::OkStatus());
  machine->Resume();
  ExpectProgress(*machine);
}

// What the old devices have on a thread goes after the new ones are there.
TEST_F(MachineCallsTest, NoThreadIsRemovedWhileOldDevicesEnd) {
  Hooks hooks;
  const auto machine = BeginHooked(hooks);
  ASSERT_TRUE(machine->Pause().ok());
  const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
  Event closed;
  hooks.closes = [&] {
    ExpectGivenUp(machine->RemoveIoThread("b", kPatience));
    closed.Notify();
  };
  ASSERT_EQ(machine->internals().RestoreDevices(*state), absl::OkStatus());
  EXPECT_TRUE(closed.WaitFor(kWaitLimit));
  machine->Resume();
  ExpectProgress(*machine);
}

TEST_F(MachineCallsTest, ThreadsMayBeRemovedWhileDevicesAreMadeAnew) {
  const auto machine = Begin(TwoThreads("rw=randread qd=4 runtime=60s wait=irq"));
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const std::string name = *machine->AddIoThread({});
    ASSERT_TRUE(machine->MoveQueue("disk0", 0, name).ok());
    ASSERT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
    ASSERT_TRUE(machine->Pause().ok());
    const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
    std::thread other([&] {
      testing::Delay(static_cast<int>(random() % 4'000'000));
      while (absl::IsFailedPrecondition(machine->RemoveIoThread(name))) {
      }
    });
    EXPECT_EQ(machine->internals().RestoreDevices(*state), absl::OkStatus());
    machine->Resume();
    other.join();
  }
}

TEST_F(MachineCallsTest, AThreadThatWasNotStartedServesNothing) {
  const auto machine = Make(GuestConfig(console_, ""));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->MoveQueue("rng", 0, "io0")));
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->RemoveIoThread("io0")));
  const absl::StatusOr<std::string> added = machine->AddIoThread({});
  ASSERT_TRUE(added.ok()) << added.status();
  EXPECT_EQ(machine->MoveQueue("rng", 0, *added), absl::OkStatus());
}

// As of a controller that does not answer while its queues are deleted.
TEST_F(MachineCallsTest, AMachineEndsThoughItsOldDevicesDoNot) {
  Hooks hooks;
  const auto machine = BeginHooked(hooks);
  ASSERT_TRUE(machine->Pause().ok());
  const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
  Event closes;
  hooks.closes = [&] {
    closes.Notify();
    EXPECT_TRUE(hooks.ends_soon.WaitFor(kWaitLimit));
  };
  std::thread restorer([&] { (void)machine->internals().RestoreDevices(*state); });
  closes.Wait();
  machine->Stop();
  machine->Wait();
  restorer.join();
}

TEST_F(MachineCallsTest, AThreadThatEndsSlowlyHoldsUpNobody) {
  Hooks hooks;
  const auto machine = BeginHooked(hooks);
  Event closes, may_close;
  std::atomic<bool> gave_up{false};
  hooks.closes = [&] {
    closes.Notify();
    gave_up = !may_close.WaitFor(kWaitLimit);
  };
  std::thread remover([&] { EXPECT_TRUE(machine->RemoveIoThread("b").ok()); });
  closes.Wait();
  (void)machine->Statistics();
  (void)machine->MoveQueue("disk0", 0, "a", kPatience);
  machine->BeginPause([](const absl::Status&) {});
  machine->Resume();
  may_close.Notify();
  remover.join();
  EXPECT_FALSE(gave_up);
}

// A move that fails ends on a thread that may be removed the moment that nobody has it any more.
// Who reads statistics keeps it from nothing.
TEST_F(MachineCallsTest, AThreadIsRemovedRightBehindAMoveThatFailed) {
  Hooks hooks;
  MachineConfig config = TwoThreads("");
  config.disks = {{.backend = HookedConfig{&hooks}}};
  const auto machine = Make(config);
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) (void)machine->Statistics();
  });
  hooks.refuses = true;
  for (int round = 0; round < 100; ++round) {
    const std::string name = *machine->AddIoThread({});
    std::thread mover([&] { (void)machine->MoveQueue("disk0", 0, name); });
    while (absl::IsFailedPrecondition(machine->RemoveIoThread(name))) {
    }
    mover.join();
    const std::string unused = *machine->AddIoThread({});
    EXPECT_EQ(machine->RemoveIoThread(unused), absl::OkStatus());
  }
  over = true;
  reader.join();
}

TEST_F(MachineCallsTest, WhoIsToldMayStopAMachineThatGoes) {
  auto machine = Make(Config(""));
  Machine* const raw = machine.get();
  machine->BeginPause([raw](const absl::Status&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // put off, as any thread may be
    raw->Stop();
  });
  machine.reset();
}

// What a callback owns may call back when it goes.
TEST_F(MachineCallsTest, WhatACallbackOwnsGoesWithoutLocks) {
  const auto machine = Begin(Config("rw=randread qd=4 runtime=60s wait=irq"));
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> told{0};
    for (int i = 0; i < 20; ++i) {
      const std::shared_ptr<Machine> owned(machine.get(), [](Machine* each) { each->Resume(); });
      machine->BeginPause([&told, owned](const absl::Status&) { ++told; });
    }
    ASSERT_TRUE(testing::SpinUntil([&] { return told == 20; }));
    machine->Resume();
  }
}

// ---- Traces ----

// The records of a device, by queue.
std::vector<size_t> Records(Machine& machine, const std::string& device) {
  std::vector<size_t> records;
  const absl::StatusOr<std::vector<QueueLatencies>> latencies = machine.Latencies();
  EXPECT_TRUE(latencies.ok()) << latencies.status();
  for (const QueueLatencies& queue : *latencies) {
    if (queue.device == device) records.push_back(queue.records.size());
  }
  return records;
}

uint64_t Traced(Machine& machine) {
  uint64_t count = 0;
  const MachineStatistics statistics = machine.Statistics();
  for (const LatencyHistogram& each : statistics.disks[0].queues[0].latencies) {
    count += each.count();
  }
  return count;
}

TEST_F(MachineCallsTest, ATraceIsSwitchedInTheMiddleOfIo) {
  const auto machine = Begin(WithZeroes());
  ExpectProgress(*machine);
  EXPECT_TRUE(machine->Latencies()->empty());
  EXPECT_TRUE(machine->Statistics().disks[0].queues[0].latencies.empty());
  ASSERT_EQ(machine->SetTrace("disk0", true), absl::OkStatus());
  ASSERT_TRUE(testing::SpinUntil([&] { return Traced(*machine) > 100; }));
  const std::vector<size_t> records = Records(*machine, "disk0");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_GT(records[0], 100u);
  ASSERT_EQ(machine->SetTrace("disk0", true), absl::OkStatus());
  EXPECT_GE(Records(*machine, "disk0")[0], records[0]) << "it was on already";
  ASSERT_EQ(machine->SetTrace("disk0", false), absl::OkStatus());
  EXPECT_TRUE(machine->Latencies()->empty());
  const uint64_t traced = Traced(*machine);
  EXPECT_GE(traced, records[0]) << "what was counted stays";
  ExpectProgress(*machine);
  EXPECT_EQ(Traced(*machine), traced);
  EXPECT_EQ(machine->SetTrace("zeroes", true), absl::OkStatus());
  EXPECT_EQ(Records(*machine, "zeroes").size(), 1u);
  EXPECT_TRUE(absl::IsNotFound(machine->SetTrace("disk1", true)));
  EXPECT_TRUE(absl::IsNotFound(machine->SetTrace("", true)));
}

TEST_F(MachineCallsTest, ATraceStaysOnWhereItsDeviceIsMadeAnew) {
  MachineConfig config = WithZeroes();
  config.disks[0].trace_latency = true;
  const auto machine = Begin(config);
  ASSERT_EQ(machine->SetTrace("disk0", false), absl::OkStatus());
  ASSERT_EQ(machine->SetTrace("zeroes", true), absl::OkStatus());
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(machine->internals().RestoreDevices(*machine->internals().SaveDevices()),
            absl::OkStatus());
  EXPECT_TRUE(Records(*machine, "disk0").empty());
  EXPECT_EQ(Records(*machine, "zeroes"), std::vector<size_t>{0});
  ASSERT_EQ(machine->SetTrace("disk0", true), absl::OkStatus()) << "while it is paused";
  machine->Resume();
  EXPECT_TRUE(testing::SpinUntil([&] { return Traced(*machine) > 0; }));
}

TEST_F(MachineCallsTest, WhoeverSwitchesATraceMayGiveUp) {
  const auto machine = Begin(WithZeroes());
  ExpectProgress(*machine);
  BusyThread busy(ThreadOf(*machine, "a"));
  ExpectGivenUp(machine->SetTrace("disk0", true, kPatience));
  ExpectGivenUp(machine->SetTrace("disk0", false, kPatience));
  ExpectGivenUp(machine->Latencies("disk0", kPatience).status());
  ExpectGivenUp(machine->MoveQueue("disk0", 0, "b", kPatience));
  busy.ComeBack();
  EXPECT_TRUE(testing::SpinUntil([&] { return Traced(*machine) > 0; })) << "the first has come";
}

// ThreadSanitizer watches. The guest waits for interrupts, some of which are held: one that is lost
// would hold it up for ever.
TEST_F(MachineCallsTest, TracesAreSwitchedWhileQueuesMoveAndDevicesAreMadeAnew) {
  MachineConfig config =
      TwoThreads("rw=randrw verify=1 size=1M qd=1,16 runtime=500ms wait=irq queues=2");
  config.cpus = 2;
  config.disks[0].queues = 2;
  const auto machine = Begin(config);
  std::atomic<int> switches{0};
  std::atomic<bool> enough{false};
  const auto toggle = [&](uint32_t seed) {
    std::mt19937 random(seed);
    while (!enough) {
      EXPECT_EQ(machine->SetTrace("disk0", random() % 2 == 0), absl::OkStatus());
      EXPECT_TRUE(random() % 4 != 0 || machine->Latencies().ok());
      ++switches;
    }
  };
  std::thread first(toggle, 1), second(toggle, 2);
  std::thread reader([&] {
    while (!enough) Traced(*machine);
  });
  constexpr PollKind kKinds[] = {PollKind::kCost, PollKind::kAlways, PollKind::kFixed,
                                 PollKind::kNever};
  std::mt19937 random(3);
  for (int round = 0; (round < 25 || switches < 10) && !IsOver(*machine); ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others have their turn, too
    const auto queue = static_cast<uint16_t>(random() % 2);
    EXPECT_TRUE(machine->MoveQueue("disk0", queue, random() % 2 == 0 ? "a" : "b").ok());
    const PollConfig poll = {.kind = kKinds[random() % std::size(kKinds)], .max_ns = 10'000};
    EXPECT_TRUE(machine->SetPoll(random() % 2 == 0 ? "a" : "b", poll).ok());
    EXPECT_TRUE(machine->Explain().ok());
    if (random() % 16 != 0 || !machine->Pause().ok()) continue;
    const absl::StatusOr<DevicesState> state = machine->internals().SaveDevices();
    EXPECT_TRUE(!state.ok() || machine->internals().RestoreDevices(*state).ok());
    machine->Resume();
  }
  enough = true;
  for (std::thread* thread : {&first, &second, &reader}) thread->join();
  EndWell(*machine);
  EXPECT_GT(switches.load(), 0);
}

// ---- Metrics ----

TEST_F(MachineCallsTest, MetricsAreOfAMachineThatRuns) {
  MachineConfig config = WithZeroes();
  const std::string hostile = "a\"b\\c\n=\xff";
  std::filesystem::copy_file(image_.path(), hostile);
  const absl::Cleanup remove = [&] { std::filesystem::remove(hostile); };
  config.disks.push_back({.backend = FileConfig{.path = hostile}});
  config.disks.push_back({.backend = NullConfig{.size = kMiB}, .id = "null"});
  const auto machine = Make(config);
  const auto is = [&](const char* state) {
    const testing::ParsedMetrics metrics = testing::ParseMetrics(MetricsText(*machine, "vm"));
    EXPECT_THAT(metrics.problems, ::testing::IsEmpty());
    EXPECT_EQ(metrics.Sum("ringside_disk_info"), 3);
    return metrics.Sum("ringside_machine_state", {{"state", state}}) == 1;
  };
  EXPECT_TRUE(is("created"));
  ASSERT_EQ(machine->Start(), absl::OkStatus());
  ASSERT_EQ(machine->SetTrace("disk0", true), absl::OkStatus());
  ASSERT_EQ(machine->SetTrace("zeroes", true), absl::OkStatus());
  ASSERT_TRUE(testing::SpinUntil([&] { return Traced(*machine) > 100; }));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(is("running"));
  ASSERT_EQ(machine->Pause(), absl::OkStatus());
  EXPECT_TRUE(is("paused"));
  machine->Stop();
  machine->Wait();
  EXPECT_TRUE(is("ended"));
  const testing::ParsedMetrics metrics = testing::ParseMetrics(MetricsText(*machine));
  EXPECT_EQ(metrics.Sum("ringside_request_duration_seconds_count", {{"device", "disk0"}}),
            static_cast<double>(Traced(*machine)));
}

}  // namespace
}  // namespace ringside
