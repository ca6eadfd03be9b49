#include "base/log_limit.h"

#include <gtest/gtest.h>

#include "tests/support/recording_log.h"

namespace ringside {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStart = 12'345 * kSecond;

TEST(LogLimitTest, SoManyAtOnceThenOneAMinute) {
  LogLimit limit(Logger(), 3);
  int given = 0;
  for (int i = 0; i < 1000; ++i) given += limit.Take(kStart + i).is_given ? 1 : 0;
  EXPECT_EQ(given, 3);
  EXPECT_FALSE(limit.Take(kStart + 59 * kSecond).is_given);
  EXPECT_TRUE(limit.Take(kStart + 60 * kSecond).is_given);
  EXPECT_FALSE(limit.Take(kStart + 119 * kSecond).is_given);
  EXPECT_TRUE(limit.Take(kStart + 120 * kSecond).is_given);
}

TEST(LogLimitTest, ADayOfTryingIsBounded) {
  LogLimit limit(Logger{});
  int given = 0;
  for (int64_t i = 0; i < 86'400 * 10; ++i) {
    given += limit.Take(kStart + i * kSecond / 10).is_given ? 1 : 0;
  }
  EXPECT_EQ(given, 1440 + LogLimit::kLines - 1);
}

TEST(LogLimitTest, AfterAQuietTimeThereAreAsManyAsAtFirst) {
  LogLimit limit(Logger(), 3);
  for (int round = 0; round < 3; ++round) {
    const int64_t now_ns = kStart + round * 3600 * kSecond;
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.Take(now_ns).is_given) << round << ' ' << i;
    EXPECT_FALSE(limit.Take(now_ns).is_given);
  }
}

TEST(LogLimitTest, TheLastSaysThatItIsAndTheNextHowManyWereLeftOut) {
  LogLimit limit(Logger(), 2);
  EXPECT_FALSE(limit.Take(kStart).is_last);
  EXPECT_TRUE(limit.Take(kStart).is_last);
  for (int i = 0; i < 7; ++i) limit.Take(kStart + kSecond);
  EXPECT_EQ(limit.Take(kStart + 60 * kSecond).left_out, 7u);
  EXPECT_EQ(limit.Take(kStart + 120 * kSecond).left_out, 0u);
}

TEST(LogLimitTest, SaysSoInTheLine) {
  testing::RecordingLog log;
  LogLimit limit(Logger(&log), 2);
  for (int i = 0; i < 5; ++i) limit.Log(Severity::kWarning, "line %d", i);
  ASSERT_EQ(log.lines().size(), 2u);
  EXPECT_EQ(log.lines()[0], "line 0");
  EXPECT_EQ(log.lines()[1], "line 1 (no more of these than one a minute from now on)");
}

}  // namespace
}  // namespace ringside
