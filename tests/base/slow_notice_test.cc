#include "base/slow_notice.h"

#include <gtest/gtest.h>
#include <optional>

#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

TEST(SlowNoticeTest, SaysWhatIsWaitedForOnce) {
  testing::RecordingLog log;
  std::optional<SlowNotice> notice(std::in_place, Logger(&log), "a test", absl::Milliseconds(1));
  EXPECT_TRUE(testing::SpinUntil([&] { return !log.lines().empty(); }));
  notice.reset();
  EXPECT_EQ(log.lines(), std::vector<std::string>{"waiting for a test"});
}

TEST(SlowNoticeTest, WhatIsSoonOverIsNotSaid) {
  testing::RecordingLog log;
  { const SlowNotice notice(Logger(&log), "a test", absl::Hours(1)); }
  EXPECT_TRUE(log.lines().empty());
}

}  // namespace
}  // namespace ringside
