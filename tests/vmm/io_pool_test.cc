// Machines that share I/O threads: each has what it has alone, none sees the others, and those that
// come and go leave the threads to those that stay.
#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "ringside/io_pool.h"
#include "tests/support/descriptors.h"
#include "tests/support/own_threads.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/recording_events.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::SpinUntil;
using testing::TempFile;

constexpr uint64_t kMiB = 1 << 20;

// A thread gives itself its name, and is there for a moment after it was joined.
bool HasThreads(const std::string& name, size_t count) {
  return SpinUntil([&] { return testing::ThreadsCalled(name).size() == count; });
}

std::shared_ptr<IoPool> MakePool(std::vector<IoThreadConfig> io_threads) {
#ifdef RINGSIDE_TSAN
  // It does not see liburing's munmap, and takes a ring for one that was at its address before.
  for (IoThreadConfig& io_thread : io_threads) io_thread.waiter = IoThreadConfig::Waiter::kEpoll;
#endif
  auto pool = IoPool::Create({.io_threads = std::move(io_threads)});
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

class IoPoolTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  // With a console that does not block, and whose output is read at the end.
  struct Tenant {
    testing::Pipe output;
    TempFile image{16 * kMiB, "."};
    std::unique_ptr<Machine> machine;

    std::string Output() {
      std::string text(64 << 10, '\0');
      const ssize_t got = read(output.read_end.get(), text.data(), text.size());
      text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
      return text;
    }
  };
  MachineConfig Config(const std::string& command_line) const {
    MachineConfig config;
    config.kernel = GuestElf();
    config.command_line = command_line;
    config.memory = 64 * kMiB;
    config.io_pool = pool_;
    return config;
  }
  std::unique_ptr<Tenant> Begin(MachineConfig config) {
    auto tenant = std::make_unique<Tenant>();
    config.console.output_fd = tenant->output.write_end.get();
    config.disks = {{.backend = FileConfig{.path = tenant->image.path()}}};
    auto machine = Machine::Create(config);
    EXPECT_TRUE(machine.ok()) << machine.status();
    tenant->machine = *std::move(machine);
    EXPECT_TRUE(tenant->machine->Start().ok());
    return tenant;
  }
  static void EndWell(Tenant& tenant) {
    const MachineEnd& end = tenant.machine->Wait();
    EXPECT_EQ(end.kind, EndKind::kPowerOff) << end.detail;
    EXPECT_THAT(tenant.Output(), HasSubstr("\"errors\":0,\"mismatches\":0"));
  }
  static uint64_t Reads(Machine& machine) { return machine.Statistics().disks[0].queues[0].reads; }

  std::shared_ptr<IoPool> pool_ = MakePool({{.id = "a"}, {.id = "b"}});
};

std::string Verified(const std::string& runtime = "300ms") {
  return "rw=randrw verify=1 size=4M qd=32 runtime=" + runtime + " wait=irq";
}

TEST_F(IoPoolTest, MachinesHaveItsThreadsInTurnAndNoneOfTheirOwn) {
  std::vector<std::unique_ptr<Tenant>> tenants;
  for (int i = 0; i < 4; ++i) tenants.push_back(Begin(Config(Verified("5s"))));
  EXPECT_TRUE(HasThreads("io", 1));
  EXPECT_TRUE(HasThreads("a", 1) && HasThreads("b", 1));
  for (size_t i = 0; i < tenants.size(); ++i) {
    const MachineStatistics statistics = tenants[i]->machine->Statistics();
    EXPECT_EQ(statistics.disks[0].queues[0].io_thread, i % 2 == 0 ? "a" : "b");
  }
  // A pause is one machine's.
  ASSERT_TRUE(tenants[0]->machine->Pause().ok());
  const uint64_t before = Reads(*tenants[2]->machine);
  const uint64_t paused = Reads(*tenants[0]->machine);
  EXPECT_TRUE(SpinUntil([&] { return Reads(*tenants[2]->machine) > before; }));
  EXPECT_EQ(Reads(*tenants[0]->machine), paused);
  tenants[0]->machine->Resume();
  // And so is a queue's thread.
  EXPECT_TRUE(tenants[1]->machine->MoveQueue("disk0", 0, "a").ok());
  for (const auto& tenant : tenants) EndWell(*tenant);
}

TEST_F(IoPoolTest, OthersGoOnWhileMachinesComeAndGo) {
  const auto stays = Begin(Config("rw=randread qd=8 size=4M runtime=60s wait=irq"));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([this, i] {
      for (int round = 0; round < 5; ++round) {
        const auto tenant = Begin(Config("rw=randread qd=32 size=4M runtime=60s wait=irq"));
        if ((round + i) % 2 == 0) {
          EXPECT_TRUE(SpinUntil([&] { return Reads(*tenant->machine) > 0; }));
        }
        if (round % 3 == 1) tenant->machine->BeginPause([](const absl::Status&) {});
        EXPECT_TRUE(tenant->machine->Explain().ok());
      }
    });
  }
  threads.clear();
  const uint64_t before = Reads(*stays->machine);
  EXPECT_TRUE(SpinUntil([&] { return Reads(*stays->machine) > before; }));
  stays->machine->Stop();
  EXPECT_EQ(stays->machine->Wait().kind, EndKind::kStopped);
  for (const IoThreadStatistics& thread : pool_->Statistics()) EXPECT_GT(thread.turns, 0u);
}

// What it has told each machine's listener, on the one thread for that, is that machine's.
TEST_F(IoPoolTest, EventsAreTheMachinesOwn) {
  testing::RecordingEvents ends, crashes;
  MachineConfig config = Config("");
  config.events = &ends;
  const auto first = Begin(config);
  config = Config("end=reset");
  config.events = &crashes;
  const auto second = Begin(config);
  first->machine->Wait();
  second->machine->Wait();
  EXPECT_EQ(ends.events().back().detail, "power-off");
  EXPECT_EQ(crashes.events().back().detail, "reset");
}

// 200 guests that have used their disks, and wait for nothing.
TEST_F(IoPoolTest, IdleMachinesCostNoTurn) {
#ifdef RINGSIDE_TSAN
  constexpr int kMachines = 20;
#else
  constexpr int kMachines = 200;
#endif
  std::vector<std::unique_ptr<Machine>> machines;
  for (int i = 0; i < kMachines; ++i) {
    MachineConfig config = Config("rw=randread qd=1 size=1M runtime=1ms wait=irq end=halt");
    config.memory = 16 * kMiB;
    config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
    auto machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();
    ASSERT_TRUE((*machine)->Start().ok());
    machines.push_back(*std::move(machine));
  }
  for (const auto& machine : machines) {
    ASSERT_TRUE(SpinUntil([&] { return Reads(*machine) > 0; }));
  }
  const auto turns = [this] {
    uint64_t sum = 0;
    for (const IoThreadStatistics& thread : pool_->Statistics()) sum += thread.turns;
    return sum;
  };
  EXPECT_TRUE(SpinUntil([&] {  // once all have come to their halt
    const uint64_t before = turns();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return turns() == before;
  }));
  EXPECT_TRUE(HasThreads("io", 1));
  for (const auto& machine : machines) machine->Stop();
}

TEST_F(IoPoolTest, AConsoleThatMayHangHasAThreadOfItsOwn) {
  const TestConsole file;
  MachineConfig config = Config("");
  config.console = file.config();
  const auto machine = Machine::Create(config);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_TRUE(HasThreads("io", 2));
}

TEST_F(IoPoolTest, WhatIsThePoolsIsNotChangedThroughAMachine) {
  MachineConfig config = Config("end=halt");
  config.disks = {{.backend = NullConfig{.size = kMiB}}};
  const auto machine = *Machine::Create(config);
  for (const absl::Status& status :
       {machine->AddIoThread({.id = "c"}).status(), machine->RemoveIoThread("b"),
        machine->SetPoll("a", {.kind = PollKind::kNever})}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a pool's"));
  }
  EXPECT_TRUE(pool_->SetPoll("a", {.kind = PollKind::kNever}).ok());
  EXPECT_EQ(pool_->Statistics()[0].poll.kind, PollKind::kNever);
  EXPECT_EQ(pool_->SetPoll("c", {}).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(pool_->Explain().ok());
  config.disks[0].shares = {{.io_thread = "c"}};
  EXPECT_EQ(Machine::Create(config).status().code(), absl::StatusCode::kNotFound);
  config.disks[0].shares.clear();
  config.io_threads = {{}};
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("iothreads: there are 1", "a pool"));
}

TEST_F(IoPoolTest, IsRefusedAsAMachineIs) {
  EXPECT_THAT(IoPool::Create({.io_threads = {{.id = "a"}, {.id = "a"}}}).status(),
              IsBadInput("two I/O threads are called 'a'", "a name of its own"));
  EXPECT_THAT(IoPool::Create({.io_threads = std::vector<IoThreadConfig>(65)}).status(),
              IsBadInput("there are 65", "a pool has at most 64"));
}

// One whose listener never has enough, at whose end the thread goes on.
TEST_F(IoPoolTest, APauseThatIsAskedForAgainAndAgainEndsWithItsMachine) {
  const auto tenant = Begin(Config("end=halt"));
  Machine& machine = *tenant->machine;
  std::atomic<int> told = 0;
  std::function<void(const absl::Status&)> again = [&](const absl::Status&) {
    ++told;
    machine.BeginPause(again);
  };
  machine.BeginPause(again);
  EXPECT_TRUE(SpinUntil([&] { return told > 100; }));
  machine.Stop();
  tenant->machine.reset();
  const int at_end = told;
  EndWell(*Begin(Config(Verified())));
  EXPECT_EQ(told, at_end);
}

// It goes with the last of its machines.
TEST_F(IoPoolTest, OutlivesItsMaker) {
  const auto tenant = Begin(Config(Verified()));
  pool_.reset();
  EndWell(*tenant);
  tenant->machine.reset();
  EXPECT_TRUE(HasThreads("a", 0));
}

}  // namespace
}  // namespace ringside
