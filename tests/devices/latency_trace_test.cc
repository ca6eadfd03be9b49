#include "devices/latency_trace.h"

#include <functional>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "tests/support/allocation_counter.h"

namespace ringside {
namespace {

using Interrupt = LatencyTrace::Interrupt;

LatencyHistograms histograms;

void RunOne(LatencyTrace& trace, uint16_t head, uint64_t bytes,
            Interrupt interrupt = Interrupt::kRaised) {
  trace.Seen();
  trace.Taken(head, RequestKind::kRead, bytes);
  trace.SubmitLater(head).Run();
  trace.Answered(head);
  trace.Published();
  trace.Finish(interrupt);
}

std::vector<uint64_t> Bytes(const LatencyTrace& trace) {
  std::vector<uint64_t> bytes;
  for (const LatencyRecord& record : trace.Records()) bytes.push_back(record.bytes);
  return bytes;
}

bool Ordered(const LatencyRecord& record, LatencyPoint last = LatencyPoint::kInterrupt) {
  return std::is_sorted(record.at_ns.begin(), record.at_ns.begin() + static_cast<int>(last) + 1);
}

TEST(LatencyTrace, StampsEachPointInOrder) {
  const int64_t before_ns = MonotonicNs();
  LatencyTrace trace(4, histograms);
  RunOne(trace, 3, 512);
  const std::vector<LatencyRecord> records = trace.Records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].kind, RequestKind::kRead);
  EXPECT_EQ(records[0].bytes, 512u);
  EXPECT_TRUE(Ordered(records[0]));
  EXPECT_GE(records[0].at(LatencyPoint::kSeen), before_ns - 1000);
  EXPECT_LE(records[0].at(LatencyPoint::kInterrupt), MonotonicNs() + 1000);
}

TEST(LatencyTrace, ABatchSharesWhatHappensToItAsAWhole) {
  LatencyTrace trace(4, histograms);
  trace.Seen();
  Hook* submit = nullptr;
  for (const uint16_t head : {2, 0, 1}) {
    trace.Taken(head, RequestKind::kWrite, head);
    submit = &trace.SubmitLater(head);
  }
  submit->Run();
  for (const uint16_t head : {0, 1, 2}) trace.Answered(head);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  const std::vector<LatencyRecord> records = trace.Records();
  ASSERT_EQ(Bytes(trace), (std::vector<uint64_t>{0, 1, 2})) << "as they were completed";
  for (const LatencyRecord& record : records) {
    EXPECT_TRUE(Ordered(record));
    for (const auto point : {LatencyPoint::kSeen, LatencyPoint::kSubmitted,
                             LatencyPoint::kPublished, LatencyPoint::kInterrupt}) {
      EXPECT_EQ(record.at(point), records[0].at(point)) << LatencyPointName(point);
    }
  }
  EXPECT_GE(records[0].at(LatencyPoint::kTaken), records[2].at(LatencyPoint::kTaken));
}

TEST(LatencyTrace, ARequestKeepsTheStampsOfItsOwnBatch) {
  LatencyTrace trace(4, histograms);
  trace.Seen();
  trace.Taken(0, RequestKind::kRead, 100);
  trace.SubmitLater(0).Run();
  trace.Seen();
  trace.Taken(1, RequestKind::kRead, 101);
  trace.SubmitLater(1).Run();
  trace.Answered(1);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  trace.Answered(0);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  const std::vector<LatencyRecord> records = trace.Records();
  ASSERT_EQ(Bytes(trace), (std::vector<uint64_t>{101, 100}));
  const int64_t second_seen_ns = records[0].at(LatencyPoint::kSeen);
  EXPECT_LE(records[1].at(LatencyPoint::kSubmitted), second_seen_ns + 1);
  EXPECT_GE(records[1].at(LatencyPoint::kCompleted), records[0].at(LatencyPoint::kInterrupt));
  EXPECT_TRUE(Ordered(records[0]));
  EXPECT_TRUE(Ordered(records[1]));
}

TEST(LatencyTrace, ASuppressedInterruptIsNone) {
  LatencyTrace trace(4, histograms);
  RunOne(trace, 0, 1, Interrupt::kSuppressed);
  RunOne(trace, 0, 2);
  const std::vector<LatencyRecord> records = trace.Records();
  EXPECT_EQ(records[0].at(LatencyPoint::kInterrupt), 0);
  EXPECT_TRUE(Ordered(records[0], LatencyPoint::kPublished));
  EXPECT_NE(records[1].at(LatencyPoint::kInterrupt), 0);
}

// Oldest first: whether there was an interrupt.
std::vector<bool> Stamped(const LatencyTrace& trace) {
  std::vector<bool> stamped;
  for (const LatencyRecord& record : trace.Records()) {
    stamped.push_back(record.at(LatencyPoint::kInterrupt) != 0);
  }
  return stamped;
}

TEST(LatencyTrace, AHeldInterruptIsStampedWhenItIsRaised) {
  LatencyTrace trace(4, histograms);
  RunOne(trace, 0, 1);
  RunOne(trace, 1, 2, Interrupt::kHeld);
  RunOne(trace, 2, 3, Interrupt::kHeld);
  EXPECT_EQ(Stamped(trace), (std::vector{true, false, false}));
  trace.HeldIsRaised();
  const std::vector<LatencyRecord> records = trace.Records();
  for (const LatencyRecord& record : records) EXPECT_TRUE(Ordered(record));
  EXPECT_EQ(records[1].at(LatencyPoint::kInterrupt), records[2].at(LatencyPoint::kInterrupt));
  EXPECT_LT(records[0].at(LatencyPoint::kInterrupt), records[1].at(LatencyPoint::kPublished));
  RunOne(trace, 3, 4, Interrupt::kHeld);
  trace.HeldIsRaised();
  const std::vector<LatencyRecord> later = trace.Records();
  EXPECT_LT(later[2].at(LatencyPoint::kInterrupt), later[3].at(LatencyPoint::kPublished));
}

TEST(LatencyTrace, AHeldInterruptThatIsNeverRaisedIsNone) {
  LatencyTrace trace(4, histograms);
  const auto found = [&] { RunOne(trace, 1, 1, Interrupt::kSuppressed); };
  const auto dropped = [&] { trace.HeldIsDropped(); };
  const auto reset = [&] { trace.Restart(); };
  for (const std::function<void()>& end : {std::function<void()>(found), {dropped}, {reset}}) {
    RunOne(trace, 0, 512, Interrupt::kHeld);
    const size_t held = trace.Records().size() - 1;
    end();
    RunOne(trace, 2, 512, Interrupt::kHeld);
    trace.HeldIsRaised();
    EXPECT_FALSE(Stamped(trace)[held]);
    EXPECT_TRUE(Stamped(trace).back());
  }
}

TEST(LatencyTrace, MoreMayBeHeldThanThereIsRoomFor) {
  LatencyTrace trace(4, histograms, /*capacity=*/2);
  for (uint16_t i = 0; i < 5; ++i) RunOne(trace, i % 4, i, Interrupt::kHeld);
  trace.HeldIsRaised();
  EXPECT_EQ(Stamped(trace), (std::vector{true, true}));
}

TEST(LatencyTrace, WhatIsAnsweredAtOnceIsCompletedWhenTaken) {
  LatencyTrace trace(4, histograms);
  trace.Seen();
  trace.Taken(0, RequestKind::kOther, 0);
  trace.Answered(0);
  trace.Taken(1, RequestKind::kRead, 512);
  trace.SubmitNow(1);
  trace.Answered(1);
  trace.Published();
  trace.Finish(Interrupt::kSuppressed);
  const std::vector<LatencyRecord> records = trace.Records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].at(LatencyPoint::kSubmitted), records[0].at(LatencyPoint::kTaken));
  EXPECT_EQ(records[0].at(LatencyPoint::kCompleted), records[0].at(LatencyPoint::kTaken));
  EXPECT_EQ(records[1].at(LatencyPoint::kSubmitted), records[1].at(LatencyPoint::kTaken));
  EXPECT_TRUE(Ordered(records[1], LatencyPoint::kPublished));
}

TEST(LatencyTrace, TheNewestWinAndTheOthersAreCounted) {
  LatencyTrace trace(4, histograms, /*capacity=*/3);
  for (const uint64_t i : {1, 2, 3}) RunOne(trace, 0, i);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(trace.overwritten(), 0u);
  RunOne(trace, 0, 4);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{2, 3, 4}));
  EXPECT_EQ(trace.overwritten(), 1u);
  for (uint64_t i = 5; i <= 100; ++i) RunOne(trace, 0, i);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{98, 99, 100}));
  EXPECT_EQ(trace.overwritten(), 97u);
}

TEST(LatencyTrace, ABatchLargerThanTheRingLeavesItsEnd) {
  LatencyTrace trace(8, histograms, /*capacity=*/3);
  trace.Seen();
  for (uint16_t head = 0; head < 8; ++head) {
    trace.Taken(head, RequestKind::kFlush, head);
    trace.Answered(head);
  }
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{5, 6, 7}));
  EXPECT_EQ(trace.overwritten(), 5u);
}

TEST(LatencyTrace, ARestartForgetsWhatWasUnderWay) {
  LatencyTrace trace(2, histograms);
  RunOne(trace, 0, 1);
  trace.Seen();
  trace.Taken(0, RequestKind::kRead, 2);
  trace.SubmitLater(0);
  trace.Taken(1, RequestKind::kRead, 3);
  trace.Answered(1);
  trace.Restart();
  // As many as the queue has heads, again.
  Hook* submit = nullptr;
  for (const uint16_t head : {0, 1}) {
    trace.Taken(head, RequestKind::kRead, 4);
    submit = &trace.SubmitLater(head);
  }
  submit->Run();
  for (const uint16_t head : {0, 1}) trace.Answered(head);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{1, 4, 4}));
}

// What was taken before the trace began.
TEST(LatencyTrace, ARequestOfWhichItHasNotSeenTheBeginningHasNoRecord) {
  LatencyHistograms empty;
  LatencyTrace trace(2, empty);
  trace.SubmitLater(0).Run();  // as on another thread, where a request begins anew
  trace.Answered(0);
  trace.Answered(1);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_TRUE(trace.Records().empty());
  EXPECT_TRUE(empty.Read().empty());
}

TEST(LatencyTrace, ASnapshotIsOfItsMomentAndAllocatesNothing) {
  LatencyTrace trace(4, histograms, /*capacity=*/3);
  for (uint64_t i = 1; i <= 5; ++i) RunOne(trace, 0, i);
  LatencyTrace::Snapshot snapshot(3);
  const uint64_t before = testing::AllocationsOfThisThread();
  trace.CopyTo(snapshot);
  EXPECT_EQ(testing::AllocationsOfThisThread(), before);
  RunOne(trace, 0, 6);
  ASSERT_EQ(snapshot.Records().size(), 3u);
  EXPECT_EQ(snapshot.Records().back().bytes, 5u);
  EXPECT_EQ(snapshot.overwritten(), 2u);
}

// ---- Histograms ----

TEST(LatencyHistogram, ABoundBelongsToTheBucketBelowIt) {
  LatencyHistograms all;
  for (const uint64_t ns :
       std::array<uint64_t, 5>{0, 1'000, 1'001, 10'000'000'000, 10'000'000'001}) {
    all.Add(RequestKind::kFlush, ns);
  }
  const std::vector<LatencyHistogram> read = all.Read();
  ASSERT_EQ(read.size(), 1u) << "of one kind";
  EXPECT_EQ(read[0].kind, RequestKind::kFlush);
  EXPECT_EQ(read[0].counts[0], 2u);
  EXPECT_EQ(read[0].counts[1], 1u);
  EXPECT_EQ(read[0].counts[kLatencyBuckets - 2], 1u);
  EXPECT_EQ(read[0].counts[kLatencyBuckets - 1], 1u);
  EXPECT_EQ(read[0].count(), 5u);
  EXPECT_EQ(read[0].sum_ns, 20'000'002'002u);
}

TEST(LatencyHistogram, TheBoundsAscend) {
  EXPECT_TRUE(std::ranges::is_sorted(kLatencyBoundsNs, std::less_equal()));
}

// It adds up to what the records say, whenever the counter's rate was measured.
TEST(LatencyHistogram, HasTheTimesOfTheTrace) {
  LatencyHistograms all;
  LatencyTrace trace(1, all);
  for (int i = 0; i < 1000; ++i) RunOne(trace, 0, 512);
  double sum_ns = 0;
  for (const LatencyRecord& record : trace.Records()) {
    sum_ns +=
        static_cast<double>(record.at(LatencyPoint::kPublished) - record.at(LatencyPoint::kSeen));
  }
  const std::vector<LatencyHistogram> read = all.Read();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].count(), 1000u);
  // Each is cut to whole nanoseconds in both.
  EXPECT_NEAR(static_cast<double>(read[0].sum_ns), sum_ns, 0.2 * sum_ns + 2000);
}

// ---- Drivers that break the rules, and queues that are at their end ----

// Nobody publishes for a queue that is broken or stopped, while what it has in flight completes.
// The lists have room for each head once, and AddressSanitizer looks at what is behind them.
TEST(LatencyTrace, WhatIsNeverPublishedTakesNoMoreThanAPlaceAHead) {
  LatencyTrace trace(4, histograms);
  trace.Seen();
  for (int round = 0; round < 1000; ++round) {
    for (uint16_t head = 0; head < 4; ++head) {
      trace.Taken(head, RequestKind::kRead, 512);
      if (round % 2 == 0) trace.SubmitLater(head);
      trace.Answered(head);
    }
  }
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_EQ(trace.Records().size(), 4u);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_EQ(trace.Records().size(), 4u) << "once";
}

TEST(LatencyTrace, AHeadThatIsUsedAgainTooSoonHasTheRecordOfTheLaterRequest) {
  LatencyTrace trace(2, histograms);
  trace.Seen();
  trace.Taken(0, RequestKind::kRead, 1);
  trace.Answered(0);
  trace.Taken(1, RequestKind::kRead, 2);
  trace.Answered(1);
  trace.Seen();
  trace.Taken(0, RequestKind::kWrite, 3);
  trace.Answered(0);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{3, 2}));
  for (const LatencyRecord& record : trace.Records()) EXPECT_TRUE(Ordered(record));
}

TEST(LatencyTrace, AHeadThatIsUnderWayAgainIsRecordedWhenItIsDone) {
  LatencyTrace trace(1, histograms);
  trace.Seen();
  trace.Taken(0, RequestKind::kRead, 1);
  trace.Answered(0);
  trace.Taken(0, RequestKind::kWrite, 2);
  Hook& submit = trace.SubmitLater(0);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_TRUE(trace.Records().empty()) << "it is not done";
  submit.Run();
  trace.Answered(0);
  trace.Published();
  trace.Finish(Interrupt::kRaised);
  EXPECT_EQ(Bytes(trace), (std::vector<uint64_t>{2}));
  EXPECT_TRUE(Ordered(trace.Records()[0]));
}

TEST(LatencyTrace, NothingIsNoRecord) {
  EXPECT_TRUE(LatencyTrace(4, histograms).Records().empty());
}

}  // namespace
}  // namespace ringside
