// Machines that go on from one that is at rest in this process, while their guests check every byte
// of their own disks.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "ringside/machine_template.h"
#include "tests/support/huge_pages.h"
#include "tests/support/races.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/saving_machine.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using testing::CheckedLoad;
using ::testing::HasSubstr;

class MachineTemplateTest : public testing::SavingMachine {
 protected:
  static constexpr size_t kForks = 2;

  // A machine that goes on from the template, with a disk that is a copy of the machine's.
  struct Fork {
    TestConsole console;
    std::unique_ptr<Machine> machine;
  };
  std::unique_ptr<Fork> ForkOf(std::shared_ptr<const MachineTemplate> from, MachineConfig config,
                               const std::string& disk) {
    const std::string copy = Place(++copies_);
    fs::copy_file(disk, copy);
    auto fork = std::make_unique<Fork>();
    config.kernel.clear();
    config.from = std::move(from);
    config.console = fork->console.config();
    config.disks[0].backend = FileConfig{.path = copy};
    fork->machine = Make(config);
    return fork;
  }
  static void ExpectEndsWell(Fork& fork) {
    const MachineEnd& end = fork.machine->Wait();
    EXPECT_EQ(end.kind, EndKind::kPowerOff) << end.detail;
    EXPECT_THAT(fork.console.Output(), HasSubstr("\"errors\":0,\"mismatches\":0"));
  }
  std::string DiskOf(int copy) const { return copy == 0 ? image_.path() : Place(copy); }

  int copies_ = 0;
};

class ForkedUnderLoad : public MachineTemplateTest,
                        public ::testing::WithParamInterface<CheckedLoad> {};

// And of the last a fork is forked, of memory that it has from its own template.
TEST_P(ForkedUnderLoad, AllGoOnFromTheSameMoment) {
  const MachineConfig config = ConfigOf(GetParam(), "100ms");
  const auto machine = Begin(config);
  testing::Delay(100'000);
  ASSERT_TRUE(machine->Pause().ok());
  const auto made = machine->MakeTemplate();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ((*made)->cpus(), config.cpus);
  EXPECT_EQ((*made)->memory(), config.memory);
  std::vector<std::unique_ptr<Fork>> forks;
  for (size_t i = 0; i < kForks; ++i) forks.push_back(ForkOf(*made, config, DiskOf(0)));
  machine->Resume();
  for (const auto& fork : forks) ASSERT_TRUE(fork->machine->Start().ok());
  Machine& last = *forks.back()->machine;
  if (last.Pause().ok()) {
    const auto made_of_last = last.MakeTemplate();
    ASSERT_TRUE(made_of_last.ok()) << made_of_last.status();
    forks.push_back(ForkOf(*made_of_last, config, DiskOf(copies_)));
    last.Resume();
    ASSERT_TRUE(forks.back()->machine->Start().ok());
  }
  EndWell(*machine);
  for (const auto& fork : forks) ExpectEndsWell(*fork);
}

INSTANTIATE_TEST_SUITE_P(, ForkedUnderLoad,
                         ::testing::Values(CheckedLoad{Engine::kIoUring, "poll", 1},
                                           CheckedLoad{Engine::kIoUring, "irq", 2},
                                           CheckedLoad{Engine::kThreads, "irq", 1}),
                         [](const auto& info) { return NameOf(info.param); });

// All of them may write to all of it, so that each has reserved as many pages as the machine.
TEST_F(MachineTemplateTest, OfHugePagesWantsThemForEachFork) {
  const testing::SetAsideHugePages pool(3 * kGuestHugePages);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  MachineConfig config = ConfigOf({Engine::kIoUring, "irq", 1}, "100ms");
  config.huge_pages = HugePages::k2M;
  const uint64_t before = pool.Free();
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  const auto made = machine->MakeTemplate();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(pool.Free(), before - 2 * kGuestHugePages);
  MachineConfig refused = config;
  refused.kernel.clear();
  refused.from = *made;
  EXPECT_THAT(Machine::Create(refused).status(), IsBadInput("hugepages 2M is", "from a template"));
  config.huge_pages = HugePages::kOff;
  const auto fork = ForkOf(*made, config, DiskOf(0));
  EXPECT_EQ(pool.Free(), before - 3 * kGuestHugePages);
  // What it has of its own is copied, into small pages.
  const std::string disk = DiskOf(copies_);
  ASSERT_TRUE(fork->machine->Start().ok());
  ExpectProgress(*fork->machine);
  ASSERT_TRUE(fork->machine->Pause().ok());
  const auto made_of_fork = fork->machine->MakeTemplate();
  ASSERT_TRUE(made_of_fork.ok()) << made_of_fork.status();
  const auto fork_of_fork = ForkOf(*made_of_fork, config, disk);
  EXPECT_EQ(pool.Free(), before - 3 * kGuestHugePages);
  machine->Resume();
  fork->machine->Resume();
  ASSERT_TRUE(fork_of_fork->machine->Start().ok());
  EndWell(*machine);
  ExpectEndsWell(*fork);
  ExpectEndsWell(*fork_of_fork);
}

TEST_F(MachineTemplateTest, OfADirectoryIsReadOnce) {
  const MachineConfig config = ConfigOf({Engine::kThreads, "irq", 1}, "100ms");
  SaveAndEnd(Begin(config), Place(++copies_));
  const std::string directory = Place(copies_);
  const auto loaded = MachineTemplate::Load(directory);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  fs::remove_all(directory);
  std::vector<std::unique_ptr<Fork>> forks;
  for (size_t i = 0; i < kForks; ++i) {
    forks.push_back(ForkOf(*loaded, config, DiskOf(0)));
    ASSERT_TRUE(forks.back()->machine->Start().ok());
  }
  for (const auto& fork : forks) ExpectEndsWell(*fork);
}

// What it has written since is in no file any more.
TEST_F(MachineTemplateTest, AMachineThatHasOneIsSavedAsEver) {
  MachineConfig config = ConfigOf({Engine::kThreads, "irq", 1}, "100ms");
  auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_TRUE(machine->MakeTemplate().ok());
  machine->Resume();
  ExpectProgress(*machine);
  GoOnFrom(Place(1), config);
  SaveAndEnd(std::move(machine), config.restore);
  EndWell(*Begin(config));
}

TEST_F(MachineTemplateTest, OutlivesTheMachineItIsOf) {
  const MachineConfig config = ConfigOf({Engine::kThreads, "irq", 1}, "100ms");
  auto machine = Begin(config);
  EXPECT_EQ(machine->MakeTemplate().status().code(), absl::StatusCode::kFailedPrecondition)
      << "it is not paused";
  ASSERT_TRUE(machine->Pause().ok());
  auto made = machine->MakeTemplate();
  ASSERT_TRUE(made.ok()) << made.status();
  machine.reset();
  const auto fork = ForkOf(*std::move(made), config, DiskOf(0));
  ASSERT_TRUE(fork->machine->Start().ok());
  ExpectEndsWell(*fork);
}

// The last of them has the template alone.
TEST_F(MachineTemplateTest, ManyThreadsForkRunAndEndAtOnce) {
  MachineConfig config = Config("rw=randread qd=8 size=1M runtime=60s wait=irq");
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  config.from = *machine->MakeTemplate();
  machine.reset();
  config.kernel.clear();
  config.console = {};
#ifdef RINGSIDE_TSAN
  // It does not see liburing's munmap, and takes a ring for one that was at its address before.
  config.io_threads = {{.waiter = IoThreadConfig::Waiter::kEpoll}};
#endif
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([config] {
      for (size_t round = 0; round < 5; ++round) {
        const auto fork = Begin(config);
        ExpectProgress(*fork);
        fork->Stop();
        EXPECT_EQ(fork->Wait().kind, EndKind::kStopped);
      }
    });
  }
}

TEST_F(MachineTemplateTest, WaitsForASaveNoLongerThanItMay) {
  const auto machine = Begin(ConfigOf({Engine::kThreads, "irq", 1}, "60s"));
  ASSERT_TRUE(machine->Pause().ok());
  testing::BoundedEvent begun, go_on;
  std::jthread save([&] {
    const auto wait = [&](uint64_t, uint64_t) {
      if (!begun.HasBeenNotified()) begun.Notify();
      go_on.WaitOrAbort();
    };
    EXPECT_EQ(machine->Save(Place(1), {}, wait), absl::OkStatus());
  });
  begun.WaitOrAbort();
  const absl::Status status = machine->MakeTemplate(absl::Milliseconds(20)).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("another call still saves the machine"));
  go_on.Notify();
  save.join();
  EXPECT_TRUE(machine->MakeTemplate().ok());
}

TEST_F(MachineTemplateTest, IsRefusedWhereItCannotBe) {
  MachineConfig config = ConfigOf({Engine::kThreads, "irq", 1}, "60s");
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->Pause().ok());
  config.from = *machine->MakeTemplate();
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("a template and", "give one of them"));
  config.kernel.clear();
  config.restore = Place(1);
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("a template and", "give one of them"));
  config.restore.clear();
  config.cpu_baseline = CpuBaseline::kX86_64V2;
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("a template goes on", "leave one"));
  config.cpu_baseline = CpuBaseline::kHost;
  config.restore_memory = RestoreMemory::kCopied;
  EXPECT_THAT(Machine::Create(config).status().message(), HasSubstr("save the machine instead"));
}

}  // namespace
}  // namespace ringside
