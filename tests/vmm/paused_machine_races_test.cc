// What embedders may do at the same time as a machine is paused, is made anew or ends.
#include <atomic>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "base/clock.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "tests/support/devices/random_state.h"
#include "tests/support/devices/zero_disk.h"
#include "tests/support/races.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

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

constexpr uint64_t kMiB = 1 << 20;

// Ends the process: what hangs cannot be ended otherwise.
void MustHappen(const Event& event, absl::Duration limit, const char* what) {
  if (event.WaitFor(limit)) return;
  std::fprintf(stderr, "never happened: %s\n", what);
  std::_Exit(1);
}

// A null disk whose channels tell when they are opened and closed.
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
    if (hooks_.closes) hooks_.closes();
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
    RINGSIDE_ASSIGN_OR_RETURN(auto below, NullDevice::Create({.size = 16 * kMiB}));
    return std::make_unique<HookedDevice>(std::move(below), *hooks);
  }
};

class PausedMachineRaces : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const std::string& command_line) const {
    MachineConfig config = GuestConfig(console_, command_line);
    config.io_threads = {{.name = "a"}, {.name = "b"}};
    return config;
  }
  MachineConfig WithDisk(const std::string& command_line) const {
    MachineConfig config = Config(command_line);
    config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
    return config;
  }
  static DeviceConfig Zeroes(std::function<void(const DeviceContext&)> made) {
    return {.name = "zeroes", .create = [made](const DeviceContext& context) {
              IoThread* const b = context.io_threads.Find("b")->get();
              made(context);
              return std::make_unique<testing::ZeroDisk>(context.memory, std::vector{b},
                                                         QueuedDevice::QueueConfig{});
            }};
  }
  std::unique_ptr<Machine> Make(const MachineConfig& config) {
    auto machine = Machine::Create(config);
    EXPECT_TRUE(machine.ok()) << machine.status();
    return *std::move(machine);
  }
  std::unique_ptr<Machine> Begin(const MachineConfig& config) {
    auto machine = Make(config);
    EXPECT_TRUE(machine->Start().ok());
    return machine;
  }
  static uint64_t Requests(Machine& machine) {
    uint64_t sum = 0;
    const MachineStatistics statistics = machine.Statistics();
    for (const auto& disk : statistics.disks) {
      for (const QueueStatistics& queue : disk.queues) sum += queue.requests();
    }
    for (const auto& device : statistics.devices) {
      for (const QueueStatistics& queue : device.queues) sum += queue.requests();
    }
    return sum;
  }
  static void ExpectProgress(Machine& machine) {
    const uint64_t before = Requests(machine);
    EXPECT_TRUE(testing::SpinUntil([&] { return Requests(machine) > before + 10; }));
  }

  TestConsole console_;
};

// The move is a task of the device on a thread that has not come to it yet.
TEST_F(PausedMachineRaces, AMoveThatWasGivenUpDoesNotOutliveItsDevice) {
  MachineConfig config = WithDisk("");
  IoThread* b = nullptr;
  config.devices = {Zeroes([&](const DeviceContext& context) {
    b = context.io_threads.Find("b")->get();
  })};
  auto machine = Make(config);
  Event come_back;
  TaskOf busy([&] { come_back.Wait(); });
  b->Post(busy);
  EXPECT_TRUE(absl::IsDeadlineExceeded(
      machine->MoveQueue("disk0", 0, "b", absl::Milliseconds(10))));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    come_back.Notify();
  });
  machine.reset();
  later.join();
}

// While the devices are made: the thread that `create` has found is nobody's yet.
TEST_F(PausedMachineRaces, AThreadThatNewDevicesGetIsNotRemoved) {
  MachineConfig config = Config("rw=randread qd=4 runtime=10s wait=irq");
  Machine* restored = nullptr;
  config.devices = {Zeroes([&](const DeviceContext&) {
    if (restored == nullptr) return;
    std::thread other([&] { (void)restored->RemoveIoThread("b"); });
    other.join();
  })};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->MoveQueue("zeroes", 0, "a").ok());
  ASSERT_TRUE(machine->Pause().ok());
  const auto state = machine->SaveDevices();
  restored = machine.get();
  ASSERT_TRUE(machine->RestoreDevices(*state).ok());
  machine->Resume();
  ExpectProgress(*machine);
}

// Once the new devices are told of to others, the old ones are still being ended.
TEST_F(PausedMachineRaces, AThreadThatOldDevicesHaveIsNotRemoved) {
  Hooks hooks;
  MachineConfig config = Config("rw=randread qd=4 runtime=10s wait=irq");
  config.disks = {{.backend = HookedConfig{&hooks}}};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "b").ok());
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
  ASSERT_TRUE(machine->Pause().ok());
  const auto state = machine->SaveDevices();
  hooks.closes = [&] {
    hooks.closes = nullptr;
    std::thread other([&] { (void)machine->RemoveIoThread("b"); });
    other.join();
  };
  ASSERT_TRUE(machine->RestoreDevices(*state).ok());
  machine->Resume();
  ExpectProgress(*machine);
}

// The same, by chance: nobody holds anything up.
TEST_F(PausedMachineRaces, ThreadsMayBeRemovedWhileDevicesAreMadeAnew) {
  const auto machine = Begin(WithDisk("rw=randread qd=4 runtime=60s wait=irq"));
  ExpectProgress(*machine);
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::string name = *machine->AddIoThread({});
    ASSERT_TRUE(machine->MoveQueue("disk0", 0, name).ok());
    ASSERT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
    ASSERT_TRUE(machine->Pause().ok());
    const auto state = machine->SaveDevices();
    std::thread other([&] {
      testing::Delay(static_cast<int>(random() % 4'000'000));
      while (absl::IsFailedPrecondition(machine->RemoveIoThread(name))) {
      }
    });
    EXPECT_TRUE(machine->RestoreDevices(*state).ok());
    machine->Resume();
    other.join();
  }
}

TEST_F(PausedMachineRaces, QueuesOfAllDevicesStayOnTheirThreads) {
  MachineConfig config = Config("rw=randread qd=4 runtime=10s wait=irq");
  config.devices = {Zeroes([](const DeviceContext&) {})};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->MoveQueue("zeroes", 0, "a").ok());
  ASSERT_TRUE(machine->MoveQueue("rng", 0, "a").ok());
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(machine->RestoreDevices(*machine->SaveDevices()), absl::OkStatus());
  for (const auto& device : machine->Statistics().devices) {
    EXPECT_EQ(device.queues[0].io_thread, "a") << device.name;
  }
}

// As the header says of all errors but two.
TEST_F(PausedMachineRaces, AMachineWhoseDevicesCannotBeHadIsOver) {
  MachineConfig config = Config("rw=randread qd=4 runtime=10s wait=irq");
  int made = 0;
  config.devices = {{.name = "zeroes",
                     .create = [&](const DeviceContext& context)
                         -> absl::StatusOr<std::unique_ptr<VirtioDevice>> {
                       if (++made > 1) return absl::ResourceExhaustedError("none is left");
                       return std::make_unique<testing::ZeroDisk>(
                           context.memory, std::vector{context.io_threads.Find("b")->get()},
                           QueuedDevice::QueueConfig{});
                     }}};
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->Pause().ok());
  EXPECT_TRUE(absl::IsResourceExhausted(machine->RestoreDevices(*machine->SaveDevices())));
  EXPECT_TRUE(testing::WaitForFd(machine->end_event().fd(), POLLIN, absl::Seconds(1)))
      << "who waits for its end now waits for ever";
}

TEST_F(PausedMachineRaces, AQueueIsNotMovedToAThreadThatWasNotStarted) {
  MachineConfig config = GuestConfig(console_, "");
  const auto machine = Make(config);
  EXPECT_FALSE(machine->MoveQueue("rng", 0, "io0", absl::Seconds(1)).ok());
}

// Of two who wait for a third one's move one gives up just when it is over.
TEST_F(PausedMachineRaces, WhoGivesUpAMoveLeavesTheTurnToTheNext) {
  MachineConfig config = WithDisk("");
  IoThread* b = nullptr;
  config.devices = {Zeroes([&](const DeviceContext& context) {
    b = context.io_threads.Find("b")->get();
  })};
  const auto machine = Make(config);
  std::mt19937 random(1);
  const absl::Time end = absl::Now() + absl::Seconds(60);
  for (int round = 0; absl::Now() < end; ++round) {
    std::atomic<bool> come_back{false};
    TaskOf busy([&] {
      while (!come_back) {
      }
    });
    ASSERT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
    b->Post(busy);
    std::thread first([&] { (void)machine->MoveQueue("disk0", 0, "b"); });
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    const int64_t begin = MonotonicNs();
    std::thread second(
        [&] { (void)machine->MoveQueue("disk0", 0, "b", absl::Milliseconds(2)); });
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    Event done;
    std::thread third([&] {
      (void)machine->MoveQueue("disk0", 0, "b");
      done.Notify();
    });
    const int64_t at = begin + 1'850'000 + static_cast<int64_t>(random() % 400'000);
    while (MonotonicNs() < at) {
    }
    come_back = true;
    first.join();
    second.join();
    const bool went_on = done.WaitFor(absl::Seconds(3));
    EXPECT_TRUE(went_on) << "in round " << round << " nobody moves the queue, and one waits";
    if (!went_on) (void)machine->MoveQueue("disk0", 0, "b");  // whose end wakes it
    third.join();
    if (!went_on) return;
  }
}

// As the header allows what is called.
TEST_F(PausedMachineRaces, WhoIsToldMayStopAMachineThatGoes) {
  auto machine = Make(Config(""));
  Machine* const raw = machine.get();
  machine->BeginPause([raw](const absl::Status&) {
    // A thread may be put off for so long at any time.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    raw->Stop();
  });
  machine.reset();
}

// What a callback owns may call back when it goes.
TEST_F(PausedMachineRaces, WhatACallbackOwnsGoesWithoutLocks) {
  class Resumes {
   public:
    explicit Resumes(Machine& machine) : machine_(machine) {}
    ~Resumes() { machine_.Resume(); }
    Resumes(const Resumes&) = delete;
    Resumes& operator=(const Resumes&) = delete;

   private:
    Machine& machine_;
  };
  const auto machine = Begin(WithDisk("rw=randread qd=4 runtime=60s wait=irq"));
  ExpectProgress(*machine);
  Event done;
  std::thread caller([&] {
    for (int round = 0; round < 300; ++round) {
      std::atomic<int> told{0};
      for (int i = 0; i < 20; ++i) {
        const auto owned = std::make_shared<Resumes>(*machine);
        machine->BeginPause([&told, owned](const absl::Status&) { ++told; });
      }
      if (!testing::SpinUntil([&] { return told == 20; })) return;
      machine->Resume();
    }
    done.Notify();
  });
  MustHappen(done, absl::Seconds(60), "all were told");
  caller.join();
}

// A device of the embedder's own that takes its time to come to rest.
class SlowDisk final : public VirtioDevice {
 public:
  SlowDisk(BlockDevice& disk, const DeviceContext& context)
      : blk_(disk, context.memory, {context.io_threads.Find("a")->get()}, {.serial = "own"}) {}
  uint16_t id() const override { return blk_.id(); }
  uint64_t features() const override { return blk_.features(); }
  uint16_t queue_count() const override { return blk_.queue_count(); }
  uint32_t pci_class() const override { return blk_.pci_class(); }
  uint16_t max_queue_size(uint16_t queue) const override { return blk_.max_queue_size(queue); }
  void ReadConfig(uint64_t offset, std::span<std::byte> data) override {
    blk_.ReadConfig(offset, data);
  }
  void WriteConfig(uint64_t offset, std::span<const std::byte> data, uint64_t features) override {
    blk_.WriteConfig(offset, data, features);
  }
  void Activate(uint64_t features, std::span<const QueueSetup> queues,
                VirtioEvents& events) override {
    blk_.Activate(features, queues, events);
  }
  void Reset(Task& done) override { blk_.Reset(done); }
  void Pause(Task& done) override {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    blk_.Pause(done);
  }
  void Resume() override { blk_.Resume(); }
  uint16_t Position(uint16_t queue) const override { return blk_.Position(queue); }

 private:
  VirtioBlk blk_;
};

TEST_F(PausedMachineRaces, ASlowDeviceHoldsUpNobodyWhoDoesNotWait) {
  const auto disk = *NullDevice::Create({.size = 8 * kMiB});
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.devices = {{.name = "own", .create = [&](const DeviceContext& context) {
                       return std::make_unique<SlowDisk>(*disk, context);
                     }}};
  const auto machine = Begin(config);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  machine->BeginPause([](const absl::Status&) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  absl::Time begin = absl::Now();
  EXPECT_FALSE(machine->Pause(absl::Milliseconds(10)).ok());
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(500)) << "Pause has its patience";
  begin = absl::Now();
  machine->BeginPause([](const absl::Status&) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  machine->Resume();
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(600)) << "Resume does not wait";
}

// As of a controller that does not answer while its queues are deleted.
TEST_F(PausedMachineRaces, AMachineEndsThoughItsOldDevicesDoNot) {
  Hooks hooks;
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.disks = {{.backend = HookedConfig{&hooks}}};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  const auto state = machine->SaveDevices();
  Event closes;
  hooks.closes = [&] {
    hooks.closes = nullptr;
    closes.Notify();
    (void)hooks.ends_soon.WaitFor(absl::Seconds(10));
  };
  std::thread restorer([&] { (void)machine->RestoreDevices(*state); });
  closes.Wait();
  const absl::Time begin = absl::Now();
  machine->Stop();
  machine->Wait();
  EXPECT_LT(absl::Now() - begin, absl::Seconds(3)) << "the disk is told soon";
  restorer.join();
}


// What a device has on a thread that is removed may take long to be let go of, as the queue of a
// controller that does not answer.
TEST_F(PausedMachineRaces, AThreadThatEndsSlowlyHoldsUpNobody) {
  Hooks hooks;
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.disks = {{.backend = HookedConfig{&hooks}}};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "b").ok());
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
  Event closes;
  hooks.closes = [&] {
    hooks.closes = nullptr;
    closes.Notify();
    std::this_thread::sleep_for(std::chrono::seconds(3));
  };
  std::thread remover([&] { EXPECT_TRUE(machine->RemoveIoThread("b").ok()); });
  closes.Wait();
  absl::Time begin = absl::Now();
  (void)machine->Statistics();
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(500)) << "Statistics waits for nobody";
  remover.join();
}

TEST_F(PausedMachineRaces, AMoveKeepsItsPatienceWhileAThreadEndsSlowly) {
  Hooks hooks;
  MachineConfig config = Config("rw=randread qd=4 runtime=60s wait=irq");
  config.disks = {{.backend = HookedConfig{&hooks}}};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "b").ok());
  ASSERT_TRUE(machine->MoveQueue("disk0", 0, "a").ok());
  Event closes;
  hooks.closes = [&] {
    hooks.closes = nullptr;
    closes.Notify();
    std::this_thread::sleep_for(std::chrono::seconds(3));
  };
  std::thread remover([&] { EXPECT_TRUE(machine->RemoveIoThread("b").ok()); });
  closes.Wait();
  const absl::Time begin = absl::Now();
  (void)machine->MoveQueue("disk0", 0, "a", absl::Milliseconds(10));
  EXPECT_LT(absl::Now() - begin, absl::Milliseconds(500)) << "it had patience for less";
  remover.join();
}

// A move that fails ends on the thread that is removed the moment nobody has it any more.
TEST_F(PausedMachineRaces, AThreadIsRemovedRightBehindAMoveThatFailed) {
  Hooks hooks;
  MachineConfig config = Config("");
  config.disks = {{.backend = HookedConfig{&hooks}}};
  const auto machine = Make(config);
  std::atomic<bool> over{false};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!over) (void)machine->Statistics();
    });
  }
  std::atomic<int> rounds{0};
  Event done;
  std::thread rounder([&] {
    const absl::Time end = absl::Now() + absl::Seconds(40);
    while (absl::Now() < end) {
      const std::string name = *machine->AddIoThread({});
      hooks.refuses = true;
      std::thread mover([&] { (void)machine->MoveQueue("disk0", 0, name); });
      while (absl::IsFailedPrecondition(machine->RemoveIoThread(name))) {
      }
      mover.join();
      ++rounds;
    }
    done.Notify();
  });
  if (!done.WaitFor(absl::Seconds(60))) {
    std::fprintf(stderr, "stuck in round %d\n", rounds.load());
    std::_Exit(1);
  }
  over = true;
  rounder.join();
  for (std::thread& reader : readers) reader.join();
  std::printf("%d rounds\n", rounds.load());
}

// A thread that serves nothing can be removed, whoever reads the statistics at the same time.
TEST_F(PausedMachineRaces, WhoReadsStatisticsKeepsNoThread) {
  const auto machine = Make(WithDisk(""));
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) (void)machine->Statistics();
  });
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    const std::string name = *machine->AddIoThread({});
    if (const absl::Status status = machine->RemoveIoThread(name); !status.ok()) {
      ++refused;
      (void)machine->RemoveIoThread(name);
    }
  }
  over = true;
  reader.join();
  EXPECT_EQ(refused, 0);
}

// A hostile state is not only taken, but run with. What is saved from it is always taken again.
TEST_F(PausedMachineRaces, AnyStateMayBeRunWith) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    const TestConsole console;
    MachineConfig config =
        GuestConfig(console, seed % 2 == 0 ? "rw=randrw size=1M qd=16 runtime=20s wait=irq"
                                           : "hostile=all");
    config.cpus = 1 + seed % 2;
    config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
    const auto machine = Begin(config);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    testing::RandomState random(seed);
    int taken = 0;
    for (int round = 0; round < 300; ++round) {
      const absl::Status paused = machine->Pause(absl::Seconds(20));
      if (absl::IsFailedPrecondition(paused)) break;  // the guest has given up
      ASSERT_TRUE(paused.ok()) << paused;
      const absl::StatusOr<DevicesState> here = machine->SaveDevices();
      ASSERT_TRUE(here.ok()) << here.status();
      if (round % 10 == 9) {
        ASSERT_EQ(machine->RestoreDevices(*here), absl::OkStatus());
        ASSERT_EQ(*machine->SaveDevices(), *here);
      }
      for (int tries = 0; tries < 20; ++tries) {
        DevicesState state = *here;
        random.Mutate(state);
        if (machine->RestoreDevices(state).ok()) {
          ++taken;
          break;
        }
      }
      machine->Resume();
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    std::printf("seed %u: %d states taken\n", seed, taken);
    machine->Stop();
    machine->Wait();
  }
}

TEST_F(PausedMachineRaces, ManyRestoresLeaveNothingBehind) {
  const auto machine = Begin(WithDisk("rw=randread qd=4 runtime=100s wait=irq"));
  ExpectProgress(*machine);
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  ptrdiff_t before = 0;
  for (int round = 0; round < 3000; ++round) {
    ASSERT_TRUE(machine->Pause().ok());
    ASSERT_EQ(machine->RestoreDevices(*machine->SaveDevices()), absl::OkStatus());
    machine->Resume();
    if (round == 10) before = descriptors();
  }
  EXPECT_EQ(descriptors(), before);
  ExpectProgress(*machine);
}

}  // namespace
}  // namespace ringside
