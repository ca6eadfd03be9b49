#include "http/http_server.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

#include "http/http_router.h"
#include "tests/support/http/http_test_server.h"

namespace ringside {
namespace {

using ::testing::AllOf;
using testing::Echo;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawClient;
using ::testing::StartsWith;
using testing::TestHandler;
using testing::TestServer;

constexpr std::string_view kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr std::string_view kLastGet = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

TEST(HttpServerTest, AnswersARequest) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  RawClient client(server.path());
  EXPECT_THAT(client.Ask(kLastGet),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\nDate: "),
                    HasSubstr("\r\nContent-Type: text/plain\r\nContent-Length: 10\r\n"),
                    HasSubstr("\r\nConnection: close\r\n"), EndsWith("\r\n\r\nGET /last ")));
}

TEST(HttpServerTest, KeepsAConnection) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  RawClient client(server.path());
  for (int i = 0; i < 3; ++i) {
    client.Send(kGet);
    EXPECT_THAT(client.ReadUntil("GET /x "), Not(HasSubstr("Connection")));
  }
  EXPECT_THAT(client.Ask(kLastGet), EndsWith("GET /last "));
}

TEST(HttpServerTest, AnswersWhatComesAtOnceInOrder) {
  TestHandler handler;
  const TestServer server(handler);
  RawClient client(server.path());
  client.Send(std::string(kGet) + "POST /y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc" +
              std::string(kLastGet));
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    auto [request, answer] = handler.Next();
    EXPECT_EQ(handler.count(), i + 1) << "the next was read before the last was answered";
    paths.push_back(request.path + request.body);
    Echo(std::move(request), std::move(answer));
  }
  EXPECT_THAT(paths, ::testing::ElementsAre("/x", "/yabc", "/last"));
  client.ReadUntil("GET /x ");
  client.ReadUntil("POST /y abc");
  EXPECT_THAT(client.ReadAll(), EndsWith("GET /last "));
}

TEST(HttpServerTest, AnswersLater) {
  TestHandler handler;
  const TestServer server(handler);
  RawClient slow(server.path());
  slow.Send(kLastGet);
  auto kept = handler.Next();
  // Others are served meanwhile.
  RawClient other(server.path());
  other.Send(kLastGet);
  auto [request, answer] = handler.Next();
  Echo(std::move(request), std::move(answer));
  EXPECT_THAT(other.ReadAll(), EndsWith("GET /last "));
  kept.second.Send({.status = 202, .body = "later"});
  EXPECT_THAT(slow.ReadAll(), AllOf(StartsWith("HTTP/1.1 202 Accepted\r\n"), EndsWith("later")));
}

TEST(HttpServerTest, AnswersComeFromOtherThreads) {
  TestHandler handler;
  const TestServer server(handler);
  constexpr int kClients = 8;
  constexpr int kRequests = 50;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int answered = 0; answered < kClients * kRequests / 2; ++answered) {
        auto [request, answer] = handler.Next();
        Echo(std::move(request), std::move(answer));
      }
    });
  }
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([path = server.path(), i] {
      RawClient client(path);
      for (int n = 0; n < kRequests; ++n) {
        const std::string name = std::to_string(i) + "-" + std::to_string(n);
        client.Send("GET /" + name + " HTTP/1.1\r\nHost: a\r\n\r\n");
        EXPECT_THAT(client.ReadUntil("GET /" + name + " "), EndsWith("GET /" + name + " "));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What never becomes a request is refused in the form of the API that its path belongs to.
TEST(HttpServerTest, ARefusalHasTheFormOfItsPath) {
  HttpRouter router;
  router.Group("/other", [](int status, std::string_view reason) {
    return HttpResponse{.status = status, .body = "fault_message: " + std::string(reason)};
  });
  const TestServer server(router);
  const std::string too_long = " HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n";
  EXPECT_THAT(RawClient(server.path()).Ask("PUT /other/x" + too_long),
              HasSubstr("fault_message: "));
  EXPECT_THAT(RawClient(server.path()).Ask("PUT /x" + too_long), HasSubstr("{\"error\""));
}

TEST(HttpServerTest, ARequestThatIsDroppedIs500) {
  TestHandler handler([](const HttpRequest&, const HttpAnswer&) {});
  const TestServer server(handler);
  RawClient client(server.path());
  EXPECT_THAT(client.Ask(kLastGet), StartsWith("HTTP/1.1 500 "));
}

TEST(HttpServerTest, AnAnswerAfterTheCloseIsDropped) {
  TestHandler handler;
  TestServer server(handler);
  RawClient gone(server.path());
  gone.Send(kGet);
  auto first = handler.Next();
  gone.Close();
  first.second.Send({.body = "to nobody"});
  RawClient client(server.path());
  client.Send(kGet);
  auto second = handler.Next();
  server.Stop();
  EXPECT_TRUE(client.IsClosed());
  second.second.Send({.body = "too late"});
}

TEST(HttpServerTest, WhatWasAnsweredBeforeTheEndGoesOut) {
  TestHandler handler;
  TestServer server(handler);
  RawClient client(server.path());
  client.Send(kGet);
  auto kept = handler.Next();
  kept.second.Send({.body = "the last word"});
  server.Stop();
  EXPECT_THAT(client.ReadAll(), EndsWith("the last word"));
}

TEST(HttpServerTest, EndsWhileAnswersCome) {
  for (int round = 0; round < 20; ++round) {
    TestHandler handler;
    TestServer server(handler);
    std::vector<RawClient> clients;
    for (int i = 0; i < 4; ++i) clients.emplace_back(server.path()).Send(kGet);
    std::thread answers([&] {
      for (int i = 0; i < 4; ++i) handler.Next().second.Send({});
    });
    handler.WaitForCount(4);
    server.Stop();
    answers.join();
    for (RawClient& client : clients) EXPECT_TRUE(client.IsClosed());
  }
}

// Nothing has a time limit, so nothing wakes it: it is asleep in one and the same call.
TEST(HttpServerTest, SleepsWhileNothingHappens) {
  const auto feed = std::make_shared<HttpFeed>(1024);
  TestHandler handler(
      [&](const HttpRequest&, HttpAnswer answer) { answer.Follow(feed, "text/plain"); });
  HttpLimits limits;
  limits.idle = limits.request = limits.response = absl::Milliseconds(5);
  const TestServer server(handler, limits);
  RawClient follower(server.path());
  follower.Send(kGet);
  follower.ReadUntil("\r\n\r\n");
  const pid_t thread = testing::ThreadNamed("http");
  ASSERT_NE(thread, 0);
  ASSERT_TRUE(testing::SpinUntil([&] { return testing::IsAsleep(thread); }));
  const uint64_t before = testing::Switches(thread);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // It is asleep a moment before that is counted.
  EXPECT_LE(testing::Switches(thread), before + 1);
}

TEST(HttpServerTest, FollowersGetWhatManyThreadsPublish) {
  const auto feed = std::make_shared<HttpFeed>(1 << 20);
  TestHandler handler(
      [&](const HttpRequest&, HttpAnswer answer) { answer.Follow(feed, "text/plain"); });
  const TestServer server(handler);
  std::vector<RawClient> followers;
  for (int i = 0; i < 4; ++i) {
    followers.emplace_back(server.path()).Send(kGet);
    followers.back().ReadUntil("\r\n\r\n");
  }
  std::vector<std::thread> publishers;
  for (int i = 0; i < 3; ++i) {
    publishers.emplace_back([&] {
      for (int n = 0; n < 200; ++n) feed->Publish("x");
    });
  }
  for (std::thread& each : publishers) each.join();
  feed->End();
  for (RawClient& follower : followers) {
    const std::string text = follower.ReadAll();
    EXPECT_EQ(std::ranges::count(text, 'x'), 600);
    EXPECT_THAT(text, EndsWith("\r\n0\r\n\r\n"));
  }
}

TEST(HttpServerTest, MoreFollowersThanItTakesAreTurnedAway) {
  const auto feed = std::make_shared<HttpFeed>(1024);
  TestHandler handler(
      [&](const HttpRequest&, HttpAnswer answer) { answer.Follow(feed, "text/plain"); });
  HttpLimits limits;
  limits.followers = 1;
  const TestServer server(handler, limits);
  RawClient first(server.path());
  first.Send(kGet);
  first.ReadUntil("\r\n\r\n");
  RawClient second(server.path());
  EXPECT_THAT(second.Ask(kLastGet), StartsWith("HTTP/1.1 503 "));
  first.Close();
  EXPECT_TRUE(testing::SpinUntil([&] { return !feed->HasFollowers(); }));
  RawClient third(server.path());
  third.Send(kGet);
  EXPECT_THAT(third.ReadUntil("\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

// One that reads nothing is closed when it is behind, and the others have all.
TEST(HttpServerTest, AFollowerThatReadsNothingHarmsNobody) {
  const auto feed = std::make_shared<HttpFeed>(64 << 10);
  TestHandler handler(
      [&](const HttpRequest&, HttpAnswer answer) { answer.Follow(feed, "text/plain"); });
  const TestServer server(handler);
  RawClient lazy(server.path());
  lazy.Send(kGet);
  lazy.ReadUntil("\r\n\r\n");
  RawClient eager(server.path());
  eager.Send(kGet);
  eager.ReadUntil("\r\n\r\n");
  const std::string block(16 << 10, 'x');
  for (int i = 0; i < 100; ++i) {
    feed->Publish(block + std::to_string(i) + "!");
    EXPECT_THAT(eager.ReadUntil("!"), EndsWith(std::to_string(i) + "!"));
  }
  EXPECT_LT(lazy.ReadAll().size(), 100 * block.size());
  EXPECT_TRUE(lazy.IsClosed());
}

}  // namespace
}  // namespace ringside
