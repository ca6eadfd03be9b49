#include "vmm/power_button.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/recording_log.h"
#include "tests/support/vmm/recording_events.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RecordingEvents;

class PowerButtonTest : public ::testing::Test {
 protected:
  PowerButtonTest() { events_queue_->Begin(); }
  ~PowerButtonTest() override {
    button_.End();
    button_.Stop();
    events_queue_->End("stopped");
    events_queue_->AwaitEnd();
  }
  bool Interrupted() const {
    return testing::WaitForFd(interrupt_.fd(), POLLIN, absl::ZeroDuration());
  }

  const EventFd interrupt_ = *EventFd::Create();
  testing::RecordingLog log_;
  RecordingEvents events_;
  BoundedEvent pulled_;
  std::unique_ptr<EventQueue> events_queue_;
  const std::unique_ptr<IoThread> io_thread_ = *IoThread::Start("io");
  PowerButton button_{{.interrupt = interrupt_,
                       .io_thread = *io_thread_,
                       .events = *(events_queue_ = *EventQueue::Create(&events_, *io_thread_)),
                       .log = Logger(&log_),
                       .pull_plug = [this] {
                         pulled_.Notify();
                         button_.End();  // as a machine that is over does
                       }}};
};

TEST_F(PowerButtonTest, InterruptsAndTells) {
  button_.Begin();
  ASSERT_TRUE(button_.Press().ok());
  EXPECT_TRUE(Interrupted());
  ASSERT_TRUE(events_.WaitFor(EventKind::kPowerOffAsked));
  EXPECT_FALSE(pulled_.HasBeenNotified());
}

TEST_F(PowerButtonTest, IsThereWhileTheMachineRuns) {
  for (const char* why : {"not been started", "is over"}) {
    for (const absl::Status& status : {button_.Press(), button_.ShutDown(absl::ZeroDuration())}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
    button_.End();
  }
  EXPECT_FALSE(Interrupted());
  testing::LetTurn(*io_thread_);
  EXPECT_FALSE(pulled_.HasBeenNotified());
}

TEST_F(PowerButtonTest, PullsThePlugWhenTheLimitIsOver) {
  button_.Begin();
  const int64_t begin = MonotonicNs();
  ASSERT_TRUE(button_.ShutDown(absl::Milliseconds(20)).ok());
  EXPECT_TRUE(Interrupted());
  ASSERT_TRUE(pulled_.Wait());
  EXPECT_GE(MonotonicNs() - begin, 20'000'000);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("its plug is pulled")));
}

TEST_F(PowerButtonTest, AnotherLimitShortensAndNeverLengthens) {
  button_.Begin();
  ASSERT_TRUE(button_.ShutDown(absl::InfiniteDuration()).ok());
  ASSERT_TRUE(button_.ShutDown(absl::Hours(1)).ok());
  ASSERT_TRUE(button_.ShutDown(absl::Milliseconds(500)).ok());
  ASSERT_TRUE(button_.ShutDown(absl::Hours(2)).ok());
  EXPECT_TRUE(pulled_.Wait());
  EXPECT_TRUE(events_.WaitFor(EventKind::kPowerOffAsked, 4));
}

TEST_F(PowerButtonTest, NoTimeIsALimitToo) {
  button_.Begin();
  ASSERT_TRUE(button_.ShutDown(-absl::InfiniteDuration()).ok());
  EXPECT_TRUE(pulled_.Wait());
}

TEST_F(PowerButtonTest, AnEndCancelsTheLimit) {
  button_.Begin();
  ASSERT_TRUE(button_.ShutDown(absl::Milliseconds(500)).ok());
  button_.End();
  const int64_t begin = MonotonicNs();
  ASSERT_TRUE(testing::SpinUntil([&] { return MonotonicNs() - begin > 700'000'000; }));
  button_.Stop();
  EXPECT_FALSE(pulled_.HasBeenNotified());
  EXPECT_THAT(log_.lines(), IsEmpty());
}

}  // namespace
}  // namespace ringside
