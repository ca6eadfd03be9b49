// What `ringside ctl` makes of answers, of a server of ours and of one that means harm.
#include "command/ctl_answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/status.h"
#include "command/json_table.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kEscape[] =
    "\x1b]0;title\x07\xc2\x9b"
    "31m";

std::string Nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(CtlAnswerTest, AnOperationIsUnderWayThenDoneOrFailed) {
  const auto running = ReadOperation(R"({"id": 7, "call": "pause", "state": "running"})");
  ASSERT_TRUE(running.ok());
  EXPECT_EQ(running->id, 7U);
  EXPECT_FALSE(running->has_ended);
  EXPECT_EQ(running->of, 0U);
  const auto halfway =
      ReadOperation(R"({"id": 7, "state": "running", "progress": {"done": 3, "of": 6}})");
  ASSERT_TRUE(halfway.ok());
  EXPECT_TRUE(halfway->done == 3 && halfway->of == 6);
  const auto done = ReadOperation(R"({"id": 7, "state": "done", "result": {"id": "io1"}})");
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(done->has_ended && done->status.ok());
  EXPECT_EQ(done->result.dump(), R"({"id":"io1"})");
  const auto failed =
      ReadOperation(R"({"id": 7, "state": "failed", "error": "too late", "status": 504})");
  ASSERT_TRUE(failed.ok());
  EXPECT_TRUE(failed->has_ended);
  EXPECT_EQ(failed->status, absl::UnavailableError("too late"));
  EXPECT_TRUE(absl::IsInvalidArgument(
      ReadOperation(R"({"id": 7, "state": "failed", "error": "no", "status": 409})")->status));
}

TEST(CtlAnswerTest, WhateverIsNoOperationIsAnError) {
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("[]"), std::string("5"), std::string("{}"),
        std::string(R"({"id": 1})"), std::string(R"({"id": 1, "state": 5})"),
        std::string(R"({"id": 1, "state": "gone"})"),
        std::string(R"({"id": "../x y", "state": "done"})"),
        std::string(R"({"id": -1, "state": "done"})"),
        R"({"state": "done", "id": )" + Nested(100'000) + "}",
        R"({"id": 1, "state": "done", "result": )" + Nested(100'000) + "}"}) {
    EXPECT_TRUE(absl::IsUnavailable(ReadOperation(text).status())) << text.substr(0, 80);
  }
}

// Each element, and each key, costs as much as the one before it.
TEST(CtlAnswerTest, LongOnesTakeNoLonger) {
  std::string list = "[{}", object = "{\"0\":0";
  for (int i = 1; i < 200'000; ++i) {
    list += ",{}";
    object += ",\"" + std::to_string(i) + "\":0";
  }
  const int64_t begin_ns = MonotonicNs();
  EXPECT_TRUE(ReadAnswer(list + "]").ok());
  EXPECT_TRUE(absl::IsUnavailable(ReadAnswer(object + "}").status()));
  EXPECT_LT(MonotonicNs() - begin_ns, 20'000'000'000) << "it takes 0.1 s";
}

TEST(CtlAnswerTest, OddProgressIsNone) {
  for (const char* const progress :
       {"5", "[]", "{}", R"({"done": "x", "of": -1})", R"({"done": 1.5, "of": 1e300})"}) {
    const auto running = ReadOperation(
        std::string(R"({"id": 1, "state": "running", "progress": )") + progress + "}");
    ASSERT_TRUE(running.ok()) << progress;
    EXPECT_TRUE(running->done == 0 && running->of == 0) << progress;
  }
}

// Of the wrong type, or larger than a status can be.
TEST(CtlAnswerTest, AFailureOfOddPartsIsAFailure) {
  for (const char* const parts : {R"("status": "x", "error": "e")", R"("status": 1e300)",
                                  R"("status": 18446744073709551615, "error": [])",
                                  R"("status": -1, "error": 5)", R"("status": {})"}) {
    const auto failed =
        ReadOperation(std::string(R"({"id": 1, "state": "failed", )") + parts + "}");
    ASSERT_TRUE(failed.ok()) << parts;
    EXPECT_TRUE(absl::IsUnavailable(failed->status)) << parts;
  }
  EXPECT_EQ(Message(ErrorOf({.status = 500, .body = R"({"error": 5})"})),
            "the server answered with status 500");
  EXPECT_EQ(Message(ErrorOf({.status = 500, .body = Nested(100'000)})),
            "the server answered with status 500");
  // A line that is longer than the log takes would not be there at all.
  const std::string endless = R"({"error": ")" + std::string(1 << 20, 'x') + "\"}";
  EXPECT_EQ(Message(ErrorOf({.status = 409, .body = endless})).size(), 1024U);
}

TEST(CtlAnswerTest, AnEventIsALineForPeople) {
  EXPECT_EQ(EventText(R"({"time": "now", "event": "disk-error", "device": "a", "count": 1})"),
            "now  disk-error  a\n");
  EXPECT_EQ(EventText(R"({"time": 5, "event": [], "device": "a"})"), "a\n");
  EXPECT_EQ(EventText("no event\n"), "no event\n");
  EXPECT_EQ(EventText("[]\n"), "[]\n");
}

TEST(CtlAnswerTest, ATerminalObeysNothingOfIt) {
  const std::string text = kEscape;
  const std::string shown = R"(\x1b]0;title\x07\xc2\x9b31m)";
  EXPECT_EQ(ForTerminal("a\n" + text + "\n"), "a\n" + shown + "\n");
  EXPECT_EQ(EventText(Json{{"event", text}}.dump()), shown + "\n");
  EXPECT_EQ(EventText(text + "\n"), shown + "\n");
  for (const Json& json :
       {Json(text), Json{{text, text}}, Json{{text, {{text, text}}}}, Json{{text, {text}}},
        Json::array({{{text, text}}}), Json::array({Json::array({text})})}) {
    EXPECT_THAT(JsonTable(json), Not(::testing::ContainsRegex("\x1b|\x07|\xc2\x9b"))) << json;
    EXPECT_THAT(JsonTable(json), HasSubstr("31m"));
  }
}

// Each row has a cell for each column: a list of many names would take their square.
TEST(JsonTableTest, ATableTakesNoMoreThanItsAnswer) {
  Json names = Json::array(), wide = Json::array({{{"a", std::string(100'000, 'x')}}});
  for (int i = 0; i < 3000; ++i) {
    names.push_back({{"name" + std::to_string(i), i}});
    wide.push_back({{"a", 1}, {"b", 2}});
  }
  EXPECT_LT(JsonTable(names).size(), names.dump().size() + 100);
  EXPECT_LT(JsonTable(wide).size(), 1'000'000U);
}

TEST(JsonTableTest, AListHasAColumnForEachName) {
  EXPECT_EQ(JsonTable(Json::array({{{"id", "a"}, {"reads", 100}}, {{"id", "disk1"}}})),
            "id     reads\na      100\ndisk1\n");
}

}  // namespace
}  // namespace ringside
