#include "http/http_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>

namespace ringside {
namespace {

using ::testing::HasSubstr;

// Keeps what is answered.
class Taker final : public HttpAnswerTaker {
 public:
  void TakeReply(uint64_t, HttpReply reply) override {
    ++replies;
    if (auto* answer = std::get_if<HttpResponse>(&reply)) response = std::move(*answer);
  }
  void WakeFollower(uint64_t) override { ++wakes; }

  HttpResponse response;
  int replies = 0;
  int wakes = 0;
};

HttpResponse Ask(HttpHandler& handler, const std::string& method, const std::string& path) {
  const auto taker = std::make_shared<Taker>();
  handler.Handle({.method = method, .path = path}, HttpAnswer(taker, 1));
  EXPECT_EQ(taker->replies, 1);
  return taker->response;
}

HttpCallHandler Says(std::string text) {
  return [text](HttpCall call) {
    std::string body = text + " " + call.request.method;
    for (const auto& [name, value] : call.captures) body += " " + name + "=" + value;
    call.answer.Send({.body = body});
  };
}

std::string Allow(const HttpResponse& response) {
  const HttpField* field = FindField(response.fields, "Allow");
  return field == nullptr ? "" : field->value;
}

class HttpRouterTest : public ::testing::Test {
 protected:
  HttpRouterTest() {
    router_.Add("GET", "/disks", Says("list"));
    router_.Add("POST", "/disks", Says("add"));
    router_.Add("GET", "/disks/new", Says("form"));
    router_.Add("GET", "/disks/{id}", Says("disk"));
    router_.Add("DELETE", "/disks/{id}", Says("remove"));
    router_.Add("PUT", "/disks/{id}/queues/{queue}", Says("queue"));
    HttpRouteSet& other = router_.Group("/other", [](int status, std::string_view reason) {
      return HttpResponse{.status = status, .body = "fault_message: " + std::string(reason)};
    });
    other.Add("PUT", "/other/actions", Says("act"));
  }
  HttpRouter router_;
};

TEST_F(HttpRouterTest, TakesWhatFits) {
  EXPECT_EQ(Ask(router_, "GET", "/disks").body, "list GET");
  EXPECT_EQ(Ask(router_, "POST", "/disks").body, "add POST");
  EXPECT_EQ(Ask(router_, "GET", "/disks/7").body, "disk GET id=7");
  EXPECT_EQ(Ask(router_, "GET", "/disks/new").body, "form GET");
  EXPECT_EQ(Ask(router_, "PUT", "/disks/a b/queues/0").body, "queue PUT id=a b queue=0");
  EXPECT_EQ(Ask(router_, "PUT", "/other/actions").body, "act PUT");
}

TEST_F(HttpRouterTest, HeadIsServedByGet) {
  EXPECT_EQ(Ask(router_, "HEAD", "/disks").body, "list HEAD");
  EXPECT_EQ(Ask(router_, "HEAD", "/disks/7/queues/0").status, 405);
}

TEST_F(HttpRouterTest, WhatIsNotThereNamesTheNearest) {
  const HttpResponse response = Ask(router_, "GET", "/disk");
  EXPECT_EQ(response.status, 404);
  EXPECT_THAT(response.body, HasSubstr("there is no '/disk'; did you mean '/disks'?"));
  for (const char* path : {"/", "/disks/", "/disks/7/", "//disks", "/disks/7/queues", ""}) {
    EXPECT_EQ(Ask(router_, "GET", path).status, 404) << path;
  }
  EXPECT_EQ(Ask(router_, "GET", "/" + std::string(8000, 'a')).status, 404);
}

TEST_F(HttpRouterTest, AWrongMethodIsToldWhichAreRight) {
  const HttpResponse response = Ask(router_, "PATCH", "/disks/7");
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(Allow(response), "DELETE, GET, HEAD, OPTIONS");
  EXPECT_THAT(response.body, HasSubstr("'/disks/{id}' takes no PATCH"));
  EXPECT_EQ(Ask(router_, "get", "/disks").status, 405) << "methods are case-sensitive";
}

TEST_F(HttpRouterTest, OptionsAnswersWhatIsAllowed) {
  const HttpResponse response = Ask(router_, "OPTIONS", "/disks");
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(Allow(response), "GET, HEAD, OPTIONS, POST");
  EXPECT_EQ(Ask(router_, "OPTIONS", "*").status, 204);
}

TEST_F(HttpRouterTest, AGroupHasItsOwnFormOfErrors) {
  EXPECT_THAT(Ask(router_, "GET", "/other").body, HasSubstr("fault_message: there is no '/other'"));
  EXPECT_THAT(Ask(router_, "GET", "/other/actions").body, HasSubstr("fault_message: "));
  EXPECT_THAT(Ask(router_, "GET", "/others").body, HasSubstr("\"error\""));
  EXPECT_EQ(router_.Refuse(413, "/other/x", "too long").body, "fault_message: too long");
  EXPECT_THAT(router_.Refuse(413, "", "too long").body, HasSubstr("\"error\""));
}

TEST_F(HttpRouterTest, TheLongestPrefixHasThePath) {
  router_.Group("/other/deep", JsonError).Add("GET", "/other/deep/x", Says("deep"));
  EXPECT_EQ(Ask(router_, "GET", "/other/deep/x").body, "deep GET");
  EXPECT_THAT(Ask(router_, "GET", "/other/deep/y").body, HasSubstr("\"error\""));
}

TEST(HttpAnswerTest, IsGivenOnce) {
  const auto taker = std::make_shared<Taker>();
  {
    HttpAnswer answer(taker, 1);
    HttpAnswer moved = std::move(answer);
    moved.Send({.body = "first"});
    moved.Send({.body = "second"});
    moved.Follow(std::make_shared<HttpFeed>(1), "text/plain");
  }
  EXPECT_EQ(taker->replies, 1);
  EXPECT_EQ(taker->response.body, "first");
}

TEST(HttpAnswerTest, OneThatIsDroppedIs500) {
  const auto taker = std::make_shared<Taker>();
  {
    HttpAnswer dropped(taker, 1);
  }
  EXPECT_EQ(taker->response.status, 500);
}

TEST(HttpFeedTest, EachFollowerHasWhatItHasNotTaken) {
  HttpFeed feed(8);
  int wakes = 0;
  const auto follower = feed.Attach([&] { ++wakes; });
  feed.Publish("abc");
  feed.Publish("de");
  EXPECT_EQ(wakes, 1) << "once until it is taken";
  EXPECT_EQ(follower->Take().text, "abcde");
  feed.Publish("f");
  EXPECT_EQ(wakes, 2);
  feed.End();
  const HttpFollower::Taken last = follower->Take();
  EXPECT_EQ(last.text, "f");
  EXPECT_TRUE(last.is_ended);
  EXPECT_FALSE(last.is_behind);
}

TEST(HttpFeedTest, WhoDoesNotKeepUpIsLetGo) {
  HttpFeed feed(8);
  int wakes = 0;
  const auto slow = feed.Attach([&] { ++wakes; });
  feed.Publish("12345678");
  EXPECT_FALSE(slow->is_behind());
  feed.Publish("9");
  EXPECT_TRUE(slow->is_behind());
  EXPECT_EQ(wakes, 2) << "it is told, though it has not taken what it was told of before";
  EXPECT_TRUE(slow->Take().text.empty()) << "what nobody will send is not kept";
  feed.Publish("10");
  EXPECT_FALSE(feed.HasFollowers());
}

TEST(HttpFeedTest, WhoeverIsGoneIsForgotten) {
  HttpFeed feed(8);
  auto follower = feed.Attach([] {});
  EXPECT_TRUE(feed.HasFollowers());
  follower = nullptr;
  EXPECT_FALSE(feed.HasFollowers());
  feed.Publish("x");
}

TEST(HttpFeedTest, AnEndedFeedEndsWhoComesLater) {
  HttpFeed feed(8);
  feed.End();
  EXPECT_TRUE(feed.Attach([] {})->Take().is_ended);
}

}  // namespace
}  // namespace ringside
