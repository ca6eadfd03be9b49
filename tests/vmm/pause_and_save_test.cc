// Machines that are paused to be saved, and what others do with them meanwhile: pause them, resume
// them, save them, too, and end them.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <utility>

#include "tests/support/races.h"
#include "tests/support/recording_log.h"
#include "tests/support/vmm/recording_events.h"
#include "tests/support/vmm/saving_machine.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::SpinUntil;

class PauseAndSaveTest : public testing::SavingMachine {
 protected:
  using AfterSave = Machine::Internals::AfterSave;

  std::unique_ptr<Machine> BeginOne() {
    MachineConfig config = Config("rw=randread qd=1 runtime=60s wait=irq");
    config.disks = {{.backend = NullConfig{.size = 16 * kMiB}}};
    config.events = &events_;
    config.log = &log_;
    auto machine = Begin(config);
    ExpectProgress(*machine);
    return machine;
  }
  // `meanwhile` is called once.
  absl::Status PauseAndSave(Machine& machine, int place, AfterSave after,
                            const std::function<void()>& meanwhile) const {
    bool called = false;
    return machine.internals().PauseAndSave(
        Place(place), {},
        [&](uint64_t, uint64_t) {
          if (!std::exchange(called, true)) meanwhile();
        },
        after, absl::InfiniteDuration());
  }

  testing::RecordingLog log_;
  testing::RecordingEvents events_;
};

TEST_F(PauseAndSaveTest, TheMachineGoesOnUnlessItWasPausedBefore) {
  const auto machine = BeginOne();
  ASSERT_EQ(PauseAndSave(*machine, 1, AfterSave::kGoOn, [] {}), absl::OkStatus());
  EXPECT_FALSE(machine->paused());
  ExpectProgress(*machine);
  ASSERT_TRUE(machine->Pause().ok());
  ASSERT_EQ(PauseAndSave(*machine, 2, AfterSave::kGoOn, [] {}), absl::OkStatus());
  EXPECT_TRUE(machine->paused());
  EXPECT_FALSE(PauseAndSave(*machine, 2, AfterSave::kStop, [] {}).ok()) << "a snapshot is there";
  EXPECT_FALSE(IsOver(*machine));
  EXPECT_TRUE(machine->paused());
}

// Whoever was told that the machine is paused may copy its disks by then.
TEST_F(PauseAndSaveTest, APauseThatComesMeanwhileIsNotEnded) {
  const auto machine = BeginOne();
  const auto pause = [&] { EXPECT_TRUE(machine->Pause().ok()); };
  ASSERT_EQ(PauseAndSave(*machine, 1, AfterSave::kGoOn, pause), absl::OkStatus());
  EXPECT_TRUE(machine->paused());
  EXPECT_TRUE(events_.Of(EventKind::kResumed).empty());
  machine->Resume();
  ExpectProgress(*machine);
  const auto pause_and_resume = [&] {
    pause();
    machine->Resume();
    EXPECT_TRUE(machine->paused());
  };
  ASSERT_EQ(PauseAndSave(*machine, 2, AfterSave::kGoOn, pause_and_resume), absl::OkStatus());
  EXPECT_FALSE(machine->paused());
  ExpectProgress(*machine);
}

// Of each the pause ends with the save, of the machine once neither needs it.
TEST_F(PauseAndSaveTest, OfTwoAtOnceEachIsDone) {
  const auto machine = BeginOne();
  for (const int place : {1, 3}) {
    Event begins;
    std::thread other;
    const auto save_other = [&] {
      other = std::thread([&] {
        begins.Notify();
        const auto still = [&] { EXPECT_TRUE(machine->paused()); };
        EXPECT_EQ(PauseAndSave(*machine, place + 1, AfterSave::kGoOn, still), absl::OkStatus());
      });
      begins.Wait();
      testing::Delay(5'000'000);  // so that it most likely has found the machine paused
    };
    EXPECT_EQ(PauseAndSave(*machine, place, AfterSave::kGoOn, save_other), absl::OkStatus());
    other.join();
    EXPECT_FALSE(machine->paused());
    ExpectProgress(*machine);
  }
}

// Its disks stay as they were saved.
TEST_F(PauseAndSaveTest, WhoResumesMeanwhileDoesNotKeepItFromItsEnd) {
  const auto machine = BeginOne();
  uint64_t before = 0;
  ASSERT_EQ(PauseAndSave(*machine, 1, AfterSave::kStop,
                         [&] {
                           before = Requests(*machine);
                           machine->Resume();
                         }),
            absl::OkStatus());
  EXPECT_TRUE(IsOver(*machine));
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  EXPECT_EQ(Requests(*machine), before);
  EXPECT_TRUE(events_.Of(EventKind::kResumed).empty());
  EXPECT_TRUE(OpenSnapshot(Place(1)).ok());
}

TEST_F(PauseAndSaveTest, AStopEndsASave) {
  const auto machine = BeginOne();
  int steps = 0;
  ASSERT_TRUE(machine->Pause().ok());
  const absl::Status status = machine->Save(Place(1), {}, [&](uint64_t, uint64_t) {
    ++steps;
    machine->Stop();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_EQ(steps, 1);
  EXPECT_FALSE(fs::exists(Place(1)));
  EXPECT_EQ(machine->Wait().kind, EndKind::kStopped);
  EXPECT_TRUE(log_.lines().empty());
}

// As one is whose storage hangs.
TEST_F(PauseAndSaveTest, TheLogTellsOfASaveThatKeepsTheMachineFromItsEnd) {
  const auto machine = BeginOne();
  std::thread owner;
  const auto stop = [&] {
    owner = std::thread([&] {
      machine->Stop();
      machine->Wait();
    });
    EXPECT_TRUE(SpinUntil([&] { return !log_.lines().empty(); }));
  };
  EXPECT_EQ(PauseAndSave(*machine, 1, AfterSave::kGoOn, stop).code(), absl::StatusCode::kCancelled);
  owner.join();
  EXPECT_THAT(log_.lines(), ::testing::ElementsAre(HasSubstr("a call still saves the machine")));
}

}  // namespace
}  // namespace ringside
