// What a machine tells of its life, and its power button.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "block/block_backend.h"
#include "ringside/device.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/recording_log.h"
#include "tests/support/vmm/recording_events.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::RecordingEvents;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr uint64_t kMiB = 1 << 20;

// A disk that fails every request.
struct FailingConfig {
  BackendDescription Describe() const { return {.name = "failing"}; }
  absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const BlockContext&) const {
    auto disk = std::make_unique<testing::MemoryDisk>(BlockInfo{.size = kMiB});
    disk->KeepRecords(false);
    disk->FailWith(EIO);
    return disk;
  }
};

class MachineEventsTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }

  MachineConfig Config(const std::string& command_line, EventSink& events) {
    MachineConfig config = GuestConfig(console_, command_line);
    config.events = &events;
    config.log = &log_;
    return config;
  }
  static std::unique_ptr<Machine> Begin(const MachineConfig& config) {
    auto machine = Machine::Create(config);
    EXPECT_TRUE(machine.ok()) << machine.status();
    EXPECT_TRUE((*machine)->Start().ok());
    return *std::move(machine);
  }

  testing::RecordingLog log_;
  const TestConsole console_;
  RecordingEvents events_;
};

TEST_F(MachineEventsTest, ALifeFromItsStartToItsEnd) {
  const auto machine = Begin(Config("echo=1", events_));
  ASSERT_TRUE(console_.WaitFor("echo ready"));
  ASSERT_TRUE(machine->Pause().ok());
  machine->Resume();
  console_.Type("x\n");
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(events_.kinds(),
              ElementsAre(EventKind::kStarted, EventKind::kConsoleSpoke, EventKind::kPaused,
                          EventKind::kResumed, EventKind::kEnded))
      << "before Wait returns";
  EXPECT_EQ(events_.events().back().detail, "power-off");
}

TEST_F(MachineEventsTest, TheEndSaysHowItCame) {
  const std::pair<const char*, const char*> kEnds[] = {
      {"end=reset", "reset"}, {"end=triple", "crash: vCPU 0: triple fault"}};
  for (const auto& [command_line, detail] : kEnds) {
    RecordingEvents events;
    Begin(Config(command_line, events))->Wait();
    EXPECT_THAT(events.events().back().detail, StartsWith(detail));
  }
}

// Its sink may go with it.
TEST_F(MachineEventsTest, AMachineThatNeverRanOrIsDestroyedTellsItsEndAsWell) {
  for (const bool starts : {false, true}) {
    auto events = std::make_unique<RecordingEvents>();
    auto machine = *Machine::Create(Config("end=spin", *events));
    EXPECT_TRUE(!starts || machine->Start().ok());
    machine.reset();
    EXPECT_EQ(events->kinds().back(), EventKind::kEnded);
    EXPECT_EQ(events->events().back().detail, "stopped");
    EXPECT_EQ(events->Of(EventKind::kStarted).size(), starts ? 1u : 0u);
  }
}

TEST_F(MachineEventsTest, WhatIsNotAMachineTellsNothing) {
  MachineConfig config = Config("", events_);
  config.kernel = "/dev/null";
  EXPECT_FALSE(Machine::Create(config).ok());
  config = Config("", events_);  // and one that comes further
  config.devices = {{.id = "none", .create = [] { return absl::UnavailableError("no device"); }}};
  EXPECT_EQ(Machine::Create(config).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(events_.events(), IsEmpty());
}

TEST_F(MachineEventsTest, ThousandsOfDiskErrorsAreFewEvents) {
  MachineConfig config = Config("disk-errors=3000", events_);
  config.disks = {{.backend = FailingConfig()}};
  const auto machine = Begin(config);
  machine->Wait();
  EXPECT_THAT(console_.Output(), Not(HasSubstr("FAIL")));
  uint64_t counted = 0;
  const std::vector<MachineEvent> errors = events_.Of(EventKind::kDiskError);
  ASSERT_THAT(errors, Not(IsEmpty()));
  for (const MachineEvent& event : errors) {
    EXPECT_EQ(event.device, "disk0");
    EXPECT_EQ(event.detail, "a read failed: Input/output error");
    counted += event.count;
  }
  EXPECT_EQ(counted, 3000u);
  const int64_t took_ns = errors.back().monotonic_ns - errors.front().monotonic_ns;
  EXPECT_LE(std::ssize(errors), 2 + took_ns / 1'000'000'000);
}

TEST_F(MachineEventsTest, ADeviceThatNeedsAResetSaysWhy) {
  MachineConfig config = Config("hostile=loop", events_);
  config.disks = {{.backend = NullConfig{.size = kMiB}, .id = "root"}};
  Begin(config)->Wait();
  const std::vector<MachineEvent> resets = events_.Of(EventKind::kNeedsReset);
  ASSERT_THAT(resets, Not(IsEmpty()));
  EXPECT_EQ(resets.front().device, "root");
  EXPECT_THAT(log_.lines(), ::testing::Contains(HasSubstr(resets.front().detail)));
}

TEST_F(MachineEventsTest, AGuestThatHasPanickedRunsOn) {
  const auto machine = Begin(Config("panics=3000", events_));
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), HasSubstr("panicked 3000"));
  uint64_t counted = 0;
  for (const MachineEvent& event : events_.Of(EventKind::kPanicked)) counted += event.count;
  EXPECT_EQ(counted, 3000u);
  EXPECT_LT(events_.events().size(), 20u);
}

// It holds the console's thread until the guest has done its work on the disk.
TEST_F(MachineEventsTest, ASinkThatIsSlowDoesNotHoldTheGuest) {
  BoundedEvent guest_is_done;
  RecordingEvents slow([&](const MachineEvent& event) {
    if (event.kind == EventKind::kStarted) guest_is_done.WaitOrAbort();
  });
  MachineConfig config = Config("rw=randread qd=4 runtime=10s", slow);
  config.disks = {{.backend = NullConfig{.size = kMiB}}};
  const auto machine = Begin(config);
  const auto reads = [&] { return machine->Statistics().disks[0].queues[0].reads; };
  EXPECT_TRUE(testing::SpinUntil([&] { return reads() > 100; }));
  guest_is_done.Notify();
  machine->Stop();
  machine->Wait();
}

TEST_F(MachineEventsTest, ASinkMayCallTheMachine) {
  Machine* made = nullptr;
  BoundedEvent made_known;
  RecordingEvents events([&](const MachineEvent& event) {
    made_known.WaitOrAbort();
    if (event.kind == EventKind::kConsoleSpoke) made->BeginPause([](const absl::Status&) {});
    if (event.kind == EventKind::kPaused) {
      EXPECT_TRUE(made->ShutDown(absl::Hours(1)).ok());
      made->Resume();
    }
    if (event.kind == EventKind::kResumed) made->Stop();
  });
  auto machine = *Machine::Create(Config("end=spin", events));
  made = machine.get();
  made_known.Notify();
  ASSERT_TRUE(machine->Start().ok());
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  EXPECT_THAT(events.Of(EventKind::kPowerOffAsked), SizeIs(1));
}

TEST_F(MachineEventsTest, TheButtonInterruptsTheGuest) {
  MachineConfig config = Config("disk=1 button=1", events_);  // beside MSI-X
  config.disks = {{.backend = NullConfig{.size = kMiB}}};
  const auto machine = Begin(config);
  ASSERT_TRUE(console_.WaitFor("button ready"));
  ASSERT_TRUE(machine->PressPowerButton().ok());
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
  EXPECT_THAT(console_.Output(), HasSubstr("button pressed"));
  EXPECT_THAT(events_.Of(EventKind::kPowerOffAsked), SizeIs(1));
  EXPECT_EQ(machine->PressPowerButton().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MachineEventsTest, APausedGuestHearsOfTheButtonWhenItGoesOn) {
  const auto machine = Begin(Config("button=1", events_));
  ASSERT_TRUE(console_.WaitFor("button ready"));
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_TRUE(machine->ShutDown(absl::Hours(1)).ok());
  EXPECT_TRUE(machine->paused());
  machine->Resume();
  EXPECT_EQ(machine->Wait().kind, EndKind::kPowerOff);
}

TEST_F(MachineEventsTest, WhoIgnoresTheButtonLosesItsPlugPausedOrNot) {
  for (const bool pauses : {false, true}) {
    const auto machine = Begin(Config("end=spin", events_));
    EXPECT_TRUE(!pauses || machine->Pause().ok());
    ASSERT_TRUE(machine->ShutDown(absl::Hours(1)).ok());
    ASSERT_TRUE(machine->ShutDown(absl::Milliseconds(20)).ok());
    EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  }
  EXPECT_THAT(log_.lines(), SizeIs(2));
}

}  // namespace
}  // namespace ringside
