#include "http/http_client.h"

#include <atomic>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>

#include "http/http_feed.h"
#include "http/http_router.h"
#include "tests/support/http/http_test_server.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::Echo;
using ::testing::HasSubstr;
using testing::kWaitLimit;
using testing::TempDirectory;
using testing::TestHandler;
using testing::TestServer;

HttpClient Connected(const std::string& path, absl::Duration limit = kWaitLimit) {
  absl::StatusOr<HttpClient> client = HttpClient::Connect(path, limit);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

TEST(HttpClientTest, CallsSeveralTimes) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  HttpClient client = Connected(server.path());
  EXPECT_EQ(client.Call("GET", "/a%20b?c")->body, "GET /a b ");
  EXPECT_EQ(client.Call("PUT", "/x", "{}")->body, "PUT /x {}");
  const auto head = client.Call("HEAD", "/x");
  ASSERT_TRUE(head.ok()) << head.status();
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(client.Call("GET", "/y")->content_type, "text/plain");
  const std::string large(1 << 20, 'x');
  EXPECT_EQ(client.Call("POST", "/", large)->body.size(), large.size() + 7);
}

TEST(HttpClientTest, AnyStatusIsAResponse) {
  HttpRouter router;
  const TestServer server(router);
  const auto response = Connected(server.path()).Call("GET", "/nothing");
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 404);
}

// The server refuses while the client still sends.
TEST(HttpClientTest, SeesWhyItsBodyIsTooLong) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  const auto response = Connected(server.path()).Call("PUT", "/", std::string(2 << 20, 'x'));
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->status, 413);
}

TEST(HttpClientTest, RefusesTargetsThatAreNone) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  for (const char* target : {"", "x", "/a b", "/a\r\nX: y", "/%zz"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Connected(server.path()).Call("GET", target).status()))
        << target;
  }
  EXPECT_EQ(handler.count(), 0);
}

TEST(HttpClientTest, SaysWhatItCannotConnectTo) {
  const TempDirectory directory;
  const auto error = [](const std::string& path) {
    return std::string(Message(HttpClient::Connect(path, kWaitLimit).status()));
  };
  EXPECT_THAT(error(directory / "nothing"), HasSubstr("start the machine"));
  EXPECT_THAT(error("/dev/null"), HasSubstr("is no socket"));
  std::string left_behind;
  {
    auto listener = UnixListener::Bind(directory / "first");
    std::filesystem::rename(directory / "first", directory / "old");
  }
  EXPECT_THAT(error(directory / "old"), HasSubstr("its process is gone"));
}

TEST(HttpClientTest, TakesPathsThatAnAddressCannotHold) {
  const TempDirectory directory;
  const std::string folder = directory / std::string(120, 'a');
  std::filesystem::create_directory(folder);
  const auto listener = UnixListener::Bind(folder + "/control");
  EXPECT_TRUE(HttpClient::Connect(folder + "/control", kWaitLimit).ok());
}

TEST(HttpClientTest, FollowsUntilTheEnd) {
  const auto feed = std::make_shared<HttpFeed>(1 << 16);
  TestHandler handler([&](const HttpRequest&, HttpAnswer answer) {
    answer.Follow(feed, "text/plain");
    feed->Publish("first ");
  });
  const TestServer server(handler);
  std::string text;
  HttpClient client = Connected(server.path());
  EXPECT_TRUE(client
                  .Follow("/events",
                          [&](std::string_view piece) {
                            text += piece;
                            if (text == "first ") {
                              feed->Publish("last");
                              feed->End();
                            }
                            return true;
                          })
                  .ok());
  EXPECT_EQ(text, "first last");
  EXPECT_FALSE(client.Call("GET", "/").ok()) << "the connection is used up";
}

TEST(HttpClientTest, FollowsUntilItHasEnough) {
  const auto feed = std::make_shared<HttpFeed>(1 << 16);
  TestHandler handler([&](const HttpRequest&, HttpAnswer answer) {
    answer.Follow(feed, "text/plain");
    feed->Publish("first");
  });
  const TestServer server(handler);
  EXPECT_TRUE(Connected(server.path()).Follow("/", [](std::string_view) { return false; }).ok());
  EXPECT_TRUE(testing::SpinUntil([&] { return !feed->HasFollowers(); }))
      << "that its client is gone is seen at once";
}

TEST(HttpClientTest, WhatCannotBeFollowedSaysWhy) {
  HttpRouter router;
  router.Add("GET", "/events", [](HttpCall) {});
  const TestServer server(router);
  const absl::Status status =
      Connected(server.path()).Follow("/event", [](std::string_view) { return true; });
  EXPECT_THAT(std::string(Message(status)), HasSubstr("404"));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("'/events'"));
}

// A server that says to the first client what the test says.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::function<void(int)> script)
      : listener_(*UnixListener::Bind(path())), thread_([this, script] {
          testing::WaitForFd(listener_.fd(), POLLIN);
          const auto client = listener_.Accept();
          if (!client.ok() || !client->has_value()) return;
          // What is left unread would be a reset.
          testing::WaitForFd((*client)->fd.get(), POLLIN);
          testing::ReadAvailable((*client)->fd.get());
          script((*client)->fd.get());
        }) {}
  ~ScriptedServer() { thread_.join(); }
  std::string path() const { return directory_ / "control"; }

 private:
  const TempDirectory directory_;
  UnixListener listener_;
  std::thread thread_;
};

std::string ErrorOfAServerThatSays(const std::string& text) {
  const ScriptedServer server([&](int fd) { send(fd, text.data(), text.size(), MSG_NOSIGNAL); });
  const auto response = Connected(server.path()).Call("GET", "/");
  return response.ok() ? "none" : std::string(Message(response.status()));
}

TEST(HttpClientTest, AServerMayNotSayJustAnything) {
  EXPECT_THAT(ErrorOfAServerThatSays(""), HasSubstr("no answer from control socket"));
  EXPECT_THAT(ErrorOfAServerThatSays("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"),
              HasSubstr("ends in its middle"));
  EXPECT_THAT(ErrorOfAServerThatSays("SSH-2.0-x\r\n"), HasSubstr("no status line"));
  EXPECT_THAT(ErrorOfAServerThatSays("HTTP/1.1 200 OK\r\n" + std::string(20000, 'x')),
              HasSubstr("8192 bytes"));
  EXPECT_THAT(ErrorOfAServerThatSays("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"),
              HasSubstr("more than 67108864 bytes"));
  std::string interim;
  for (int i = 0; i < 100; ++i) interim += "HTTP/1.1 102 Wait\r\n\r\n";
  EXPECT_THAT(ErrorOfAServerThatSays(interim), HasSubstr("interim"));
  EXPECT_EQ(ErrorOfAServerThatSays("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"), "none");
}

TEST(HttpClientTest, AServerMayNotTakeForEver) {
  // It trickles until its client is gone.
  const ScriptedServer server([](int fd) {
    const std::string_view start = "HTTP/1.1 200 OK\r\nX: ";
    if (send(fd, start.data(), start.size(), MSG_NOSIGNAL) < 0) return;
    while (send(fd, "x", 1, MSG_NOSIGNAL) == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const auto response = Connected(server.path(), absl::Milliseconds(50)).Call("GET", "/");
  EXPECT_THAT(std::string(Message(response.status())), HasSubstr("takes too long"));
}

TEST(HttpClientTest, AServerThatReadsNothingHoldsItForItsLimitOnly) {
  const TempDirectory directory;
  const auto listener = UnixListener::Bind(directory / "control");
  HttpClient client = Connected(directory / "control", absl::Milliseconds(50));
  EXPECT_THAT(std::string(Message(client.Call("PUT", "/", std::string(8 << 20, 'x')).status())),
              HasSubstr("takes too long"));
}

}  // namespace
}  // namespace ringside
