// The table of calls fits together, and what is made of it is complete.
#include "api/api_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>
#include <set>

#include "api/openapi.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

TEST(ApiCallTest, EachIsThereOnceAndIsServed) {
  std::set<std::string> names, places;
  for (const ApiCall& call : ApiCalls()) {
    EXPECT_TRUE(names.insert(call.name).second) << call.name;
    EXPECT_TRUE(places.insert(std::string(call.method) + call.path).second) << call.path;
    const bool has_handler = call.kind == ApiKind::kAtOnce || call.kind == ApiKind::kOperation;
    EXPECT_EQ(call.serve != nullptr, has_handler) << call.name;
    EXPECT_EQ(FindApiCall(call.name), &call);
  }
}

TEST(ApiCallTest, WhatIsInItsPathIsDescribed) {
  for (const ApiCall& call : ApiCalls()) {
    const std::string path = call.path;
    const std::regex part(R"(\{(\w+)\})");
    std::set<std::string> in_path, described;
    for (std::sregex_iterator it(path.begin(), path.end(), part), end; it != end; ++it) {
      in_path.insert((*it)[1]);
    }
    for (const ApiField& field : call.in_path) described.insert(field.spec.name);
    EXPECT_EQ(in_path, described) << path;
    // A field has one name in path, query and body.
    for (const ApiField& field : call.fields) {
      EXPECT_FALSE(described.contains(field.spec.name)) << path << ' ' << field.spec.name;
    }
  }
}

// By their names, wherever the document refers to some.
TEST(ApiCallTest, TheDocumentRefersToWhatItHas) {
  const Json document = OpenApiDocument();
  const std::string text = document.dump();
  const std::regex reference(R"re("#(/components/[^"]+)")re");
  size_t count = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), reference), end; it != end; ++it) {
    EXPECT_TRUE(document.contains(Json::json_pointer((*it)[1]))) << (*it)[1];
    ++count;
  }
  EXPECT_GT(count, 50U);
}

TEST(ApiCallTest, FieldsAreCheckedAndUnsetOnesAreFilledIn) {
  const ApiCall& pause = *FindApiCall("pause");
  const auto given = ReadFields(pause.fields, {}, {{"patience", "5ms"}});
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ(ApiArguments(*given).Time("patience"), absl::Milliseconds(5));
  EXPECT_EQ(ApiArguments(*ReadFields(pause.fields, {}, Json::object())).Time("patience"),
            absl::Seconds(30));
  EXPECT_THAT(ReadFields(pause.fields, {}, {{"patients", "5ms"}}).status(),
              IsBadInput("patients is unknown", "'patience'"));
  EXPECT_THAT(ReadFields(pause.fields, {}, {{"patience", "2h"}}).status(),
              IsBadInput("patience=", "0 to 1h"));
  EXPECT_THAT(ReadFields(pause.fields, {}, Json::array()).status(),
              IsBadInput("body", "no JSON object"));
  EXPECT_THAT(ReadFields(FindApiCall("resume")->fields, {}, {{"a", 1}}).status(),
              IsBadInput("'a' is unknown", "takes nothing"));
  EXPECT_THAT(ReadFields(FindApiCall("set-trace")->fields, {}, Json::object()).status(),
              IsBadInput("on is missing", "give on="));
}

}  // namespace
}  // namespace ringside
