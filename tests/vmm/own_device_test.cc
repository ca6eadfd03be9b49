// Devices that an embedder brings along: on the bus behind the disks, as good as the machine's own.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/status.h"
#include "tests/support/devices/zero_disk.h"
#include "tests/support/races.h"
#include "tests/support/recording_log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/pausing_machine.h"

namespace ringside {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A disk of zeroes that answers later, from a thread of its own: what a device has that waits for
// something else.
class LateDisk final : public Device {
 public:
  struct Counts {
    std::atomic<int> popped{0}, pushed{0}, recalls{0}, alive{0};
  };

  explicit LateDisk(Counts& counts) : counts_(counts), thread_([this] { Work(); }) {
    ++counts_.alive;
  }
  ~LateDisk() override {
    {
      const MutexLock lock(mutex_);
      over_ = true;
      changed_.notify_one();
    }
    thread_.join();
    --counts_.alive;
  }

  uint16_t id() const override { return 2; }
  uint32_t pci_class() const override { return 0x010000; }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    zeroes_.ReadConfig(offset, data);
  }
  void Run(DeviceQueue& queue) override {
    for (Request request; queue.Pop(request);) {
      ++counts_.popped;
      const MutexLock lock(mutex_);
      waiting_.push_back({&queue, std::move(request)});
      changed_.notify_one();
    }
  }
  void Recall(DeviceQueue&) override { ++counts_.recalls; }

 private:
  struct Waiting {
    DeviceQueue* queue;
    Request request;
  };

  void Work() {
    while (true) {
      auto next = std::make_shared<Waiting>();
      {
        const MutexLock lock(mutex_);
        while (waiting_.empty() && !over_) changed_.wait(mutex_);
        if (waiting_.empty()) return;
        *next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      testing::Delay(20'000);
      next->queue->Post([this, next] {
        ++counts_.pushed;
        testing::ZeroDisk::Answer(*next->queue, next->request);
      });
    }
  }

  Counts& counts_;
  testing::ZeroDisk zeroes_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

class OwnDeviceMachineTest : public testing::PausingMachine {
 protected:
  MachineConfig WithDevices(const std::string& command_line, std::vector<DeviceConfig> devices) {
    MachineConfig config = GuestConfig(console_, command_line);
    config.devices = std::move(devices);
    return config;
  }
  static DeviceConfig Zeroes(const std::string& id = "zeroes") {
    DeviceConfig config = PausingMachine::Zeroes("io0");
    config.id = id;
    return config;
  }
  // On two I/O threads, on the first at first.
  MachineConfig WithLateDisk(const std::string& command_line) {
    MachineConfig config = WithDevices(
        command_line,
        {{.id = "late", .create = [this] { return std::make_unique<LateDisk>(late_); }}});
    config.io_threads = {{.id = "a"}, {.id = "b"}};
    return config;
  }
  std::unique_ptr<Machine> BeginLate(const std::string& command_line) {
    auto machine = Begin(WithLateDisk(command_line));
    ExpectProgress(*machine);
    return machine;
  }
  // Whatever was popped has been answered before the device was gone.
  void ExpectAllAnswered() {
    EXPECT_EQ(late_.alive, 0);
    EXPECT_GT(late_.popped, 0);
    EXPECT_EQ(late_.pushed, late_.popped);
  }

  LateDisk::Counts late_;
};

TEST_F(OwnDeviceMachineTest, TheGuestUsesIt) {
  const GuestRun run =
      RunGuest(WithDevices("rw=randread qd=4 runtime=200ms wait=irq", {Zeroes()}), console_);
  EXPECT_EQ(run.end.kind, EndKind::kPowerOff) << run.end.detail;
  EXPECT_THAT(run.output, ContainsRegex("\"ios\":[1-9].*\"errors\":0,"));
  EXPECT_THAT(run.output, Not(HasSubstr("FAIL")));
}

TEST_F(OwnDeviceMachineTest, ItStandsBehindTheDisks) {
  MachineConfig config = WithDevices("disk=1", {Zeroes("a"), Zeroes("b")});
  config.disks = {{.backend = NullConfig{.size = 32 * kMiB}}};
  const GuestRun run = RunGuest(config, console_);
  EXPECT_THAT(run.output, ContainsRegex("disk 0 sectors=65536 .*serial=disk0\n"));
  EXPECT_THAT(run.output, ContainsRegex("disk 1 sectors=16384 "));
  EXPECT_THAT(run.output, ContainsRegex("disk 2 sectors=16384 "));
}

TEST_F(OwnDeviceMachineTest, WhatItCannotBeIsTheMachinesError) {
  MachineConfig config = WithDevices("", {Zeroes("a"), Zeroes("b")});
  config.devices[1].create = [] { return BadInput("no such thing"); };
  EXPECT_EQ(Machine::Create(config).status(), absl::InvalidArgumentError("no such thing"));
  config.devices[1].create = [] { return absl::StatusOr<std::unique_ptr<Device>>(nullptr); };
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("'b'", "is null"));
  config.devices[1].create = nullptr;
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("'b'", "DeviceConfig::create"));
  config.devices[1] = {.id = "own", .io_threads = {"io0", "oi1"}, .create = [] {
                         return std::make_unique<testing::ZeroDisk>();
                       }};
  EXPECT_TRUE(absl::IsNotFound(Machine::Create(config).status()));
  EXPECT_THAT(Message(Machine::Create(config).status()), HasSubstr("device 'own': "));
}

TEST_F(OwnDeviceMachineTest, TheBusHasRoomForSoMany) {
  MachineConfig config = WithDevices("", {});
  for (uint32_t i = 0; i < PciHost::kDevices - 2; ++i) {
    config.devices.push_back(Zeroes(absl::StrFormat("own%d", i)));
  }
  EXPECT_TRUE(Machine::Create(config).ok());
  config.devices.push_back(Zeroes());
  EXPECT_THAT(Message(Machine::Create(config).status()), HasSubstr("room for 31 PCI devices"));
}

// All that disks have is its too.
TEST_F(OwnDeviceMachineTest, ItsQueuesMoveAndAreCountedAndTraced) {
  MachineConfig config =
      WithDevices("rw=randread qd=4 runtime=500ms wait=irq", {PausingMachine::Zeroes("b")});
  config.io_threads = {{.id = "a"}, {.id = "b"}};
  config.devices[0].trace_latency = true;
  const auto machine = Begin(config);
  for (const std::string to : {"a", "b", "a"}) {
    ASSERT_TRUE(machine->MoveQueue("zeroes", 0, to).ok());
    ExpectProgress(*machine);
    EXPECT_EQ(machine->Statistics().devices[0].queues[0].io_thread, to);
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(machine->RemoveIoThread("a")));
  EXPECT_TRUE(machine->RemoveIoThread("b").ok());
  EXPECT_TRUE(absl::IsNotFound(machine->MoveQueue("zeroes", 0, "b")));
  EXPECT_EQ(*machine->AddIoThread({}), "io0");
  EXPECT_TRUE(machine->MoveQueue("zeroes", 0, "io0").ok());
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), ContainsRegex("\"ios\":[1-9].*\"errors\":0,"));
  const std::vector<QueueLatencies> latencies = *machine->Latencies();
  ASSERT_EQ(latencies.size(), 1u);
  EXPECT_EQ(latencies[0].device, "zeroes");
  ASSERT_GT(latencies[0].records.size(), 30u);
  EXPECT_EQ(latencies[0].records[5].kind, RequestKind::kRead);
}

TEST_F(OwnDeviceMachineTest, OneThatAnswersLaterMoves) {
  const auto machine = BeginLate("rw=randread qd=8 runtime=60s wait=irq");
  for (int round = 0; round < 10; ++round) {
    for (const std::string to : {"b", "a"}) {
      ASSERT_TRUE(machine->MoveQueue("late", 0, to).ok());
      ExpectProgress(*machine);
    }
  }
  machine->Stop();
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  EXPECT_EQ(machine->Statistics().devices[0].queues[0].errors, 0u);
  EXPECT_GE(late_.recalls, 20);
}

TEST_F(OwnDeviceMachineTest, OneThatAnswersLaterRestsAndIsMadeAnew) {
  auto machine = BeginLate("rw=randread qd=8 runtime=60s wait=irq");
  for (int round = 0; round < 20; ++round) {
    ASSERT_TRUE(machine->Pause().ok());
    EXPECT_EQ(late_.pushed, late_.popped) << "nothing is in flight";
    if (round % 2 == 0) {
      ASSERT_EQ(machine->internals().RestoreDevices(*machine->internals().SaveDevices()),
                absl::OkStatus());
    }
    machine->Resume();
    ExpectProgress(*machine);
  }
  machine->Stop();
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  EXPECT_EQ(machine->Statistics().devices[0].queues[0].errors, 0u);
  machine.reset();
  ExpectAllAnswered();
}

TEST_F(OwnDeviceMachineTest, OneThatAnswersLaterIsWaitedForAtTheEnd) {
  for (int round = 0; round < 10; ++round) {
    auto machine = BeginLate("rw=randread qd=32 runtime=60s");
    testing::Delay(round * 50'000);
    machine->Stop();
    machine->Wait();
    EXPECT_EQ(late_.pushed, late_.popped);
    machine.reset();
    ExpectAllAnswered();
  }
}

// Its guest resets it in the middle of requests, and sets it up again.
TEST_F(OwnDeviceMachineTest, OneThatAnswersLaterIsReset) {
  auto machine = Begin(WithLateDisk("disk=1"));
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  machine.reset();
  ExpectAllAnswered();
  EXPECT_GT(late_.recalls, 0);
}

}  // namespace
}  // namespace ringside
