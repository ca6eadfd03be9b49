// Machines with several I/O threads: disks and queues mapped to them, and moved while the guest
// checks every byte.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sstream>
#include <thread>

#include "base/status.h"
#include "tests/support/cpus.h"
#include "tests/support/devices/zero_disk.h"
#include "tests/support/directories.h"
#include "tests/support/net/host_socket.h"
#include "tests/support/own_threads.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside {
namespace {

using testing::AllowedCpus;
using ::testing::HasSubstr;
using testing::HostSocket;
using ::testing::Not;
using testing::TempFile;

constexpr uint64_t kMiB = 1 << 20;

// Of the one thread of this process with that name, the CPUs.
std::vector<int> CpusOf(const std::string& name) {
  std::vector<int> cpus;
  for (const auto& thread : testing::ThreadsCalled(name)) {
    cpus = AllowedCpus(std::stoi(thread.filename()));
  }
  return cpus;
}

// Of the threads of this process with that name, how often they have gone to sleep.
uint64_t SwitchesOf(const std::string& name) {
  uint64_t switches = 0;
  for (const auto& thread : testing::ThreadsCalled(name)) {
    std::ifstream status(thread / "status");
    for (std::string line; std::getline(status, line);) {
      constexpr std::string_view kKey = "voluntary_ctxt_switches:";
      if (line.starts_with(kKey)) switches += std::stoull(line.substr(kKey.size()));
    }
  }
  return switches;
}

class IoThreadsMachineTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const std::string& command_line) const {
    MachineConfig config = GuestConfig(console_, command_line);
    config.io_threads = {{.id = "a"}, {.id = "b"}};
    return config;
  }
  DiskConfig File(const TempFile& image, Engine engine = Engine::kAuto) const {
    return {.backend = FileConfig{.path = image.path(), .aio = engine}};
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
  }
  void ExpectSoundJob() const {
    std::istringstream lines(console_.Output());
    int jobs = 0;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with('{')) continue;
      ++jobs;
      const nlohmann::json job = nlohmann::json::parse(line);
      EXPECT_FALSE(job.contains("error")) << line;
      EXPECT_TRUE(job.contains("ios")) << line;  // none, if the host stalled all the while
      EXPECT_EQ(job["errors"], 0u);
      EXPECT_EQ(job["mismatches"], 0u);
    }
    EXPECT_GT(jobs, 0);
  }
  std::string ErrorOf(const MachineConfig& config) {
    const auto machine = Machine::Create(config);
    EXPECT_EQ(machine.status().code(), absl::StatusCode::kInvalidArgument) << machine.status();
    return std::string(Message(machine.status()));
  }

  const TempFile image_{16 * kMiB, "."};
  TestConsole console_;
};

TEST_F(IoThreadsMachineTest, TwoDisksOnOneThread) {
  const TempFile other(16 * kMiB, ".");
  MachineConfig config = Config("disk=1");
  config.disks = {File(image_), File(other)};
  for (DiskConfig& disk : config.disks) disk.shares = {{.io_thread = "b"}};
  const auto machine = Begin(config);
  EndWell(*machine);
  EXPECT_THAT(console_.Output(), HasSubstr("guest: disk 0 ok"));
  EXPECT_THAT(console_.Output(), HasSubstr("guest: disk 1 ok"));
  const MachineStatistics statistics = machine->Statistics();
  for (const DiskStatistics& disk : statistics.disks) {
    EXPECT_EQ(disk.queues[0].io_thread, "b");
    EXPECT_GT(disk.queues[0].kicks, 0u);
  }
  ASSERT_EQ(statistics.io_threads.size(), 2u);
  EXPECT_LT(statistics.io_threads[0].turns, 20u) << "nothing to do";
  EXPECT_GT(statistics.io_threads[1].turns, 100u);
}

TEST_F(IoThreadsMachineTest, WithoutAMappingDisksTakeTheThreadsInTurn) {
  MachineConfig config = Config("end=poweroff");
  config.disks.assign(3, {.backend = NullConfig{.size = kMiB}, .queues = 2});
  const auto machine = Begin(config);
  EndWell(*machine);
  const MachineStatistics statistics = machine->Statistics();
  for (size_t i = 0; i < 3; ++i) {
    for (const QueueStatistics& queue : statistics.disks[i].queues) {
      EXPECT_EQ(queue.io_thread, i % 2 == 0 ? "a" : "b");
    }
  }
}

TEST_F(IoThreadsMachineTest, TwoQueuesOfOneDiskOverTwoThreads) {
  MachineConfig config = Config("rw=randrw verify=1 size=2M qd=4 queues=2 runtime=300ms");
  config.cpus = 2;
  config.disks = {File(image_)};
  config.disks[0].queues = 2;
  config.disks[0].shares = {{.io_thread = "b", .queues = {0}}, {.io_thread = "a", .queues = {1}}};
  const auto machine = Begin(config);
  EndWell(*machine);
  ExpectSoundJob();
  const MachineStatistics statistics = machine->Statistics();
  EXPECT_EQ(statistics.disks[0].queues[0].io_thread, "b");
  EXPECT_EQ(statistics.disks[0].queues[1].io_thread, "a");
  for (const QueueStatistics& queue : statistics.disks[0].queues) EXPECT_GT(queue.requests(), 100u);
  for (const IoThreadStatistics& thread : statistics.io_threads) EXPECT_GT(thread.turns, 100u);
}

class MoveMachineTest : public IoThreadsMachineTest,
                        public ::testing::WithParamInterface<std::tuple<Engine, const char*>> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(MoveMachineTest, AQueueMovesWhileTheGuestChecksEveryByte) {
  const auto [engine, wait] = GetParam();
  MachineConfig config =
      Config(std::string("rw=randrw verify=1 size=1M qd=1,16 runtime=300ms wait=") + wait);
  config.io_threads[1].tuning.poll = {.kind = PollKind::kFixed, .max_ns = 20'000};
  config.disks = {File(image_, engine)};
  config.disks[0].trace_latency = true;
  const auto machine = Begin(config);
  int moves = 0;
  uint64_t requests_before = 0, seen = 0;
  while (!testing::WaitForFd(machine->end_fd(), POLLIN, absl::ZeroDuration())) {
    const char* to = moves % 2 == 0 ? "b" : "a";
    const absl::Status status = machine->MoveQueue("disk0", 0, to);
    ASSERT_TRUE(status.ok()) << status;
    if (++moves % 4 != 0) continue;
    const QueueStatistics queue = machine->Statistics().disks[0].queues[0];
    EXPECT_EQ(queue.io_thread, to);
    seen += queue.requests() > requests_before;
    requests_before = queue.requests();
  }
  EndWell(*machine);
  ExpectSoundJob();
  EXPECT_GT(moves, 4);
  EXPECT_GT(seen, 0u) << "the guest got on between moves";
  const MachineStatistics statistics = machine->Statistics();
  const std::vector<QueueLatencies> latencies = *machine->Latencies();
  ASSERT_EQ(latencies.size(), 1u);
  EXPECT_EQ(latencies[0].records.size() + latencies[0].overwritten,
            statistics.disks[0].queues[0].requests());
  uint64_t counted = 0;
  for (const LatencyHistogram& each : statistics.disks[0].queues[0].latencies) {
    counted += each.count();
  }
  EXPECT_EQ(counted, statistics.disks[0].queues[0].requests());
}

INSTANTIATE_TEST_SUITE_P(, MoveMachineTest,
                         ::testing::Combine(::testing::Values(Engine::kIoUring, Engine::kNative,
                                                              Engine::kThreads),
                                            ::testing::Values("poll", "irq")),
                         [](const auto& info) {
                           return std::string(EngineName(std::get<0>(info.param))) + "_" +
                                  std::get<1>(info.param);
                         });

TEST_F(IoThreadsMachineTest, AMachineMayEndWhileQueuesMove) {
  for (int round = 0; round < 8; ++round) {
    const TestConsole console;
    MachineConfig config = GuestConfig(console, "rw=randwrite qd=16 runtime=10s");
    config.io_threads.resize(2);
    config.disks = {File(image_, round % 2 == 0 ? Engine::kIoUring : Engine::kNative)};
    auto machine = Begin(config);
    std::atomic<bool> over{false};
    std::thread mover([&] {
      for (int i = 0; !over; ++i) {
        ASSERT_TRUE(machine->MoveQueue("disk0", 0, i % 2 == 0 ? "io1" : "io0").ok());
      }
    });
    ASSERT_TRUE(testing::SpinUntil(
        [&] { return machine->Statistics().disks[0].queues[0].requests() > 100; }));
    machine->Stop();
    EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
    over = true;
    mover.join();
  }
}

TEST_F(IoThreadsMachineTest, MovingAndPollingSayWhatThereIsNot) {
  MachineConfig config = Config("end=poweroff");
  config.disks = {{.backend = NullConfig{.size = kMiB}, .id = "root"}};
  const auto machine = Begin(config);
  EXPECT_EQ(machine->Statistics().disks[0].id, "root");
  EXPECT_TRUE(machine->MoveQueue("root", 0, "b").ok());
  EXPECT_EQ(Message(machine->MoveQueue("disk0", 0, "a")),
            "device 'disk0' is unknown, or has no queues; did you mean 'root'?");
  EXPECT_EQ(Message(machine->MoveQueue("root", 3, "a")), "root has no queue 3; it has 0 to 0");
  EXPECT_EQ(Message(machine->MoveQueue("root", 0, "c")),
            "I/O thread 'c' is unknown; did you mean 'a'?");
  EXPECT_EQ(Message(machine->SetPoll("c", {})), "I/O thread 'c' is unknown; did you mean 'a'?");
  EXPECT_EQ(Message(machine->SetPoll("a", {.weight = 64})),
            "I/O thread 'a': weight=64 is out of range: give 0 to 63");
  EXPECT_EQ(Message(machine->AddIoThread({.id = "d", .tuning = {.poll = {.grow = 1}}}).status()),
            "I/O thread 'd': grow=1 is out of range: give 2 to 1000");
  EndWell(*machine);
}

TEST_F(IoThreadsMachineTest, PollingIsChangedWhileTheGuestRuns) {
  MachineConfig config = Config("rw=randread verify=1 size=2M qd=1 runtime=400ms");
  config.disks = {File(image_)};
  const auto machine = Begin(config);
  constexpr PollKind kKinds[] = {PollKind::kAlways, PollKind::kNever, PollKind::kGrowShrink,
                                 PollKind::kFixed};
  for (int i = 0; !testing::WaitForFd(machine->end_fd(), POLLIN, absl::Milliseconds(5)); ++i) {
    ASSERT_TRUE(machine->SetPoll("a", {.kind = kKinds[i % 4], .max_ns = 10'000 + i}).ok());
    const IoThreadStatistics thread = machine->Statistics().io_threads[0];
    EXPECT_EQ(thread.poll.kind, kKinds[i % 4]);
    EXPECT_EQ(thread.poll.max_ns, 10'000 + i);
  }
  ASSERT_TRUE(machine->SetPoll("a", {}).ok());
  EndWell(*machine);
  ExpectSoundJob();
  EXPECT_GT(machine->Statistics().io_threads[0].spins, 0u);
}

// A thread that something holds, as storage can that hangs, holds nobody who asks: he gives up, and
// what he has asked for comes about when the thread is back.
TEST_F(IoThreadsMachineTest, WhoeverWaitsForAThreadMayGiveUp) {
  MachineConfig config = Config("rw=randread verify=1 size=2M qd=1 runtime=1s");
  config.io_threads[0].tuning.trace_waits = true;
  config.disks = {File(image_)};
  config.devices = {{.id = "zeroes", .io_threads = {"b"}, .create = [] {
                       return std::make_unique<testing::ZeroDisk>();
                     }}};
  const auto machine = Begin(config);
  // A guest that waits for the thread is what a pause cannot bring to rest.
  ASSERT_TRUE(
      testing::SpinUntil([&] { return machine->Statistics().disks[0].queues[0].requests() > 0; }));
  Machine::Internals& internals = machine->internals();
  constexpr absl::Duration kPatience = absl::Milliseconds(20);
  Event release;
  (*internals.io_threads().Find("a"))->Begin([&release] { release.Wait(); });
  const auto gave_up = [](const absl::Status& status) {
    return absl::IsDeadlineExceeded(status) &&
           Message(status).find("I/O thread 'a' still waits") != std::string::npos;
  };
  EXPECT_TRUE(gave_up(machine->Explain(kPatience).status()));
  EXPECT_TRUE(gave_up(internals.Waits(kPatience).status()));
  EXPECT_TRUE(gave_up(machine->SetPoll("a", {.kind = PollKind::kAlways}, kPatience)));
  EXPECT_TRUE(gave_up(machine->SetPoll("a", {.kind = PollKind::kNever}, kPatience)));
  EXPECT_THAT(Message(machine->MoveQueue("zeroes", 0, "a", kPatience)),
              HasSubstr("queue 0 of zeroes has not moved within 20ms"));
  EXPECT_THAT(Message(machine->MoveQueue("zeroes", 0, "b", kPatience)),
              HasSubstr("another one of it is still being moved"));
  EXPECT_EQ(machine->Statistics().io_threads.size(), 2u) << "and this waits for nobody";
  EXPECT_EQ(machine->Pause(kPatience).code(), absl::StatusCode::kDeadlineExceeded);
  machine->Resume();
  release.Notify();
  ASSERT_TRUE(testing::SpinUntil(
      [&] { return machine->Statistics().devices[0].queues[0].io_thread == "a"; }));
  const auto explanations = machine->Explain();
  ASSERT_TRUE(explanations.ok()) << explanations.status();
  EXPECT_EQ((*explanations)[0].io_thread, "a");
  EXPECT_EQ(std::ranges::count((*explanations)[0].queues, "zeroes", &QueueExplanation::device), 1)
      << "that it serves now";
  EXPECT_TRUE(internals.Waits().ok());
  EndWell(*machine);
}

// The guest has used its disk and its vsock, where a connection is still open, and now computes.
TEST_F(IoThreadsMachineTest, AnIdleMachineWakesNoIoThread) {
  const testing::TempDirectory directory;
  MachineConfig config = Config("disk=1 vsock=serve runtime=60s end=spin");
  config.disks = {File(image_)};
  config.vsock = VsockConfig{.cid = 3, .path = directory / "vm.sock"};
  const auto machine = Begin(config);
  ASSERT_TRUE(console_.WaitFor("guest: vsock ready"));
  const HostSocket open = HostSocket::ConnectTo(config.vsock->path);
  ASSERT_TRUE(open.Write("CONNECT 5000\necho"));
  EXPECT_THAT(open.ReadLine(), HasSubstr("OK "));
  EXPECT_EQ(open.Read(4), "echo");
  // Which has it serve no more, and is refused.
  const HostSocket end = HostSocket::ConnectTo(config.vsock->path);
  ASSERT_TRUE(end.Write("CONNECT 5001\n"));
  EXPECT_TRUE(end.AtEnd());
  ASSERT_TRUE(console_.WaitFor("guest: end=spin"));
  EXPECT_EQ(machine->Statistics().vsocks[0].connections, 1u);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  // "io" is the console's.
  const auto switches = [] { return SwitchesOf("a") + SwitchesOf("b") + SwitchesOf("io"); };
  const auto rests = [&] {
    const uint64_t before = switches();
    EXPECT_GT(before, 0u);
    std::this_thread::sleep_for(std::chrono::seconds(10));
    return switches() == before;
  };
  EXPECT_TRUE(rests() || rests()) << "and that is not the last sleep of a late thread";
  machine->Stop();
  machine->Wait();
}

TEST_F(IoThreadsMachineTest, ThreadsAreKeptOnTheirCpus) {
  const std::vector<int> allowed = AllowedCpus();
  MachineConfig config = Config("echo=1");
  config.cpus = 2;
  config.disks = {{.backend = NullConfig{.size = kMiB}}};
  config.io_threads[1].cpus = {allowed.back()};
  config.vcpu_cpus = {{allowed.front()}};
  const auto machine = Begin(config);
  ASSERT_TRUE(console_.WaitFor("guest: echo ready"));
  ASSERT_TRUE(testing::SpinUntil([&] { return !CpusOf("vcpu-1").empty(); }));
  EXPECT_EQ(CpusOf("a"), allowed);
  EXPECT_EQ(CpusOf("b"), std::vector<int>{allowed.back()});
  EXPECT_EQ(CpusOf("vcpu-0"), std::vector<int>{allowed.front()});
  EXPECT_EQ(CpusOf("vcpu-1"), allowed);
}

TEST_F(IoThreadsMachineTest, HaltPollingMayBeSetForOneMachine) {
  for (const absl::Duration limit : {absl::ZeroDuration(), absl::Microseconds(50)}) {
    MachineConfig config = Config("end=poweroff");
    config.halt_poll = limit;
    EndWell(*Begin(config));
  }
  MachineConfig config = Config("end=poweroff");
  config.halt_poll = absl::Seconds(2);
  EXPECT_EQ(ErrorOf(config), "halt-poll='2s' is out of range: give 0 to 1s, or kernel");
}

TEST_F(IoThreadsMachineTest, BadConfigurationsSayWhatToMend) {
  MachineConfig config = Config("end=poweroff");
  config.disks = {File(image_)};
  config.disks[0].shares = {{.io_thread = "a", .queues = {1}}};
  EXPECT_EQ(ErrorOf(config), "disk '" + image_.path() +
                                 "': queue 1 of I/O thread 'a' does not exist: there are 0 to 0");
  config.disks[0].shares.clear();
  config.vcpu_cpus = {{}, {}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("cpu-affinity names vCPU 1, which is not there"));
  config.vcpu_cpus = {{9000}};
  EXPECT_THAT(ErrorOf(config), HasSubstr("vCPU 0: CPU 9000 does not exist: this host has 0 to "));
}

}  // namespace
}  // namespace ringside
