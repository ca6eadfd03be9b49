// What fault scripts say, and what is said of those that make no sense; which requests the rules
// apply to.
#include "faults/fault_script.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "faults/fault_plan.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

FaultScript Parse(const std::string& text) {
  const absl::StatusOr<FaultScript> script = ParseFaultScript(text, "test");
  EXPECT_TRUE(script.ok()) << script.status();
  return script.value_or(FaultScript());
}

FaultRule ParseRule(const std::string& text) {
  const FaultScript script = Parse(text);
  return script.rules.size() == 1 ? script.rules[0] : FaultRule();
}

TEST(FaultScriptTest, SaysWhatWhenAndWhere) {
  const FaultScript script = Parse(
      "# disks that fail\n"
      "seed=42\n"
      "\n"
      "write error=EIO offset=1M-2M probability=0.25  # now and then\r\n"
      "\tread delay=5ms after=3 count=7 after-time=2s\n"
      "cut after=1000");
  EXPECT_EQ(script.seed, 42u);
  ASSERT_EQ(script.rules.size(), 3u);
  const FaultRule& error = script.rules[0];
  EXPECT_EQ(error.action, FaultAction::kError);
  EXPECT_EQ(error.error, EIO);
  EXPECT_TRUE(error.IsAbout(BlockOp::kWrite));
  EXPECT_FALSE(error.IsAbout(BlockOp::kRead));
  EXPECT_EQ(error.first_byte, 1u << 20);
  EXPECT_EQ(error.end_byte, 2u << 20);
  EXPECT_EQ(error.probability, 0.25);
  const FaultRule& delay = script.rules[1];
  EXPECT_EQ(delay.action, FaultAction::kDelay);
  EXPECT_EQ(delay.delay_ns, 5'000'000);
  EXPECT_EQ(delay.after, 3u);
  EXPECT_EQ(delay.count, 7u);
  EXPECT_EQ(delay.after_ns, 2'000'000'000);
  EXPECT_EQ(script.rules[2].action, FaultAction::kCut);
  EXPECT_TRUE(script.rules[2].IsAbout(BlockOp::kFlush));
  EXPECT_EQ(script.rules[2].after, 1000u);
}

TEST(FaultScriptTest, KnowsEachFaultAndOperation) {
  EXPECT_EQ(ParseRule("flush hang").action, FaultAction::kHang);
  EXPECT_EQ(ParseRule("write torn").action, FaultAction::kTorn);
  const FaultRule in_part = ParseRule("read short=4k");
  EXPECT_EQ(in_part.action, FaultAction::kShort);
  EXPECT_EQ(in_part.bytes, 4096u);
  const FaultRule reorder = ParseRule("any reorder=8");
  EXPECT_EQ(reorder.action, FaultAction::kReorder);
  EXPECT_EQ(reorder.reorder, 8u);
  EXPECT_TRUE(ParseRule("discard error=ENOSPC").IsAbout(BlockOp::kDiscard));
  EXPECT_TRUE(ParseRule("zeroes error=EOPNOTSUPP").IsAbout(BlockOp::kWriteZeroes));
  EXPECT_EQ(Parse("any hang").seed, 1u);
}

TEST(FaultScriptTest, WhatMakesNoSenseIsToldWithItsLine) {
  const std::pair<const char*, const char*> wrong[] = {
      {"wite error=EIO", "'wite' is no operation"},
      {"write", "'write' has no fault"},
      {"write eror=EIO", "'eror' is no fault"},
      {"write error", "needs a value"},
      {"write error=EFOO", "'EFOO' is the name of no error"},
      {"write error=5", "'5' is the name of no error"},
      {"write error=ECANCELED", "for Ringside's own use"},
      {"write torn=1", "takes no value"},
      {"read torn", "torn is for writes only"},
      {"any torn", "torn is for writes only"},
      {"flush short=4k", "a flush transfers nothing"},
      {"any short=4k", "a flush transfers nothing"},
      {"write short=100", "not a multiple of 512"},
      {"read delay=5", "not a time from 0 to 1h"},
      {"read delay=-1ms", "not a time from 0 to 1h"},
      {"read delay=2h", "not a time from 0 to 1h"},
      {"any reorder=1", "not a whole number from 2 to 256"},
      {"any reorder=257", "not a whole number from 2 to 256"},
      {"read hang count=0", "not a whole number from 1 on"},
      {"read hang after=x", "not a whole number from 0 on"},
      {"read hang probability=0", "not a probability"},
      {"read hang probability=1.5", "not a probability"},
      {"read hang probability=nan", "not a probability"},
      {"read hang offset=4k", "is no range"},
      {"read hang offset=8k-4k", "is empty"},
      {"read hang offset=0-100", "not a multiple of 512"},
      {"flush hang offset=0-4k", "a flush has no offset"},
      {"read hang maybe=1", "'maybe' is no condition"},
      {"read hang after=1 after=2", "'after' is there twice"},
      {"seed=x", "not a whole number"},
      {"seed=1 read hang", "follows the seed"},
  };
  for (const auto& [line, fault] : wrong) {
    EXPECT_THAT(ParseFaultScript(std::string("any hang\n") + line + "\n", "s").status(),
                IsBadInput("fault script 's', line 2: ", fault))
        << line;
  }
  EXPECT_THAT(ParseFaultScript("# nothing\nseed=3\n", "s").status(), IsBadInput("'s'", "no rule"));
}

TEST(FaultScriptTest, HasBounds) {
  std::string many;
  for (size_t i = 0; i < kMostFaultRules; ++i) many += "any hang\n";
  EXPECT_EQ(Parse(many).rules.size(), kMostFaultRules);
  EXPECT_THAT(ParseFaultScript(many + "any hang", "s").status(),
              IsBadInput("line 257", "at most 256 rules"));
  const std::string full = "any hang\n" + std::string(kMostFaultScriptBytes - 9, '#');
  EXPECT_TRUE(ParseFaultScript(full, "s").ok());
  EXPECT_THAT(ParseFaultScript(full + "#", "s").status(), IsBadInput("'s'", "at most 64K"));
}

TEST(FaultScriptTest, ComesFromARegularFile) {
  testing::TempFile file(0);
  file.Fill(0, "read error=EIO\n");
  const auto script = ReadFaultScript(file.path());
  ASSERT_TRUE(script.ok()) << script.status();
  EXPECT_EQ(script->rules.size(), 1u);
  EXPECT_THAT(ReadFaultScript("/nowhere/x").status(), IsBadInput("/nowhere/x", "No such file"));
  EXPECT_THAT(ReadFaultScript("/dev").status(), IsBadInput("/dev", "no regular file"));
}

class FaultPlanTest : public ::testing::Test {
 protected:
  void Use(const std::string& text) { plan_ = std::make_unique<FaultPlan>(Parse(text), kStartNs); }
  // The place of the rule that applies to a page there; -1: none.
  int Decide(BlockOp op, uint64_t offset = 0, int64_t now_ns = kStartNs) {
    Segment page = {.host = nullptr, .length = 4096, .region = 0};
    BlockRequest request = {.op = op, .offset = offset};
    if (op == BlockOp::kRead || op == BlockOp::kWrite) {
      request.segments = {&page, 1};
    } else if (op != BlockOp::kFlush) {
      request.length = 4096;
    }
    const FaultRule* rule = plan_->Decide(request, now_ns).rule;
    return rule == nullptr ? -1 : static_cast<int>(rule - plan_->script().rules.data());
  }

  static constexpr int64_t kStartNs = 5'000'000'000;
  std::unique_ptr<FaultPlan> plan_;
};

TEST_F(FaultPlanTest, TheFirstRuleThatAppliesCounts) {
  Use("write hang offset=8k-16k\nwrite error=EIO\nany delay=1ms");
  EXPECT_EQ(Decide(BlockOp::kWrite, 4096), 1);
  EXPECT_EQ(Decide(BlockOp::kWrite, 8192), 0);
  EXPECT_EQ(Decide(BlockOp::kWrite, 12288), 0);
  EXPECT_EQ(Decide(BlockOp::kWrite, 16384), 1) << "the end is not part of the range";
  EXPECT_EQ(Decide(BlockOp::kRead, 8192), 2);
  EXPECT_EQ(Decide(BlockOp::kFlush), 2);
}

TEST_F(FaultPlanTest, ARangeIsTouchedByAByteOfIt) {
  Use("any hang offset=6k-7k");
  EXPECT_EQ(Decide(BlockOp::kRead, 4096), 0);
  EXPECT_EQ(Decide(BlockOp::kRead, 2048), -1);
  EXPECT_EQ(Decide(BlockOp::kRead, 2560), 0);
  EXPECT_EQ(Decide(BlockOp::kDiscard, 4096), 0);
  EXPECT_EQ(Decide(BlockOp::kDiscard, 7168), -1);
  EXPECT_EQ(Decide(BlockOp::kFlush), -1) << "it has no place";
}

TEST_F(FaultPlanTest, AfterAndCountAreOfThoseThatMatch) {
  Use("write hang after=2 count=3");
  for (const int expected : {-1, -1, 0, 0, 0, -1, -1}) {
    EXPECT_EQ(Decide(BlockOp::kRead), -1);
    EXPECT_EQ(Decide(BlockOp::kWrite), expected);
  }
}

TEST_F(FaultPlanTest, TimeIsSinceTheDiskWasOpened) {
  Use("any hang after-time=2s");
  EXPECT_EQ(Decide(BlockOp::kRead, 0, kStartNs + 1'999'999'999), -1);
  EXPECT_EQ(Decide(BlockOp::kRead, 0, kStartNs + 2'000'000'000), 0);
}

TEST_F(FaultPlanTest, ProbabilityIsDrawnFromTheSeed) {
  const auto draw = [this](const std::string& seed) {
    Use("any hang probability=0.2\nseed=" + seed);
    std::vector<int> decisions(5000);
    for (int& decision : decisions) decision = Decide(BlockOp::kRead);
    return decisions;
  };
  const std::vector<int> first = draw("7");
  const auto hit = std::ranges::count(first, 0);
  EXPECT_GT(hit, 850);
  EXPECT_LT(hit, 1150);
  EXPECT_EQ(draw("7"), first);
  EXPECT_NE(draw("8"), first);
}

}  // namespace
}  // namespace ringside
