// Machines that a disk's error pauses (rerror, werror), while their guests check every byte.
#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "base/status.h"
#include "tests/support/block/failing_filter.h"
#include "tests/support/directories.h"
#include "tests/support/races.h"
#include "tests/support/recording_log.h"
#include "tests/support/vmm/pausing_machine.h"
#include "tests/support/vmm/recording_events.h"

namespace ringside {
namespace {

using ::testing::Each;
using testing::Failing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::RecordingEvents;
using testing::SpinUntil;

#ifdef RINGSIDE_TSAN
constexpr const char* kLoad = "rw=randrw verify=1 size=1M qd=1,16 wait=irq runtime=50ms";
#else
constexpr const char* kLoad = "rw=randrw verify=1 size=1M qd=1,16 wait=irq runtime=200ms";
#endif

class StopMachineTest : public testing::PausingMachine {
 protected:
  // One of `every` requests fails.
  MachineConfig Config(const std::string& command_line, uint64_t every) {
    MachineConfig config = PausingMachine::Config(command_line);
    failing_->every = every;
    config.disks[0].backend =
        testing::FailingConfig{.backend = config.disks[0].backend, .how = failing_};
    config.disks[0].rerror = config.disks[0].werror = ErrorAction::kStop;
    config.events = &events_;
    config.log = &log_;
    return config;
  }
  static uint64_t Kept(Machine& machine) { return machine.Statistics().disks[0].queues[0].kept; }
  bool Stops(Machine& machine) const {
    return SpinUntil([&] { return IsOver(machine) || machine.paused(); }) && !IsOver(machine);
  }

  const std::shared_ptr<Failing> failing_ = std::make_shared<Failing>();
  testing::RecordingLog log_;
  RecordingEvents events_;
};

TEST_F(StopMachineTest, ItGoesOnWithWhatWasKeptAsOftenAsItIsResumed) {
  const auto machine = Begin(Config(kLoad, 300));
  size_t stops = 0;
  for (; Stops(*machine); ++stops) {
    EXPECT_GT(Kept(*machine), 0u);
    machine->Resume();
  }
  EndWell(*machine);
  EXPECT_GT(stops, 1u);
  EXPECT_EQ(Kept(*machine), 0u);
  EXPECT_EQ(machine->Statistics().disks[0].queues[0].errors, 0u);
  EXPECT_EQ(events_.Of(EventKind::kPaused).size(), stops);
  EXPECT_THAT(events_.Of(EventKind::kDiskError), IsEmpty());
  uint64_t told = 0;
  for (const MachineEvent& event : events_.Of(EventKind::kDiskStopped)) {
    EXPECT_EQ(event.device, "disk0");
    EXPECT_THAT(event.detail, HasSubstr(" failed: No space left on device; the machine pauses"));
    told += event.count;
  }
  EXPECT_EQ(told, failing_->failed);
  EXPECT_EQ(log_.lines().size(), stops) << "a line for each, and no more";
  EXPECT_THAT(log_.lines(), Each(HasSubstr("then 'ringside ctl PATH resume' tries it again")));
}

// Before it has paused, in the middle of that, and afterwards.
TEST_F(StopMachineTest, WhoeverResumesWheneverLosesNothing) {
  const auto machine = Begin(Config(kLoad, 100));
  std::atomic<bool> over{false};
  std::thread other([&] {
    std::mt19937 random(1);
    while (!over) {
      machine->Resume();
      testing::Delay(static_cast<int>(random() % 50'000));
    }
  });
  EXPECT_TRUE(SpinUntil([&] { return IsOver(*machine); })) << "a request waits for ever";
  over = true;
  other.join();
  machine->Stop();
  EndWell(*machine);
  EXPECT_GT(failing_->failed, 0u);
}

TEST_F(StopMachineTest, WhatItKeepsIsNotSavedAndItsEndForgetsIt) {
  const auto machine = Begin(Config("rw=randrw size=1M qd=16 runtime=10s", 50));
  ASSERT_TRUE(Stops(*machine));
  EXPECT_THAT(std::string(Message(machine->internals().SaveDevices().status())),
              ::testing::MatchesRegex("disk0.*: [0-9]+ requests that failed are kept.*"));
  machine->Stop();
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  EXPECT_EQ(Kept(*machine), 0u);
}

// Though it is paused for nobody but its disk.
TEST_F(StopMachineTest, WhoPausesItToSaveItDoesNotResumeIt) {
  const auto machine = Begin(Config("rw=randrw size=1M qd=16 runtime=10s", 50));
  ASSERT_TRUE(Stops(*machine));
  const uint64_t kept = Kept(*machine);
  EXPECT_GT(kept, 0u);
  const testing::TempDirectory directory;
  EXPECT_THAT(machine->internals()
                  .PauseAndSave(
                      directory / "snapshot", {}, [](uint64_t, uint64_t) {},
                      Machine::Internals::AfterSave::kGoOn, absl::InfiniteDuration())
                  .message(),
              HasSubstr("requests that failed are kept"));
  EXPECT_TRUE(machine->paused());
  EXPECT_EQ(Kept(*machine), kept);
  EXPECT_THAT(events_.Of(EventKind::kResumed), IsEmpty());
}

TEST_F(StopMachineTest, WhoGivesAPauseUpDoesNotResumeIt) {
  MachineConfig config = Config("rw=randread size=1M qd=8 runtime=10s", 0);
  // What is in flight there keeps the machine from its rest.
  config.disks[0].backend = testing::FailingConfig{
      .backend = NullConfig{.size = kMiB, .latency_ns = 200'000'000}, .how = failing_};
  const auto machine = Begin(config);
  ExpectProgress(*machine);
  failing_->every = 2;
  // It is told once the machine has been stopped: a pause given up before that tries again what
  // failed, and a stop that finds nothing kept is none to this test.
  ASSERT_TRUE(SpinUntil([&] { return !log_.lines().empty(); }));
  failing_->every = 0;
  EXPECT_TRUE(absl::IsDeadlineExceeded(machine->Pause(absl::Milliseconds(1))) || machine->paused());
  EXPECT_TRUE(Stops(*machine));
  EXPECT_GT(Kept(*machine), 0u);
}

}  // namespace
}  // namespace ringside
