// The JSON of configurations: what any file may hold, and in which line it is wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/number_list.h"
#include "base/status.h"
#include "vmm/config_json.h"

namespace ringside {
namespace {

using ::testing::StartsWith;
using Numbers = std::vector<int>;

std::string ErrorOf(const std::string& text) {
  const absl::StatusOr<Json> json = ParseConfigJson(text);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(Message(json.status()).find('\n'), std::string_view::npos);
  return std::string(Message(json.status()));
}

TEST(ConfigJsonTest, IsAnyJson) {
  for (const char* text :
       {R"({"a":[1,-2,2.5,-1.0,1e+300,true,false,null,"x",{}],"b":{"c":[]}})", "[]", "7", R"("x")",
        R"([{"a":1},{"a":2}])", "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]"}) {
    const absl::StatusOr<Json> json = ParseConfigJson(text);
    ASSERT_TRUE(json.ok()) << json.status();
    EXPECT_EQ(json->dump(), text);
  }
}

// As serializers write what is not given, and the numbers of languages that have one kind.
TEST(ConfigJsonTest, NullIsNothingAndWholeNumbersAreWhole) {
  EXPECT_EQ(ParseConfigJson(R"({"a":null,"b":{"c":null,"d":[null,2.0]},"e":1e9,"f":0.0})")->dump(),
            R"({"b":{"d":[null,2]},"e":1000000000,"f":0})");
  EXPECT_EQ(ParseConfigJson("[9007199254740992.0, 9007199254740994.0]")->dump(),
            "[9007199254740992,9.007199254740994e+15]");
  EXPECT_EQ(ParseConfigJson("null")->dump(), "null");
}

TEST(ConfigJsonTest, SaysTheLineOfWhatIsWrong) {
  EXPECT_THAT(ErrorOf("{\n\"a\": 1,\n}"), StartsWith("line 3: syntax error"));
  EXPECT_THAT(ErrorOf("{\"a\":\n\n1,\n\"b\": x}"), StartsWith("line 4: syntax error"));
  EXPECT_THAT(ErrorOf(""), StartsWith("line 1: syntax error"));
  EXPECT_THAT(ErrorOf("{} {}"), StartsWith("line 1: syntax error"));
  EXPECT_THAT(ErrorOf("[1e999]"), StartsWith("line 1: number overflow"));
  EXPECT_THAT(ErrorOf("\n\"\xff\""), StartsWith("line 2: syntax error"));
}

TEST(ConfigJsonTest, AKeyIsGivenOnce) {
  EXPECT_EQ(ErrorOf("{\"a\": 1,\n \"b\": {\"a\": 1},\n \"a\": 2}"),
            "line 3: the key 'a' is there twice");
}

TEST(ConfigJsonTest, IsBounded) {
  EXPECT_EQ(ErrorOf(std::string(17, '[')), "line 1: it is nested more than 16 deep");
  std::string keys = "{\"k\":1";
  for (int i = 0; i < 64; ++i) keys += ",\n\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(ErrorOf(keys + "}"), "line 65: an object has more than 64 keys");
  std::string text(kMostConfigBytes, 'x');
  text.front() = text.back() = '"';
  EXPECT_TRUE(ParseConfigJson(text).ok());
  text.insert(1, "x");
  EXPECT_THAT(ErrorOf(text), StartsWith("it has more than 1048576 bytes"));
}

TEST(NumberListTest, TakesNumbersAndRanges) {
  EXPECT_EQ(ParseNumberList("7"), Numbers({7}));
  EXPECT_EQ(ParseNumberList("0-2+5"), Numbers({0, 1, 2, 5}));
  EXPECT_EQ(ParseNumberList("9+3-3+1"), Numbers({9, 3, 1}));
  EXPECT_EQ(ParseNumberList("65535"), Numbers({65535}));
  EXPECT_EQ(ParseNumberList("0-8191")->size(), kMostListed);
}

TEST(NumberListTest, RefusesAllElse) {
  for (const char* text : {"", "+", "1+", "+1", "1-", "-1", "1-2-3", "2-1", "a", "1,2", " 1", "1 ",
                           "0x1", "65536", "99999999999999999999", "0-8192", "0-8191+1"}) {
    EXPECT_EQ(ParseNumberList(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ringside
