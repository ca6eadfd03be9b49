// Machines that are saved while their guests are at work, end, and go on from what was saved.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "base/huge_pages.h"
#include "base/status.h"
#include "kvm/cpu_features.h"
#include "kvm/memory_layout.h"
#include "nvme/nvme_controllers.h"
#include "tests/support/count_of.h"
#include "tests/support/huge_pages.h"
#include "tests/support/races.h"
#include "tests/support/recording_log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/saving_machine.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using testing::CheckedLoad;
using ::testing::HasSubstr;

class SavedUnderLoad : public testing::SavingMachine,
                       public ::testing::WithParamInterface<CheckedLoad> {};

// Each but the first is saved out of memory that it has from the one before.
TEST_P(SavedUnderLoad, TheGuestGoesOnInOneMachineAfterTheOther) {
  MachineConfig config = ConfigOf(GetParam(), "300ms");
  std::mt19937 random(1);
  int saved = 0;
  for (auto machine = Begin(config);; machine = Begin(config)) {
    testing::Delay(static_cast<int>(random() % 100'000));
    if (saved == 10 || !machine->Pause().ok()) {
      EndWell(*machine);
      break;
    }
    GoOnFrom(Place(saved++), config);
    SaveAndEnd(std::move(machine), config.restore);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(saved, 1);
}

INSTANTIATE_TEST_SUITE_P(, SavedUnderLoad,
                         ::testing::Values(CheckedLoad{Engine::kIoUring, "poll", 1},
                                           CheckedLoad{Engine::kIoUring, "irq", 2},
                                           CheckedLoad{Engine::kThreads, "irq", 1}),
                         [](const auto& info) { return NameOf(info.param); });

using SaveMachineTest = testing::SavingMachine;

// Both go on from the same moment, over memory that each changes for itself.
TEST_F(SaveMachineTest, TwoGoOnAtOnce) {
  MachineConfig config = Config("rw=randread qd=8 size=1M runtime=200ms wait=irq");
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  auto machine = Begin(config);
  ExpectProgress(*machine);
  SaveAndEnd(std::move(machine), Place(1));
  GoOnFrom(Place(1), config);
  TestConsole other_console;
  MachineConfig other_config = config;
  other_config.console = other_console.config();
  const auto one = Begin(config);
  const auto other = Begin(other_config);
  EXPECT_EQ(one->Wait().kind, EndKind::kPowerOff);
  EXPECT_EQ(other->Wait().kind, EndKind::kPowerOff);
  for (const TestConsole* console : {&console_, &other_console}) {
    EXPECT_THAT(console->Output(), HasSubstr("\"errors\":0"));
  }
  EXPECT_EQ(Make(config)->Pause(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded)
      << "a third one, which has not started";
}

TEST_F(SaveMachineTest, OneOfHugePagesGoesOnInOthers) {
  const testing::SetAsideHugePages pool(kGuestHugePages);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const uint64_t before = pool.Free();
  MachineConfig config = ConfigOf({Engine::kIoUring, "irq", 2}, "300ms");
  config.huge_pages = HugePages::k2M;
  auto machine = Begin(config);
  EXPECT_EQ(pool.Free(), before - kGuestHugePages);
  ExpectProgress(*machine);
  MachineConfig another = config;
  another.disks.clear();
  if (before < 2 * kGuestHugePages) {
    EXPECT_THAT(std::string(Message(Machine::Create(another).status())),
                HasSubstr("32 huge pages of 2M are wanted, and "));
  }
  SaveAndEnd(std::move(machine), Place(1));
  EXPECT_EQ(pool.Free(), before);
  GoOnFrom(Place(1), config);
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("hugepages 2M is", "=copied, or leave"));
  config.restore_memory = RestoreMemory::kCopied;
  machine = Begin(config);
  EXPECT_EQ(pool.Free(), before - kGuestHugePages);
  EndWell(*machine);
}

// The log tells where it cannot be, and the machine runs anyhow.
TEST_F(SaveMachineTest, HugePagesThatAreTransparentMayBeNone) {
  testing::RecordingLog log;
  MachineConfig config = ConfigOf({Engine::kIoUring, "irq", 1}, "10ms");
  config.huge_pages = HugePages::kTransparent;
  config.log = &log;
  EndWell(*Begin(config));
  const std::string why = WhyNoSharedHugePages();
  EXPECT_EQ(std::ranges::count(log.lines(), "hugepages transparent has no effect: " + why),
            why.empty() ? 0 : 1);
}

// What its guest finds in memory at the moment it was saved: the identifier of the generation, and
// the counter of VMClock.
struct Generation {
  explicit Generation(const std::string& memory) : id(memory.substr(kGenerationId, 16)) {
    memory.copy(reinterpret_cast<char*>(&counter), sizeof counter, kVmClock + 104);
  }
  std::string id;
  uint64_t counter = 0;
};

TEST_F(SaveMachineTest, EachCopyIsAGenerationOfItsOwn) {
  MachineConfig config = Config("rw=randread runtime=60s");
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  for (const int number : {1, 2, 3}) {
    auto machine = Begin(config);
    SaveAndEnd(std::move(machine), Place(number));
    GoOnFrom(Place(1), config);
  }
  const Generation original(Read(Place(1) + "/memory"));
  const Generation one(Read(Place(2) + "/memory"));
  const Generation other(Read(Place(3) + "/memory"));
  EXPECT_EQ(original.counter, 0u);
  EXPECT_EQ(one.counter, 1u);
  EXPECT_EQ(other.counter, 1u);
  EXPECT_NE(original.id, std::string(16, '\0'));
  EXPECT_NE(one.id, original.id);
  EXPECT_NE(other.id, original.id);
  EXPECT_NE(other.id, one.id);
}

TEST_F(SaveMachineTest, ASaveThatFailsLeavesNothing) {
  MachineConfig config = Config("rw=randread runtime=60s");
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  auto machine = Begin(config);
  EXPECT_FALSE(machine->Save(Place(1)).ok()) << "it is not paused";
  EXPECT_FALSE(fs::exists(Place(1)));
}

// A vCPU, an I/O thread, or several at once come upon it first.
TEST_P(SavedUnderLoad, MemoryThatBecomesShorterEndsThatMachineAlone) {
  MachineConfig config = ConfigOf(GetParam(), "60s");
  config.disks[0].backend = NullConfig{.size = 16 * kMiB};
  config.command_line = "rw=randread qd=8 runtime=60s wait=" + std::string(GetParam().wait);
  config.cpus = 1;
  config.disks[0].queues = 1;
  auto machine = Begin(config);
  ExpectProgress(*machine);
  SaveAndEnd(std::move(machine), Place(1));
  fs::create_directory(Place(2));
  for (const char* file : {"state", "memory"}) {
    fs::copy_file(Place(1) + "/" + file, Place(2) + "/" + file);
  }
  GoOnFrom(Place(1), config);
  const auto other = Begin(config);
  std::mt19937 random(1);
  for (const uint64_t left : {uint64_t{0}, 1 * kMiB, 2 * kMiB, 3 * kMiB}) {
    config.restore = Place(2);
    const auto one = Begin(config);
    testing::Delay(static_cast<int>(random() % 10'000));
    fs::resize_file(MemoryPath(Place(2)), left);
    const MachineEnd& end = one->Wait();
    EXPECT_EQ(end.kind, EndKind::kFailure);
    EXPECT_THAT(end.detail, HasSubstr("has become shorter, " + std::to_string(left) + " bytes"));
    fs::copy_file(Place(1) + "/memory", MemoryPath(Place(2)), fs::copy_options::overwrite_existing);
  }
  ExpectProgress(*other);
  EXPECT_FALSE(IsOver(*other));
}

TEST_F(SaveMachineTest, OfMemoryThatHasBecomeShorterNothingIsSaved) {
  MachineConfig config = Config("rw=randread runtime=60s");
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
  SaveAndEnd(Begin(config), Place(1));
  GoOnFrom(Place(1), config);
  const auto machine = Begin(config);
  ASSERT_TRUE(machine->Pause().ok());
  fs::resize_file(MemoryPath(Place(1)), kMiB);
  int steps = 0;
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // as a program would that has a thread for them
  const absl::Status status = machine->Save(Place(2), {}, [&](uint64_t, uint64_t) { ++steps; });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("has become shorter"));
  EXPECT_EQ(steps, 1) << "the first tells";
  EXPECT_FALSE(fs::exists(Place(2)));
}

// Not even what its guest asked for before it was saved.
TEST_F(SaveMachineTest, NothingIsServedBeforeItStarts) {
  MachineConfig config = Config("rw=randread qd=1 runtime=60s wait=irq");
  auto machine = Begin(config);
  ExpectProgress(*machine);
  bool unread = false;
  for (int tries = 0; tries < 200 && !unread; ++tries) {
    machine->Resume();
    unread = PauseWithUnread(*machine, ThreadOf(*machine, "io0"));
  }
  ASSERT_TRUE(unread);
  SaveAndEnd(std::move(machine), Place(1));
  GoOnFrom(Place(1), config);
  machine = Make(config);
  for (int turns = 0; turns < 3; ++turns) ThreadOf(*machine, "io0").RunAndWait([] {});
  EXPECT_EQ(Requests(*machine), 0u);
  ASSERT_TRUE(machine->Start().ok());
  ExpectProgress(*machine);
}

// How much of its limits it has used up, a saved machine keeps; time that has gone by pays for it.
TEST_F(SaveMachineTest, LimitsKeepTheirDebts) {
  MachineConfig config = Config("rw=randread qd=8 runtime=60s wait=irq");
  config.throttle_groups = {{.id = "all", .limits = {.bps_total = {.average = 16}}}};
  config.disks = {{.backend = NullConfig{.size = 16 * kMiB},
                   .throttle = {.iops_total = {.average = 1}, .bps_total = {.average = 100}},
                   .throttle_group = "all"}};
  auto machine = Begin(config);
  ExpectProgress(*machine);
  SaveAndEnd(std::move(machine), Place(1));
  GoOnFrom(Place(1), config);
  machine = Make(config);
  ASSERT_TRUE(machine->Start().ok());
  SaveAndEnd(std::move(machine), Place(2));
  const std::vector<HostState::Debts> before = OpenSnapshot(Place(1))->state.host.debts;
  const std::vector<HostState::Debts> after = OpenSnapshot(Place(2))->state.host.debts;
  ASSERT_EQ(before.size(), 2u);
  ASSERT_EQ(after.size(), 2u);
  const auto longest = [](const HostState::Debts& debts) {
    return *std::ranges::max_element(debts.ticks);
  };
  constexpr int64_t kSecond = 1'000'000'000 * kThrottleTicksPerNs;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after[i].id, i == 0 ? "disk0" : "all");
    EXPECT_EQ(after[i].is_group, i);
    EXPECT_GT(longest(before[i]), (i == 0 ? 20 : 100) * kSecond);
    EXPECT_GT(longest(after[i]), longest(before[i]) / 2);
  }
}

class SavedOverlayTest : public testing::SavingMachine {
 protected:
  SavedOverlayTest() {
    Write(PathOf("base"), "");
    fs::resize_file(PathOf("base"), 16 * kMiB);
  }
  BlockBackend Overlay(const std::string& name, const std::string& below = "") const {
    const BlockBackend image = FileConfig{.path = PathOf("base"), .read_only = true};
    if (below.empty()) return OverlayConfig{.base = image, .path = PathOf(name)};
    return OverlayConfig{
        .base = OverlayConfig{.base = image, .path = PathOf(below), .read_only = true},
        .path = PathOf(name)};
  }
  std::string PathOf(const std::string& name) const { return directory_.path() / name; }
};

TEST_F(SavedOverlayTest, AnotherOverlayOrOneThatHasBeenWrittenSinceIsRefused) {
  MachineConfig config = Config("rw=randrw verify=1 size=1M runtime=60s wait=irq");
  config.disks = {{.backend = Overlay("one")}};
  auto machine = Begin(config);
  ExpectProgress(*machine);
  SaveAndEnd(std::move(machine), Place(1));
  fs::copy_file(PathOf("one"), PathOf("copy"));
  GoOnFrom(Place(1), config);
  const auto restore = [&](const BlockBackend& disk) {
    config.disks = {{.backend = disk}};
    return Machine::Create(config).status();
  };
  EXPECT_EQ(restore(Overlay("above", "one")), absl::OkStatus());
  EXPECT_THAT(restore(Overlay("other")).message(), HasSubstr("is neither the overlay"));
  EXPECT_THAT(restore(OverlayConfig{.base = FileConfig{.path = PathOf("base"), .read_only = true},
                                    .in_memory = true})
                  .message(),
              HasSubstr("is neither the overlay"));
  // A machine that was refused for another reason, or has not run, has written nothing.
  config.disks = {{.backend = Overlay("one")}, {.backend = NullConfig{.size = 16 * kMiB}}};
  EXPECT_THAT(Machine::Create(config).status().message(), HasSubstr("lists, in that order"));
  EXPECT_EQ(restore(Overlay("one")), absl::OkStatus());
  EXPECT_EQ(restore(Overlay("one")), absl::OkStatus());
  config.disks = {{.backend = Overlay("one")}};
  machine = Begin(config);
  ExpectProgress(*machine);
  machine.reset();
  EXPECT_THAT(restore(Overlay("one")).message(), HasSubstr("or it has been written since"));
  EXPECT_EQ(restore(Overlay("copy")), absl::OkStatus());
  EXPECT_EQ(restore(FileConfig{.path = PathOf("base")}), absl::OkStatus()) << "it cannot be told";
  // A base that was changed under its overlay is refused where it is opened.
  fs::last_write_time(PathOf("base"),
                      fs::last_write_time(PathOf("base")) + std::chrono::seconds(1));
  EXPECT_THAT(restore(Overlay("above", "one")).message(),
              HasSubstr("base that was last changed at"));
}

// Written and not flushed, as a guest may leave it for a long time: a copy of the file has it.
TEST_F(SavedOverlayTest, ACopyOfAPausedMachinesOverlayHasWhatItHasWritten) {
  MachineConfig config = Config("rw=randrw verify=1 size=1M runtime=300ms wait=irq");
  config.disks = {{.backend = Overlay("one")}};
  auto machine = Begin(config);
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(machine->Save(Place(1)), absl::OkStatus());
  fs::copy_file(PathOf("one"), PathOf("copy"));
  const auto allocated = [](const std::vector<BlockCounter>& counters) {
    return testing::CountOf(counters, "overlay_allocated_bytes");
  };
  const uint64_t written = allocated(machine->Statistics().disks[0].counters);
  machine.reset();
  {
    NvmeControllers controllers{Logger()};
    const auto copy = Overlay("copy").Open({.log = Logger(), .nvme = controllers});
    ASSERT_TRUE(copy.ok()) << copy.status();
    EXPECT_EQ(allocated((*copy)->Statistics().counters), written);
    EXPECT_GT(written, 0u);
  }
  GoOnFrom(Place(1), config);
  config.disks = {{.backend = Overlay("copy")}};
  EndWell(*Begin(config));
}

TEST_F(SavedOverlayTest, OneThatIsNotWrittenGoesOnFromItsOwn) {
  const MachineConfig fresh = [&] {
    MachineConfig config = Config("rw=randread size=1M runtime=60s wait=irq");
    config.disks = {{.backend = Overlay("one")}};
    return config;
  }();
  Begin(fresh).reset();  // it is there already
  MachineConfig config = fresh;
  for (int place = 1; place <= 2; ++place) {
    auto machine = Begin(config);
    ExpectProgress(*machine);
    SaveAndEnd(std::move(machine), Place(place));
    config = fresh;
    GoOnFrom(Place(place), config);
  }
  EXPECT_EQ(Machine::Create(config).status(), absl::OkStatus());
}

TEST_F(SaveMachineTest, ABaselineIsTheSnapshots) {
  MachineConfig config = ConfigOf({Engine::kThreads, "irq", 1}, "100ms");
  config.cpu_baseline = CpuBaseline::kX86_64V2;
  if (const absl::Status status = Machine::Create(config).status(); !status.ok()) {
    ASSERT_THAT(status.message(), HasSubstr("cpu-baseline x86-64-v"));
    GTEST_SKIP() << status.message();
  }
  auto machine = Begin(config);
  SaveAndEnd(std::move(machine), Place(1));
  GoOnFrom(Place(1), config);
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("cpu-baseline x86-64-v2", "leave one"));
  config.cpu_baseline = CpuBaseline::kHost;
  machine = Begin(config);
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(machine->Save(Place(2)), absl::OkStatus());
  machine->Resume();
  EndWell(*machine);
  for (const int place : {1, 2}) {
    const absl::StatusOr<Snapshot> snapshot = OpenSnapshot(Place(place));
    ASSERT_TRUE(snapshot.ok()) << snapshot.status();
    const std::vector<kvm_cpuid_entry2>& cpuid = snapshot->state.vcpus[0].cpuid;
    EXPECT_EQ(FindCpuid(cpuid, 0xd, 0), nullptr);
    EXPECT_EQ(CpuidValue(cpuid, {0x1, 0, CpuidRegister::kEcx}), 0x81b82201u);
  }
}

}  // namespace
}  // namespace ringside
