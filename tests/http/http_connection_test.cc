// A connection's limits of time, with a clock of the test's own.
#include "http/http_connection.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "tests/support/descriptors.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kSecond = 1'000'000'000;
constexpr std::string_view kPut = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";

class HttpConnectionTest : public ::testing::Test {
 protected:
  HttpConnectionTest() {
    int ends[2];
    testing::Must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
    client_ = UniqueFd(ends[0]);
    // As little as the kernel grants.
    const int size = 1;
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
    connection_ = std::make_unique<HttpConnection>(UniqueFd(ends[1]), limits_, 0);
  }

  void Send(std::string_view text, int64_t now_ns) {
    testing::WriteAll(client_.get(), text);
    connection_->OnEvents(EPOLLIN, buffer_, now_ns);
  }
  std::string Received() const { return testing::ReadAvailable(client_.get()); }
  // What comes to the client if the server sends on whenever it can.
  std::string ReceiveAll(int64_t now_ns) {
    std::string text = Received();
    while (true) {
      connection_->OnEvents(EPOLLOUT, buffer_, now_ns);
      const std::string more = Received();
      if (more.empty()) return text;
      text += more;
    }
  }

  const HttpLimits limits_;
  std::array<char, 4096> buffer_;
  UniqueFd client_;
  std::unique_ptr<HttpConnection> connection_;
};

TEST_F(HttpConnectionTest, ARequestHasItsTimeFromItsFirstByte) {
  EXPECT_EQ(connection_->deadline_ns(), 10 * kSecond) << "the first: from the connection";
  Send(kPut, 9 * kSecond);
  EXPECT_EQ(connection_->deadline_ns(), 10 * kSecond);
  Send("ab", 9 * kSecond);
  ASSERT_TRUE(connection_->NextRequest(9 * kSecond).has_value());
  EXPECT_EQ(connection_->deadline_ns(), HttpConnection::kNever) << "answers may be long in coming";
  connection_->Answer({}, 100 * kSecond);
  EXPECT_EQ(connection_->deadline_ns(), 160 * kSecond);
  EXPECT_EQ(connection_->idle_since_ns(), 100 * kSecond);
  Send("P", 150 * kSecond);
  EXPECT_EQ(connection_->deadline_ns(), 160 * kSecond);
  EXPECT_EQ(connection_->idle_since_ns(), HttpConnection::kNever);
  Send("UT", 151 * kSecond);
  EXPECT_EQ(connection_->deadline_ns(), 160 * kSecond) << "another byte gains no time";
  connection_->OnTime(160 * kSecond - 1);
  EXPECT_EQ(connection_->fault(), nullptr);
  connection_->OnTime(160 * kSecond);
  ASSERT_NE(connection_->fault(), nullptr);
  EXPECT_EQ(connection_->fault()->status, 408);
}

TEST_F(HttpConnectionTest, AnIdleOneEndsWithoutAWord) {
  connection_->OnTime(10 * kSecond);
  EXPECT_TRUE(connection_->is_over());
  EXPECT_EQ(Received(), "");
}

TEST_F(HttpConnectionTest, WhoTakesSomeOfItsResponseGainsTime) {
  Send(kPut, 0);
  Send("ab", 0);
  ASSERT_TRUE(connection_->NextRequest(0).has_value());
  connection_->Answer({.body = std::string(1 << 20, 'x')}, 0);
  EXPECT_EQ(connection_->deadline_ns(), 10 * kSecond);
  EXPECT_EQ(connection_->wanted_events(), EPOLLOUT);
  // As long as nothing is taken, none is gained.
  connection_->OnEvents(EPOLLOUT, buffer_, 5 * kSecond);
  EXPECT_EQ(connection_->deadline_ns(), 10 * kSecond);
  size_t taken = 0;
  while (taken < (16 << 10)) {
    taken += Received().size();
    connection_->OnEvents(EPOLLOUT, buffer_, 9 * kSecond);
  }
  EXPECT_EQ(connection_->deadline_ns(), 19 * kSecond);
  connection_->OnTime(19 * kSecond);
  EXPECT_TRUE(connection_->is_over());
}

TEST_F(HttpConnectionTest, IsToldToSendItsBodyOnce) {
  Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n", 0);
  EXPECT_EQ(Received(), "");
  Send("\r\n", 0);
  EXPECT_EQ(Received(), "HTTP/1.1 100 Continue\r\n\r\n");
  Send("a", 0);
  Send("b", 0);
  EXPECT_EQ(Received(), "");
  const std::optional<HttpRequest> request = connection_->NextRequest(0);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->body, "ab");
}

TEST_F(HttpConnectionTest, OneThatIsRefusedIsNotToldToGoOn) {
  Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\nExpect: 100-continue\r\n\r\n", 0);
  EXPECT_EQ(Received(), "");
  ASSERT_NE(connection_->fault(), nullptr);
  EXPECT_EQ(connection_->fault()->status, 413);
}

TEST_F(HttpConnectionTest, HeadHasNoBody) {
  Send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n", 0);
  ASSERT_TRUE(connection_->NextRequest(0).has_value());
  connection_->Answer({.body = "0123456789"}, 0);
  const std::string response = Received();
  EXPECT_THAT(response, HasSubstr("Content-Length: 10\r\n"));
  EXPECT_THAT(response, ::testing::EndsWith("\r\n\r\n"));
}

TEST_F(HttpConnectionTest, Http10IsAnsweredAndClosed) {
  Send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 0);
  ASSERT_TRUE(connection_->NextRequest(0).has_value());
  connection_->Answer({}, 0);
  EXPECT_THAT(Received(), HasSubstr("Connection: close\r\n"));
  char byte;
  EXPECT_EQ(recv(client_.get(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_TRUE(connection_->is_over());
}

TEST_F(HttpConnectionTest, OneThatIsRefusedHasAMomentToSendItsRest) {
  Send("nonsense\r\n", 0);
  ASSERT_NE(connection_->fault(), nullptr);
  connection_->Refuse(JsonError(400, "no"), 0);
  Send("more nonsense", 0);
  EXPECT_THAT(Received(), StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(connection_->deadline_ns(), kSecond);
  connection_->OnTime(kSecond);
  EXPECT_TRUE(connection_->is_over());
}

class HttpFollowTest : public HttpConnectionTest {
 protected:
  // Follows the feed by a request of that version.
  void Follow(const std::string& request) {
    Send(request, 0);
    ASSERT_TRUE(connection_->NextRequest(0).has_value());
    connection_->Follow({feed_.Attach([] {}), "text/plain"}, 0);
  }
  static constexpr const char* kRequest = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";

  HttpFeed feed_{1 << 20};
};

TEST_F(HttpFollowTest, GetsWhatIsPublishedInChunks) {
  Follow(kRequest);
  EXPECT_THAT(Received(), HasSubstr("Transfer-Encoding: chunked\r\n"));
  EXPECT_EQ(connection_->deadline_ns(), HttpConnection::kNever) << "nothing waits to be taken";
  feed_.Publish("ab");
  feed_.Publish("c");
  connection_->OnFollowerReady(kSecond);
  EXPECT_EQ(Received(), "3\r\nabc\r\n");
  feed_.End();
  connection_->OnFollowerReady(kSecond);
  EXPECT_EQ(Received(), "0\r\n\r\n");
}

TEST_F(HttpFollowTest, Http10GetsItUntilTheClose) {
  Follow("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_THAT(Received(), ::testing::Not(HasSubstr("chunked")));
  feed_.Publish("abc");
  connection_->OnFollowerReady(0);
  EXPECT_EQ(Received(), "abc");
}

TEST_F(HttpFollowTest, WhatIsPublishedWhileItTakesNothingComesAfterwards) {
  Follow(kRequest);
  const std::string block(300'000, 'x');
  feed_.Publish(block);
  connection_->OnFollowerReady(0);
  feed_.Publish("the end");
  connection_->OnFollowerReady(0);
  EXPECT_EQ(connection_->deadline_ns(), 10 * kSecond) << "there is something to be taken";
  EXPECT_THAT(ReceiveAll(kSecond), ::testing::EndsWith("xxx\r\n7\r\nthe end\r\n"));
  EXPECT_EQ(connection_->deadline_ns(), HttpConnection::kNever);
}

TEST_F(HttpFollowTest, OneThatTakesNothingInTimeIsClosed) {
  Follow(kRequest);
  feed_.Publish(std::string(300'000, 'x'));
  connection_->OnFollowerReady(0);
  connection_->OnTime(10 * kSecond);
  EXPECT_TRUE(connection_->is_over());
  feed_.Publish("more");
  EXPECT_FALSE(feed_.HasFollowers());
}

TEST_F(HttpFollowTest, OneThatIsBehindIsClosedAtOnce) {
  Follow(kRequest);
  feed_.Publish(std::string(1 << 20, 'x'));
  connection_->OnFollowerReady(0);
  feed_.Publish(std::string(1 << 20, 'x'));
  connection_->OnFollowerReady(0);
  EXPECT_FALSE(connection_->is_over());
  feed_.Publish("x");
  connection_->OnFollowerReady(0);
  EXPECT_TRUE(connection_->is_over());
}

TEST_F(HttpFollowTest, WhatItSendsIsIgnoredUpToABound) {
  Follow(kRequest);
  Send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n", 0);
  EXPECT_FALSE(connection_->NextRequest(0).has_value());
  EXPECT_FALSE(connection_->is_over());
  for (size_t sent = 0; sent <= limits_.message.header; sent += 1024) {
    if (!connection_->is_over()) Send(std::string(1024, 'x'), 0);
  }
  EXPECT_TRUE(connection_->is_over());
}

TEST_F(HttpFollowTest, OneThatHasEndedItsHalfFollowsOn) {
  Follow(kRequest);
  Received();
  shutdown(client_.get(), SHUT_WR);
  connection_->OnEvents(EPOLLIN, buffer_, 0);
  EXPECT_EQ(connection_->wanted_events(), 0) << "or the end of its input would be told for ever";
  feed_.Publish("abc");
  connection_->OnFollowerReady(0);
  EXPECT_EQ(Received(), "3\r\nabc\r\n");
}

TEST_F(HttpFollowTest, HeadFollowsNothing) {
  Follow("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_FALSE(feed_.HasFollowers());
  EXPECT_THAT(Received(), ::testing::EndsWith("\r\n\r\n"));
}

}  // namespace
}  // namespace ringside
