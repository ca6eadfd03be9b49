// A guest whose disk is a namespace of a controller in another process, by vfio-user: whole
// machines on this host's KVM. The other process is killed, started again and stopped, under load.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/guest/pattern.h"
#include "tests/support/count_of.h"
#include "tests/support/directories.h"
#include "tests/support/nvme/served_model.h"
#include "tests/support/recording_log.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::ServedModel;

class NvmeUserMachineTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const ServedModel& model, const std::string& command_line) {
    MachineConfig config = GuestConfig(console_, command_line);
    config.disks = {{.backend = NvmeConfig{.socket = model.socket()}}};
    config.log = &log_;
    return config;
  }
  void Begin(const MachineConfig& config) {
    auto machine = Machine::Create(config);
    ASSERT_TRUE(machine.ok()) << machine.status();
    machine_ = *std::move(machine);
    ASSERT_TRUE(machine_->Start().ok());
  }
  // A power-off. Fails at the limit, where a guest would hang.
  void EndWell() {
    ASSERT_TRUE(testing::WaitForFd(machine_->end_fd(), POLLIN, absl::Seconds(60)))
        << console_.Output() << Log();
    const MachineEnd& end = machine_->Wait();
    EXPECT_EQ(end.kind, EndKind::kPowerOff) << end.detail;
    EXPECT_THAT(console_.Output(), Not(HasSubstr("FAIL")));
  }
  nlohmann::json Job() const {
    std::istringstream lines(console_.Output());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('{')) return nlohmann::json::parse(line);
    }
    ADD_FAILURE() << "no job in " << console_.Output();
    return {};
  }
  uint64_t Requests() const { return machine_->Statistics().disks[0].queues[0].requests(); }
  uint64_t Count(std::string_view name) const {
    return testing::CountOf(machine_->Statistics().disks[0].counters, name);
  }
  // The guest has done so many more.
  bool GoesOn(uint64_t requests) const {
    const uint64_t before = Requests();
    const absl::Time deadline = absl::Now() + testing::kWaitLimit;
    while (Requests() < before + requests) {
      if (absl::Now() > deadline || HasEnded()) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }
  bool HasEnded() const {
    return testing::WaitForFd(machine_->end_fd(), POLLIN, absl::ZeroDuration());
  }
  std::string Log() const { return absl::StrJoin(log_.lines(), "\n"); }
  size_t Logged(const std::string& text) const {
    const auto lines = log_.lines();
    return static_cast<size_t>(std::ranges::count_if(
        lines, [&](const std::string& line) { return line.find(text) != std::string::npos; }));
  }

  testing::RecordingLog log_;
  TestConsole console_;
  std::unique_ptr<Machine> machine_;
};

// Requests of a job that prepares 512 KiB, and has begun.
constexpr uint64_t kPrepared = 300;

// The numbers of a machine that should stand still while its guest works.
struct Moment {
  explicit Moment(Machine& machine) {
    const MachineStatistics statistics = machine.Statistics();
    const QueueStatistics& queue = statistics.disks[0].queues[0];
    requests = queue.requests();
    kicks = queue.kicks;
    interrupts = queue.interrupts;
    sleeps = statistics.io_threads[0].sleeps;
    enters = statistics.io_threads[0].io_uring_enters;
    for (const ExitCount& each : statistics.vcpus[0].exits) exits += each.count;
  }

  uint64_t requests = 0;
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t sleeps = 0;
  uint64_t enters = 0;
  uint64_t exits = 0;
};

class NvmeUserWayTest : public NvmeUserMachineTest,
                        public ::testing::WithParamInterface<std::vector<std::string>> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(NvmeUserWayTest, TheGuestWritesAndReadsPolledAndByInterrupt) {
  ServedModel model(GetParam());
  Begin(Config(model, "disk=1 seed=7"));
  EndWell();
  EXPECT_THAT(console_.Output(), HasSubstr("guest: disk 0 ok"));
  machine_.reset();
  // Another machine, by the same socket.
  Begin(Config(model, "verify-disk=7"));
  EndWell();
  EXPECT_THAT(console_.Output(), HasSubstr("guest: disk 0 verified sectors=4096\n"));
  EXPECT_THAT(log_.lines(), IsEmpty());
  machine_.reset();
  model.Stop();
  std::ifstream image(model.image());
  std::string bytes(guest::kPatternSectors * 512, '\0');
  image.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (uint64_t sector = 0; sector < guest::kPatternSectors; ++sector) {
    for (uint64_t word = 0; word < 64; ++word) {
      uint64_t value;
      std::memcpy(&value, bytes.data() + sector * 512 + word * 8, sizeof value);
      ASSERT_EQ(value, guest::PatternWord(7, sector, word)) << sector;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , NvmeUserWayTest,
    ::testing::Values(std::vector<std::string>{}, std::vector<std::string>{"--shadow-doorbells"},
                      std::vector<std::string>{"--no-write-cache", "--queues", "1"}));

TEST_F(NvmeUserMachineTest, InTheSteadyStateThereIsNoKickAndNoExit) {
  ServedModel model;
  MachineConfig config = Config(model, "rw=randrw verify=1 size=512k qd=8 warmup=10ms runtime=3s");
  config.io_threads = {{.id = "a", .tuning = {.poll = {.kind = PollKind::kAlways}}}};
  Begin(config);
  ASSERT_TRUE(GoesOn(kPrepared));
  const Moment before(*machine_);
  ASSERT_TRUE(GoesOn(200));
  const Moment after(*machine_);
  ASSERT_FALSE(HasEnded());
  EXPECT_EQ(after.kicks, before.kicks);
  EXPECT_EQ(after.exits, before.exits);
  EXPECT_EQ(after.interrupts, before.interrupts);
  EXPECT_EQ(after.sleeps, before.sleeps);
  EndWell();
  EXPECT_EQ(Job()["errors"], 0);
  EXPECT_EQ(Job()["mismatches"], 0);
  machine_.reset();
  model.Stop();
}

// Threads that sleep are woken by the server's eventfds, and the guest by ours.
TEST_F(NvmeUserMachineTest, WhereEverybodySleepsInterruptsWake) {
  ServedModel model;
  Begin(Config(model, "rw=randrw verify=1 size=1M qd=4 wait=irq runtime=500ms"));
  EndWell();
  EXPECT_EQ(Job()["errors"], 0);
  EXPECT_EQ(Job()["mismatches"], 0);
  EXPECT_GT(machine_->Statistics().io_threads[0].wake_ups, 100);
  EXPECT_EQ(Count("lost_interrupts"), 0);
  machine_.reset();
  model.Stop();
}

TEST_F(NvmeUserMachineTest, TwoDisksAndTwoThreadsShareTheController) {
  ServedModel model({"--namespaces", "2"});
  MachineConfig config = Config(model, "disk=1 seed=3");
  config.disks.push_back({.backend = NvmeConfig{.socket = model.socket(), .namespace_id = 2}});
  config.io_threads = {{.id = "a"}, {.id = "b"}};
  Begin(config);
  EndWell();
  EXPECT_THAT(console_.Output(), HasSubstr("guest: disk 1 ok"));
  machine_.reset();
  model.Stop();
}

// ---- The server goes ----

class NvmeUserKillTest : public NvmeUserMachineTest,
                         public ::testing::WithParamInterface<PollKind> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  // A guest at work on a disk with that time-out.
  void Begin(const ServedModel& model, const std::string& command_line, absl::Duration timeout) {
    MachineConfig config = Config(model, command_line);
    config.disks[0].backend.As<NvmeConfig>()->timeout = timeout;
    config.io_threads = {{.id = "a", .tuning = {.poll = {.kind = GetParam()}}}};
    NvmeUserMachineTest::Begin(config);
    ASSERT_TRUE(GoesOn(kPrepared));
  }
};

TEST_P(NvmeUserKillTest, AServerThatIsKilledGivesTheGuestErrorsAfterTheTimeout) {
  ServedModel model;
  ASSERT_NO_FATAL_FAILURE(Begin(model, "rw=randrw size=512k qd=8 runtime=5s", absl::Seconds(1)));
  model.Kill();
  const absl::Time killed = absl::Now();
  EndWell();
  EXPECT_GT(absl::Now() - killed, absl::Seconds(1)) << "the server might have come back";
  EXPECT_GT(Job()["errors"], 0);
  EXPECT_EQ(Logged("its disks fail from now on"), 1) << Log();
  EXPECT_THAT(Log(), HasSubstr(model.socket()));
  EXPECT_LT(log_.lines().size(), 8) << Log();
  EXPECT_GT(machine_->Statistics().disks[0].queues[0].errors, 0);
}

TEST_P(NvmeUserKillTest, AServerThatIsBackInTimeGoesOnWhereItWas) {
  ServedModel model({"--no-write-cache"});
  ASSERT_NO_FATAL_FAILURE(
      Begin(model, "rw=randrw verify=1 size=512k qd=8 runtime=20s", absl::Seconds(20)));
  for (int kill = 0; kill < 3; ++kill) {
    model.Kill();
    absl::SleepFor(absl::Milliseconds(kill == 0 ? 0 : 300));
    model.Start();
    ASSERT_TRUE(GoesOn(200)) << Log();
    ASSERT_FALSE(HasEnded()) << "this host is too busy";
  }
  EndWell();
  EXPECT_EQ(Job()["errors"], 0) << Log();
  EXPECT_EQ(Job()["mismatches"], 0);
  EXPECT_GE(Count("resets"), 3u);
  EXPECT_GE(Logged(model.socket() + " is back"), 1) << Log();
  EXPECT_LE(log_.lines().size(), 10u) << "a server that goes and comes fills no log";
  EXPECT_GT(Count("resent"), 0);
  machine_.reset();
  model.Stop();
}

TEST_P(NvmeUserKillTest, AServerThatComesBackWithAnotherDiskIsNotUsed) {
  ServedModel model;
  ASSERT_NO_FATAL_FAILURE(Begin(model, "rw=randrw size=512k qd=8 runtime=4s", absl::Seconds(10)));
  model.Kill();
  ServedModel other({"--blocks", "16384"});
  std::filesystem::rename(other.socket(), model.socket());
  EndWell();
  EXPECT_GT(Job()["errors"], 0);
  EXPECT_EQ(Logged("its disks fail from now on"), 1) << Log();
}

TEST_P(NvmeUserKillTest, AServerThatStandsStillForAWhileIsWaitedFor) {
  ServedModel model;
  ASSERT_NO_FATAL_FAILURE(
      Begin(model, "rw=randrw verify=1 size=512k qd=8 runtime=3s", absl::Seconds(20)));
  model.Pause();
  absl::SleepFor(absl::Milliseconds(500));
  model.Resume();
  ASSERT_TRUE(GoesOn(100)) << Log();
  EndWell();
  EXPECT_EQ(Job()["errors"], 0) << Log();
  EXPECT_EQ(Job()["mismatches"], 0);
  EXPECT_THAT(log_.lines(), IsEmpty());
  machine_.reset();
  model.Stop();
}

TEST_P(NvmeUserKillTest, AServerThatStandsStillForGoodGivesTheGuestErrors) {
  ServedModel model;
  ASSERT_NO_FATAL_FAILURE(
      Begin(model, "rw=randrw size=512k qd=8 runtime=2s", absl::Milliseconds(500)));
  model.Pause();
  EndWell();
  EXPECT_GT(Job()["errors"], 0) << Log();
  EXPECT_EQ(Logged("its disks fail from now on"), 1) << Log();
}

// What is in flight has its time first.
TEST_P(NvmeUserKillTest, AMachineEndsWhileItsServerIsGone) {
  ServedModel model;
  ASSERT_NO_FATAL_FAILURE(Begin(model, "rw=randrw size=512k qd=8 runtime=60s", absl::Seconds(3)));
  model.Kill();
  absl::SleepFor(absl::Milliseconds(300));
  const absl::Time stopped = absl::Now();
  machine_->Stop();
  EXPECT_EQ(machine_->Wait().kind, EndKind::kStopped);
  machine_.reset();
  EXPECT_LT(absl::Now() - stopped, absl::Seconds(10));
}

// What the controller reaches by DMA is memory of the restored machine's own: it copies what was
// saved.
TEST_F(NvmeUserMachineTest, ASavedMachineGoesOnWithItsDisk) {
  const ServedModel model;
  const testing::TempDirectory directory;
  MachineConfig config = Config(model, "rw=randrw verify=1 size=512k qd=4 runtime=500ms wait=irq");
  Begin(config);
  ASSERT_TRUE(GoesOn(kPrepared)) << console_.Output();
  ASSERT_TRUE(machine_->Pause().ok());
  EXPECT_THAT(machine_->MakeTemplate().status().message(), HasSubstr("save the machine instead"));
  config.restore = directory.path() / "saved";
  ASSERT_EQ(machine_->Save(config.restore), absl::OkStatus());
  machine_.reset();
  config.kernel.clear();
  config.restore_memory = RestoreMemory::kMapped;
  EXPECT_THAT(Machine::Create(config).status().message(), HasSubstr("give restore-memory=copied"));
  config.restore_memory = RestoreMemory::kAuto;
  config.restore_handler = directory.path() / "handler";
  EXPECT_THAT(Machine::Create(config).status().message(), HasSubstr("and no restore-handler"));
  config.restore_handler.clear();
  Begin(config);
  EndWell();
}

// No queue of the disk was ever opened, so none of them can say that the machine is over.
TEST_F(NvmeUserMachineTest, AMachineEndsThoughTheServerOfADiskThatNobodyUsesStandsStill) {
  ServedModel model;
  MachineConfig config = Config(model, "end=spin");
  config.disks.push_back({.backend = NullConfig{.size = 1 << 20}});
  Begin(config);
  ASSERT_TRUE(console_.WaitFor("guest: "));
  model.Pause();
  const absl::Time stopped = absl::Now();
  machine_->Stop();
  EXPECT_EQ(machine_->Wait().kind, EndKind::kStopped);
  machine_.reset();
  EXPECT_LT(absl::Now() - stopped, absl::Milliseconds(4800));  // unhurried it is more
}

INSTANTIATE_TEST_SUITE_P(, NvmeUserKillTest, ::testing::Values(PollKind::kNever, PollKind::kAlways),
                         [](const auto& info) {
                           return info.param == PollKind::kNever ? "Asleep" : "Polling";
                         });

}  // namespace
}  // namespace ringside
