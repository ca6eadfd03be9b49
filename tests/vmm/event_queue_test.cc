#include "vmm/event_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "base/clock.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/vmm/recording_events.h"
#include "vmm/event_json.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::RecordingEvents;
using ::testing::SizeIs;

class EventQueueTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventQueue> Make(EventSink* sink, absl::Duration pace = EventQueue::kPace) {
    auto queue = EventQueue::Create(sink, *io_thread_, pace);
    EXPECT_TRUE(queue.ok()) << queue.status();
    (*queue)->Begin();
    return *std::move(queue);
  }
  static void End(EventQueue& queue) {
    queue.End("stopped");
    queue.AwaitEnd();
  }
  static std::vector<int64_t> Sequences(const RecordingEvents& events) {
    std::vector<int64_t> sequences;
    for (const MachineEvent& event : events.events()) sequences.push_back(event.sequence);
    return sequences;
  }

  // Keeps the sink from returning from its first event.
  BoundedEvent entered_, go_on_;
  RecordingEvents held_{[this](const MachineEvent& event) {
    if (event.sequence != 1) return;
    entered_.Notify();
    go_on_.WaitOrAbort();
  }};
  const std::unique_ptr<IoThread> io_thread_ = *IoThread::Start("io");
};

TEST_F(EventQueueTest, TellsInOrderOnItsThreadAndTheEndLast) {
  std::vector<std::thread::id> threads;
  RecordingEvents events([&](const auto&) { threads.push_back(std::this_thread::get_id()); });
  std::thread::id own;
  testing::RunOn(*io_thread_, [&] { own = std::this_thread::get_id(); });
  const auto queue = Make(&events);
  const int64_t before_ns = MonotonicNs();
  for (const EventKind kind : {EventKind::kStarted, EventKind::kPaused, EventKind::kResumed}) {
    queue->Put(kind);
  }
  End(*queue);
  queue->Put(EventKind::kPaused);
  queue->Of("disk0")->RequestFailed(BlockOp::kRead, EIO);
  testing::LetTurn(*io_thread_, 2);
  EXPECT_THAT(events.kinds(), ElementsAre(EventKind::kStarted, EventKind::kPaused,
                                          EventKind::kResumed, EventKind::kEnded));
  EXPECT_THAT(Sequences(events), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(threads, ElementsAre(own, own, own, own));
  for (const MachineEvent& event : events.events()) {
    EXPECT_GE(event.monotonic_ns, before_ns);
    EXPECT_LE(event.monotonic_ns, MonotonicNs());
    EXPECT_EQ(event.count, 1u);
  }
  EXPECT_EQ(events.events().back().detail, "stopped");
}

TEST_F(EventQueueTest, WhatWaitsIsToldInTheOrderInWhichItHappened) {
  const auto queue = Make(&held_);
  DeviceReports& disk = *queue->Of("disk0");
  queue->Put(EventKind::kStarted);
  entered_.WaitOrAbort();
  const auto later = [] {  // by the clock that they are ordered by
    const int64_t now_ns = MonotonicNs();
    EXPECT_TRUE(testing::SpinUntil([&] { return MonotonicNs() > now_ns; }));
  };
  queue->Put(EventKind::kPaused);
  later();
  disk.RequestFailed(BlockOp::kRead, EIO);
  later();
  queue->Put(EventKind::kResumed);
  go_on_.Notify();
  End(*queue);
  EXPECT_THAT(held_.kinds(),
              ElementsAre(EventKind::kStarted, EventKind::kPaused, EventKind::kDiskError,
                          EventKind::kResumed, EventKind::kEnded));
}

TEST_F(EventQueueTest, ADetailOfAnyBytesIsALineOfJson) {
  RecordingEvents events;
  const auto queue = Make(&events);
  queue->End("failure: cannot open '\xff\n'");
  queue->AwaitEnd();
  EXPECT_EQ(EventJson(events.events().back())["detail"], "failure: cannot open '\\xff\\x0a'");
  EXPECT_NO_THROW(EventJson(events.events().back()).dump());
}

TEST_F(EventQueueTest, BeforeItBeginsNothingIsTold) {
  RecordingEvents events;
  const auto queue = *EventQueue::Create(&events, *io_thread_);
  queue->Put(EventKind::kStarted);
  queue->Of("disk0")->NeedsReset("why");
  End(*queue);
  EXPECT_THAT(events.events(), IsEmpty());
}

// As of a machine whose memory's handler goes while the machine is being made.
TEST_F(EventQueueTest, AnEndBeforeItBeginsIsToldOnceItHasBegun) {
  RecordingEvents events;
  const auto queue = *EventQueue::Create(&events, *io_thread_);
  queue->End("failure: gone");
  testing::LetTurn(*io_thread_, 2);
  EXPECT_THAT(events.events(), IsEmpty());
  queue->Begin();
  queue->Put(EventKind::kStarted);
  queue->End("stopped");
  queue->AwaitEnd();
  EXPECT_THAT(events.kinds(), ElementsAre(EventKind::kEnded));
  EXPECT_EQ(events.events().front().detail, "failure: gone");
}

TEST_F(EventQueueTest, WithoutASinkDevicesReportToNobody) {
  const auto queue = Make(nullptr);
  EXPECT_EQ(queue->Of("disk0"), nullptr);
  queue->Put(EventKind::kStarted);
  End(*queue);
}

TEST_F(EventQueueTest, WhatAGuestRepeatsIsOneEventWithTheirCount) {
  const auto queue = Make(&held_);
  DeviceReports& disk = *queue->Of("disk0");
  DeviceReports& other = *queue->Of("disk1");
  queue->Put(EventKind::kStarted);
  entered_.WaitOrAbort();
  for (int i = 0; i < 5000; ++i) disk.RequestFailed(BlockOp::kRead, i == 0 ? EIO : ENOSPC);
  for (int i = 0; i < 7; ++i) disk.RequestFailed(BlockOp::kWriteZeroes, EINVAL);
  other.NeedsReset("a ring\nis broken");
  for (int i = 0; i < 3; ++i) queue->Panicked("");
  go_on_.Notify();
  End(*queue);
  const std::vector<MachineEvent> events = held_.events();
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_EQ(events[1].device, "disk0");
  EXPECT_EQ(events[1].detail, "a read failed: Input/output error") << "the first of them";
  EXPECT_EQ(events[1].count, 5000u);
  EXPECT_EQ(events[2].detail, "a write of zeroes failed: Invalid argument");
  EXPECT_EQ(events[2].count, 7u);
  EXPECT_EQ(events[3].kind, EventKind::kNeedsReset);
  EXPECT_EQ(events[3].device, "disk1");
  EXPECT_EQ(events[3].detail, "a ring\\x0ais broken") << "one line, whatever it came from";
  EXPECT_EQ(events[4].kind, EventKind::kPanicked);
  EXPECT_EQ(events[4].count, 3u);
  EXPECT_THAT(Sequences(held_), ElementsAre(1, 2, 3, 4, 5, 6));
}

// Thousands, over many times the pace.
TEST_F(EventQueueTest, AFloodIsToldAtOnceAndThenOnceInAWhile) {
  constexpr absl::Duration kPace = absl::Milliseconds(20);
  RecordingEvents events;
  const auto queue = Make(&events, kPace);
  DeviceReports& disk = *queue->Of("disk0");
  const int64_t begin = MonotonicNs();
  uint64_t errors = 0;
  while (events.Of(EventKind::kDiskError).size() < 4) {
    disk.RequestFailed(BlockOp::kRead, EIO);
    ++errors;
    ASSERT_LT(MonotonicNs() - begin, absl::ToInt64Nanoseconds(testing::kWaitLimit));
  }
  EXPECT_GE(MonotonicNs() - begin, absl::ToInt64Nanoseconds(3 * kPace));
  End(*queue);
  const std::vector<MachineEvent> told = events.Of(EventKind::kDiskError);
  uint64_t counted = 0;
  for (const MachineEvent& event : told) counted += event.count;
  EXPECT_EQ(counted, errors) << "none is forgotten at the end";
  EXPECT_LE(told.size(), 5u);
}

TEST_F(EventQueueTest, TheAlarmTellsWhatNothingElseDoes) {
  RecordingEvents events;
  const auto queue = Make(&events, absl::Milliseconds(20));
  DeviceReports& disk = *queue->Of("disk0");
  disk.NeedsReset("first");
  ASSERT_TRUE(events.WaitFor(EventKind::kNeedsReset));
  disk.NeedsReset("second");
  EXPECT_TRUE(events.WaitFor(EventKind::kNeedsReset, 2));
  End(*queue);
}

TEST_F(EventQueueTest, WhatFindsNoRoomLeavesAGapInTheSequence) {
  const auto queue = Make(&held_);
  queue->Put(EventKind::kStarted);
  entered_.WaitOrAbort();
  for (size_t i = 0; i < EventQueue::kMostWaiting + 10; ++i) queue->Put(EventKind::kPaused);
  go_on_.Notify();
  ASSERT_TRUE(held_.WaitFor(EventKind::kPaused, EventQueue::kMostWaiting));
  queue->Put(EventKind::kResumed);
  End(*queue);
  const std::vector<MachineEvent> events = held_.events();
  ASSERT_THAT(events, SizeIs(EventQueue::kMostWaiting + 3));
  const auto last_paused = static_cast<int64_t>(EventQueue::kMostWaiting) + 1;
  EXPECT_EQ(events[EventQueue::kMostWaiting].sequence, last_paused);
  EXPECT_EQ(events[EventQueue::kMostWaiting + 1].kind, EventKind::kResumed);
  EXPECT_EQ(events[EventQueue::kMostWaiting + 1].sequence, last_paused + 11);
  EXPECT_EQ(events.back().kind, EventKind::kEnded) << "which always has room";
}

TEST_F(EventQueueTest, ARequestThatIsKeptIsNoErrorThatWasAnswered) {
  RecordingEvents events;
  const auto queue = Make(&events);
  DeviceReports& disk = *queue->Of("disk0");
  for (int i = 0; i < 3; ++i) disk.RequestKept(BlockOp::kWrite, ENOSPC);
  disk.RequestFailed(BlockOp::kWrite, ENOSPC);
  End(*queue);
  uint64_t kept = 0;
  for (const MachineEvent& event : events.Of(EventKind::kDiskStopped)) {
    EXPECT_EQ(event.device, "disk0");
    EXPECT_EQ(
        event.detail,
        "a write failed: No space left on device; the machine pauses, and tries it again when "
        "it is resumed");
    kept += event.count;
  }
  EXPECT_EQ(kept, 3u);
  EXPECT_THAT(events.Of(EventKind::kDiskError), SizeIs(1));
}

TEST(EventJsonTest, HasAllThatTheEventSays) {
  const MachineEvent event = {.kind = EventKind::kDiskError,
                              .sequence = 3,
                              .time = absl::FromUnixNanos(1'792'843'200'000'000'001),
                              .monotonic_ns = 5,
                              .device = "disk0",
                              .detail = "a read failed: Input/output error",
                              .count = 7};
  EXPECT_EQ(EventJson(event).dump(),
            R"({"event":"disk-error","sequence":3,"time":"2026-10-24T12:00:00.000000001Z",)"
            R"("monotonic_ns":5,"device":"disk0","detail":"a read failed: Input/output error",)"
            R"("count":7})");
  const Json bare = EventJson({.kind = EventKind::kStarted, .sequence = 1});
  EXPECT_FALSE(bare.contains("device"));
  EXPECT_FALSE(bare.contains("detail"));
}

TEST(EventJsonTest, EachKindHasItsName) {
  std::vector<std::string> names;
  for (int kind = 0; kind <= static_cast<int>(EventKind::kEnded); ++kind) {
    names.emplace_back(EventName(static_cast<EventKind>(kind)));
  }
  EXPECT_THAT(names, ElementsAre("started", "console-spoke", "paused", "resumed", "disk-error",
                                 "disk-stopped", "needs-reset", "panicked", "agent-up",
                                 "agent-lost", "power-off-asked", "ended"));
}

}  // namespace
}  // namespace ringside
