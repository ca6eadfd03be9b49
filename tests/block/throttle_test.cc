// Limits with a clock of the test's own: what goes when.
#include "block/throttle.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "block/throttle_gate.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

constexpr int64_t kUs = 1000;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStartNs = 5'000 * kSecond;

// A queue that always has another request, and is woken as late as the test says.
class BusyQueue {
 public:
  explicit BusyQueue(DiskThrottle& throttle) : throttle_(throttle), gate_(throttle, stats_) {}

  // Everything that goes at `now_ns`. Returns when it wants to be asked again.
  int64_t Run(int64_t now_ns) {
    gate_.Begin(throttle_.version(), now_ns);
    for (int i = 0; i < 100'000; ++i) {
      if (i > 0 && i % per_turn == 0) {
        now_ns += kUs;
        gate_.GoOn(throttle_.version(), now_ns);
      }
      if (!gate_.Admit(op, bytes)) return gate_.ask_again_ns();
      gone_ns.push_back(now_ns);
    }
    ADD_FAILURE() << "it never has to wait";
    return INT64_MAX;
  }
  void RunUntil(int64_t end_ns, int64_t late_ns = 0) {
    for (int64_t now_ns = next_ns; now_ns < end_ns; now_ns = next_ns) {
      next_ns = Run(now_ns);
      ASSERT_GT(next_ns, now_ns);
      next_ns += late_ns;
    }
  }
  bool Admits(int64_t now_ns) {
    gate_.Begin(throttle_.version(), now_ns);
    return gate_.Admit(op, bytes);
  }
  bool GoesOn(int64_t now_ns) {
    gate_.GoOn(throttle_.version(), now_ns);
    return gate_.Admit(op, bytes);
  }
  void Interrupt(int64_t now_ns) { gate_.Interrupt(now_ns); }

  BlockOp op = BlockOp::kRead;
  uint64_t bytes = 4096;
  int per_turn = 100'000;
  int64_t next_ns = kStartNs;
  std::vector<int64_t> gone_ns;
  ThrottleStats stats_;

 private:
  DiskThrottle& throttle_;
  ThrottleGate gate_;
};

ThrottleLimits Iops(uint64_t average) {
  return {.iops_total = {.average = average}};
}

TEST(ThrottleTest, ADiskWithoutLimitsHasNoVersion) {
  ThrottleGroup group("g");
  DiskThrottle alone, member(&group);
  EXPECT_EQ(alone.version(), 0u);
  EXPECT_EQ(member.version(), 0u);
  group.Set(Iops(100));
  EXPECT_NE(member.version(), 0u);
  EXPECT_EQ(alone.version(), 0u);
  group.Set({});
  EXPECT_EQ(member.version(), 0u);
  member.Set(Iops(1));
  EXPECT_NE(member.version(), 0u);
}

TEST(ThrottleTest, RequestsAreSpacedEvenlyFromTheFirstOn) {
  DiskThrottle throttle;
  throttle.Set(Iops(50'000));
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + kSecond);
  ASSERT_EQ(queue.gone_ns.size(), 50'000u);
  for (size_t i = 0; i < queue.gone_ns.size(); ++i) {
    ASSERT_EQ(queue.gone_ns[i], kStartNs + static_cast<int64_t>(i) * 20 * kUs);
  }
  EXPECT_EQ(queue.stats_.waited.Get(), 50'000u);
}

// A rate that is no whole number of nanoseconds, by bytes.
TEST(ThrottleTest, NoRateIsRoundedAway) {
  DiskThrottle throttle;
  throttle.Set({.bps_total = {.average = uint64_t{10} << 30}});
  BusyQueue queue(throttle);
  queue.bytes = 512;
  queue.RunUntil(kStartNs + kSecond / 10, 50 * kUs);
  const double bytes = 512.0 * static_cast<double>(queue.gone_ns.size());
  EXPECT_NEAR(bytes, (uint64_t{1} << 30), 0.001 * (uint64_t{1} << 30));
}

TEST(ThrottleTest, LateWakeUpsTakeNothingFromTheRate) {
  DiskThrottle throttle;
  throttle.Set(Iops(50'000));
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + kSecond, 70 * kUs);
  EXPECT_NEAR(static_cast<double>(queue.gone_ns.size()), 50'000, 10);
}

TEST(ThrottleTest, WhoIsLateIsSoInTheTurnsThatFollow) {
  DiskThrottle throttle;
  throttle.Set(Iops(50'000));
  BusyQueue queue(throttle);
  queue.per_turn = 4;
  queue.RunUntil(kStartNs + kSecond, 200 * kUs);
  EXPECT_NEAR(static_cast<double>(queue.gone_ns.size()), 50'000, 15);
}

// Else it would have a burst that nobody asked for.
TEST(ThrottleTest, IdleTimeIsNotSavedUp) {
  DiskThrottle throttle;
  throttle.Set(Iops(1000));
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + 10 * kMs);
  queue.gone_ns.clear();
  queue.next_ns = kStartNs + kSecond;
  queue.RunUntil(kStartNs + kSecond + 10 * kMs);
  // It was not looked at for long: what came due in the last 100 ms of that goes at once.
  EXPECT_NEAR(static_cast<double>(queue.gone_ns.size()), 110, 5);
  // A queue that had nothing to do has nothing saved.
  BusyQueue other(throttle);
  EXPECT_FALSE(other.Admits(kStartNs + kSecond + 10 * kMs));
  EXPECT_TRUE(other.Admits(kStartNs + 5 * kSecond));
  EXPECT_TRUE(other.Admits(kStartNs + 10 * kSecond));
  EXPECT_FALSE(other.Admits(kStartNs + 10 * kSecond));
}

TEST(ThrottleTest, ALargeRequestGoesAndIsPaidForAfterwards) {
  DiskThrottle throttle;
  throttle.Set({.bps_write = {.average = 1 << 20}});
  BusyQueue queue(throttle);
  queue.op = BlockOp::kWrite;
  queue.bytes = 4 << 20;
  EXPECT_TRUE(queue.Admits(kStartNs));
  queue.bytes = 512;
  EXPECT_FALSE(queue.Admits(kStartNs + 1));
  EXPECT_FALSE(queue.Admits(kStartNs + 4 * kSecond - 1));
  EXPECT_TRUE(queue.Admits(kStartNs + 4 * kSecond));
}

TEST(ThrottleTest, EachKindHasItsOwnLimitAndTheTotal) {
  DiskThrottle throttle;
  throttle.Set({.iops_total = {.average = 1000}, .iops_write = {.average = 100}});
  BusyQueue reads(throttle), writes(throttle);
  EXPECT_TRUE(reads.Admits(kStartNs));
  for (const BlockOp op : {BlockOp::kWrite, BlockOp::kFlush, BlockOp::kDiscard}) {
    BusyQueue queue(throttle);
    queue.op = op;
    EXPECT_FALSE(queue.Admits(kStartNs)) << "the read was the first of the total";
  }
  // Those three have their places in the total.
  EXPECT_FALSE(reads.Admits(kStartNs + 3 * kMs));
  EXPECT_TRUE(reads.Admits(kStartNs + 4 * kMs));
}

TEST(ThrottleTest, RequestsOfManyBytesCountAsSeveral) {
  DiskThrottle throttle;
  ThrottleLimits limits = Iops(1000);
  limits.iops_size = 8192;
  throttle.Set(limits);
  BusyQueue queue(throttle);
  queue.bytes = 64 << 10;
  EXPECT_TRUE(queue.Admits(kStartNs));
  queue.bytes = 4096;
  EXPECT_FALSE(queue.Admits(kStartNs + 8 * kMs - 1));
  EXPECT_TRUE(queue.Admits(kStartNs + 8 * kMs));
  EXPECT_FALSE(queue.Admits(kStartNs + 9 * kMs - 1)) << "a small one is one";
  EXPECT_TRUE(queue.Admits(kStartNs + 9 * kMs));
}

// Ten times the average for two seconds, evenly, and then the average.
TEST(ThrottleTest, BurstsAreAsLongAndAsFastAsAsked) {
  DiskThrottle throttle;
  throttle.Set({.iops_total = {.average = 100, .max = 1000, .max_length = 2}});
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + 4 * kSecond);
  size_t burst = 0;
  for (const int64_t gone_ns : queue.gone_ns) burst += gone_ns < kStartNs + 2 * kSecond ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(burst), 2000, 2);
  EXPECT_NEAR(static_cast<double>(queue.gone_ns.size() - burst), 200, 2);
  EXPECT_EQ(queue.gone_ns[1] - queue.gone_ns[0], kMs);
}

TEST(ThrottleTest, ThoseWhoShareALimitHaveTheirTurns) {
  ThrottleGroup group("g");
  group.Set(Iops(3000));
  DiskThrottle first(&group), second(&group), third(&group);
  std::vector<std::unique_ptr<BusyQueue>> queues;
  for (DiskThrottle* throttle : {&first, &second, &third}) {
    queues.push_back(std::make_unique<BusyQueue>(*throttle));
  }
  // The third is woken late each time.
  const std::vector<int64_t> late_ns = {0, 0, 200 * kUs};
  for (int64_t now_ns = kStartNs; now_ns < kStartNs + kSecond; now_ns += 10 * kUs) {
    for (size_t i = 0; i < queues.size(); ++i) {
      if (queues[i]->next_ns + late_ns[i] <= now_ns) queues[i]->next_ns = queues[i]->Run(now_ns);
    }
  }
  size_t all = 0;
  for (const auto& queue : queues) {
    EXPECT_NEAR(static_cast<double>(queue->gone_ns.size()), 1000, 30);
    all += queue->gone_ns.size();
  }
  EXPECT_NEAR(static_cast<double>(all), 3000, 30);
}

TEST(ThrottleTest, ADiskHasTheLowerOfItsOwnLimitAndItsGroups) {
  ThrottleGroup group("g");
  group.Set(Iops(1000));
  DiskThrottle slow(&group), fast(&group);
  slow.Set(Iops(100));
  BusyQueue slow_queue(slow), fast_queue(fast);
  for (int64_t now_ns = kStartNs; now_ns < kStartNs + kSecond; now_ns += 10 * kUs) {
    for (BusyQueue* queue : {&slow_queue, &fast_queue}) {
      if (queue->next_ns <= now_ns) queue->next_ns = queue->Run(now_ns);
    }
  }
  EXPECT_NEAR(static_cast<double>(slow_queue.gone_ns.size()), 100, 3);
  EXPECT_NEAR(static_cast<double>(fast_queue.gone_ns.size()), 900, 10);
}

TEST(ThrottleTest, ChangedLimitsHoldAtTheNextLook) {
  DiskThrottle throttle;
  throttle.Set(Iops(1));
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + 10);
  EXPECT_EQ(queue.gone_ns.size(), 1u);
  EXPECT_LE(queue.next_ns, kStartNs + 100 * kMs) << "who waits looks ten times per second";
  throttle.Set(Iops(1000));
  queue.RunUntil(kStartNs + 200 * kMs);
  EXPECT_NEAR(static_cast<double>(queue.gone_ns.size()), 101, 2);
}

// A pause is not the limits' doing, and no time of it is saved up.
TEST(ThrottleTest, AnInterruptionIsNoWait) {
  DiskThrottle throttle;
  throttle.Set(Iops(1000));
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + 500 * kUs);
  EXPECT_EQ(queue.gone_ns.size(), 1u);
  queue.Interrupt(kStartNs + 500 * kUs);
  queue.Interrupt(kStartNs + kSecond);
  queue.next_ns = kStartNs + 550 * kUs;
  queue.RunUntil(kStartNs + 600 * kUs);
  EXPECT_EQ(queue.gone_ns.size(), 1u) << "what is owed stays so";
  queue.Interrupt(kStartNs + 600 * kUs);
  queue.gone_ns.clear();
  queue.next_ns = kStartNs + 10 * kSecond;
  queue.RunUntil(kStartNs + 10 * kSecond + 100 * kUs);
  EXPECT_EQ(queue.gone_ns.size(), 2u) << "what is paid for long since, and the one behind it";
  EXPECT_EQ(queue.stats_.waited_ns.Get(), 550 * kUs);
}

// Who has had nothing to do since a turn that was cut short is not late any more.
TEST(ThrottleTest, BeingLateIsForgotten) {
  DiskThrottle throttle;
  throttle.Set(Iops(1000));
  BusyQueue queue(throttle);
  queue.RunUntil(kStartNs + kMs / 2);
  EXPECT_TRUE(queue.Admits(kStartNs + 50 * kMs));
  EXPECT_TRUE(queue.GoesOn(kStartNs + 51 * kMs)) << "it is still";
  EXPECT_TRUE(queue.GoesOn(kStartNs + 10 * kSecond));
  EXPECT_FALSE(queue.GoesOn(kStartNs + 10 * kSecond + 10));
}

// A guest may write another request where the one stood that was charged.
TEST(ThrottleTest, WhatTookTheChargedOnesPlaceIsChargedAnew) {
  DiskThrottle throttle;
  throttle.Set({.bps_total = {.average = 1 << 20}});
  BusyQueue queue(throttle);
  queue.bytes = 512;
  EXPECT_TRUE(queue.Admits(kStartNs));
  EXPECT_FALSE(queue.Admits(kStartNs));
  queue.bytes = 1 << 20;
  EXPECT_TRUE(queue.Admits(kStartNs + kMs));
  queue.bytes = 512;
  EXPECT_FALSE(queue.Admits(kStartNs + kSecond));
  EXPECT_TRUE(queue.Admits(kStartNs + kSecond + kMs));
}

TEST(ThrottleTest, NoChargeOverflows) {
  DiskThrottle throttle;
  throttle.Set({.bps_total = {.average = 1}});
  BusyQueue queue(throttle);
  queue.bytes = INT64_MAX;
  EXPECT_TRUE(queue.Admits(kStartNs));
  for (int i = 0; i < 100; ++i) {
    BusyQueue other(throttle);
    other.bytes = INT64_MAX;
    EXPECT_FALSE(other.Admits(kStartNs + kSecond));
  }
  EXPECT_FALSE(queue.Admits(kStartNs + 1000 * kSecond));
}

TEST(ThrottleTest, RefusesBurstsThatAreNone) {
  EXPECT_THAT(Throttle::Check("disk 'd'", {.iops_read = {.max = 5}}),
              IsBadInput("iops-read-max 5", "give iops-read"));
  EXPECT_THAT(Throttle::Check("disk 'd'", {.bps_total = {.average = 5, .max = 5}}),
              IsBadInput("bps-total-max 5", "bps-total 5"));
  EXPECT_THAT(Throttle::Check("disk 'd'", {.bps_total = {.average = 5, .max_length = 2}}),
              IsBadInput("bps-total-max-length 2", "give bps-total-max"));
  EXPECT_TRUE(Throttle::Check("d", {.bps_total = {.average = 5, .max = 6, .max_length = 2}}).ok());
}

}  // namespace
}  // namespace ringside
