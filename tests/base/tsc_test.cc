#include "base/tsc.h"

#include <gtest/gtest.h>
#include <thread>

namespace ringside {
namespace {

TEST(TscScale, IsTheLineThroughBothMoments) {
  // 3 ticks an ns.
  const TscScale scale({.ticks = 1000, .ns = 50}, {.ticks = 4000, .ns = 1050});
  EXPECT_EQ(scale.ToNs(1000), 50);
  EXPECT_EQ(scale.ToNs(4000), 1050);
  EXPECT_EQ(scale.ToNs(2500), 550);
  EXPECT_EQ(scale.ToNs(7000), 2050) << "beyond the last";
  EXPECT_EQ(scale.ToNs(700), -50) << "before the first";
}

TEST(TscScale, OneMomentAloneIsNoError) {
  const TscMoment moment = {.ticks = 1000, .ns = 50};
  EXPECT_EQ(TscScale(moment, moment).ToNs(2000), 50);
}

TEST(TscScale, AgreesWithTheMonotonicClock) {
  const TscMoment first = TscMoment::Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const int64_t before_ns = MonotonicNs();
  const uint64_t ticks = ReadTsc();
  const int64_t after_ns = MonotonicNs();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const TscMoment last = TscMoment::Now();
  const int64_t ns = TscScale(first, last).ToNs(ticks);
  // The clock may be steered, by 500 us a second at most.
  const int64_t off_ns = (last.ns - first.ns) / 2000;
  EXPECT_GE(ns, before_ns - off_ns);
  EXPECT_LE(ns, after_ns + off_ns);
}

}  // namespace
}  // namespace ringside
