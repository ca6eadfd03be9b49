// Clients that mean no good, or are just slow. What they may take up is in docs/threat-model.md.
#include <array>
#include <cerrno>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "tests/support/http/http_test_server.h"
#include "tests/support/net/passed_descriptors.h"

namespace ringside {
namespace {

using testing::CountEntries;
using testing::Echo;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::kWaitLimit;
using testing::RawClient;
using ::testing::StartsWith;
using testing::TestHandler;
using testing::TestServer;

constexpr std::string_view kGet = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
constexpr std::string_view kLastGet = "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

HttpLimits ShortLimits() {
  return {.connections = 4,
          .followers = 2,
          .idle = absl::Milliseconds(30),
          .request = absl::Milliseconds(400),  // a client may be late with its first byte
          .response = absl::Milliseconds(30),
          .linger = absl::Milliseconds(30)};
}

// Polls; for what no descriptor tells.
template <typename Condition>
bool Eventually(Condition condition) {
  const int64_t end_ns = MonotonicNs() + absl::ToInt64Nanoseconds(kWaitLimit);
  while (!condition()) {
    if (MonotonicNs() > end_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

size_t OpenFiles() {
  return CountEntries("/proc/self/fd");
}

TEST(HttpHostileTest, WhatIsRefusedIsToldWhyAndClosed) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  const struct {
    std::string text;
    const char* status;
    const char* reason;
  } cases[] = {
      {"nonsense\r\n", "HTTP/1.1 400 Bad Request\r\n", "{\"error\":\"'nonsense' is no request"},
      {"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 400 ", "Host"},
      {"GET / HTTP/3.0\r\n\r\n", "HTTP/1.1 505 ", "HTTP/3.0"},
      {"GET /" + std::string(9000, 'a'), "HTTP/1.1 414 ", "8192"},
      {"GET / HTTP/1.1\r\nA: " + std::string(9000, 'a'), "HTTP/1.1 431 ", "8192"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n", "HTTP/1.1 413 ", "1048576"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", "HTTP/1.1 501 ", "'x'"},
      {"PUT / HTTP/1.1\r\nHost: a\r\nExpect: x\r\n\r\n", "HTTP/1.1 417 ", "'x'"},
  };
  for (const auto& each : cases) {
    RawClient client(server.path());
    const std::string response = client.Ask(each.text);
    EXPECT_THAT(response, StartsWith(each.status));
    EXPECT_THAT(response, HasSubstr(each.reason));
    EXPECT_THAT(response, HasSubstr("Connection: close\r\n"));
    EXPECT_EQ(response.find('\n', response.find("\r\n\r\n") + 4), response.size() - 1);
  }
  EXPECT_EQ(handler.count(), 0);
}

// The response to a body that is too long comes through, though the client is still sending it.
TEST(HttpHostileTest, WhoSendsTooMuchSeesWhy) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  RawClient client(server.path());
  client.Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n");
  client.Send(std::string(1 << 20, 'x'));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 413 "));
}

TEST(HttpHostileTest, WhoSendsWithoutEndIsCutOff) {
  TestHandler handler(Echo);
  HttpLimits limits;
  limits.linger = absl::Hours(1);  // not by time
  limits.message.body = 1 << 16;
  const TestServer server(handler, limits);
  RawClient client(server.path());
  client.Send("nonsense\r\n");
  const std::string block(1 << 16, 'x');
  ssize_t sent = 0;
  while (sent >= 0) sent = send(client.fd(), block.data(), block.size(), MSG_NOSIGNAL);
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET);
}

TEST(HttpHostileTest, SlowSendersEnd) {
  TestHandler handler(Echo);
  const TestServer server(handler, ShortLimits());
  RawClient slow(server.path());
  slow.Send("GET / HTTP/1.1\r\nHo");
  RawClient slow_with_its_body(server.path());
  slow_with_its_body.Send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
  RawClient silent(server.path());
  EXPECT_THAT(slow.ReadAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_THAT(slow_with_its_body.ReadAll(), StartsWith("HTTP/1.1 408 "));
  EXPECT_EQ(silent.ReadAll(), "");
  EXPECT_TRUE(silent.IsClosed());
  EXPECT_EQ(handler.count(), 0);
}

// A byte now and then does not gain it time.
TEST(HttpHostileTest, ATrickleEnds) {
  TestHandler handler(Echo);
  const TestServer server(handler, ShortLimits());
  RawClient client(server.path());
  client.Send("GET / HTTP/1.1\r\nX: ");
  EXPECT_TRUE(Eventually([&] { return send(client.fd(), "x", 1, MSG_NOSIGNAL) < 0; }));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 408 "));
}

TEST(HttpHostileTest, IdleConnectionsEnd) {
  TestHandler handler(Echo);
  const TestServer server(handler, ShortLimits());
  RawClient client(server.path());
  client.Send(kGet);
  client.ReadUntil("GET /x ");
  EXPECT_TRUE(client.IsClosed());
}

TEST(HttpHostileTest, WhoReadsNothingIsClosed) {
  TestHandler handler;
  const TestServer server(handler, ShortLimits());
  RawClient client(server.path());
  client.Send(kGet);
  auto [request, answer] = handler.Next();
  const size_t before = OpenFiles();
  const std::string body(8 << 20, 'x');
  answer.Send({.body = body});
  EXPECT_TRUE(Eventually([&] { return OpenFiles() == before - 1; }));
  EXPECT_LT(client.ReadAll().size(), body.size());
}

TEST(HttpHostileTest, AThousandConnections) {
  TestHandler handler(Echo);
  HttpLimits limits;
  limits.connections = 8;
  const TestServer server(handler, limits);
  const size_t before = OpenFiles();
  std::vector<std::unique_ptr<RawClient>> clients;
  size_t most = 0;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.path()));
    clients.back()->Send(kLastGet);
    most = std::max(most, OpenFiles() - before - clients.size());
    if (clients.size() < 100) continue;
    for (const auto& client : clients) EXPECT_THAT(client->ReadAll(), EndsWith("GET /last "));
    clients.clear();
  }
  EXPECT_LE(most, limits.connections);
}

// Clients that only connect do not keep others out for longer than a request may take.
TEST(HttpHostileTest, SilentConnectionsMakeRoom) {
  TestHandler handler(Echo);
  const TestServer server(handler, ShortLimits());
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(std::make_unique<RawClient>(server.path()));
  RawClient client(server.path());
  EXPECT_THAT(client.Ask(kLastGet), EndsWith("GET /last "));
}

TEST(HttpHostileTest, IdleConnectionsMakeRoomAtOnce) {
  TestHandler handler(Echo);
  HttpLimits limits = ShortLimits();
  limits.idle = limits.request = absl::Hours(1);
  const TestServer server(handler, limits);
  std::vector<std::unique_ptr<RawClient>> idle;
  for (size_t i = 0; i < limits.connections; ++i) {
    idle.push_back(std::make_unique<RawClient>(server.path()));
    idle.back()->Send(kGet);
    idle.back()->ReadUntil("GET /x ");
  }
  RawClient client(server.path());
  EXPECT_THAT(client.Ask(kLastGet), EndsWith("GET /last "));
  EXPECT_TRUE(idle.front()->IsClosed()) << "the one that was idle for longest";
  idle.back()->Send(kGet);
  EXPECT_THAT(idle.back()->ReadUntil("GET /x "), EndsWith("GET /x "));
}

TEST(HttpHostileTest, ConnectionsThatAwaitAnAnswerKeepTheirPlace) {
  TestHandler handler;
  HttpLimits limits = ShortLimits();
  limits.connections = 2;
  const TestServer server(handler, limits);
  RawClient first(server.path());
  first.Send(kLastGet);
  auto kept = handler.Next();
  // Its client goes away, and the next one's, too: their requests are still with the handler.
  first.Close();
  RawClient second(server.path());
  second.Send(kLastGet);
  auto also_kept = handler.Next();
  second.Close();
  RawClient third(server.path());
  third.Send(kLastGet);
  EXPECT_FALSE(testing::WaitForFd(third.fd(), POLLIN, absl::Milliseconds(60)));
  EXPECT_EQ(handler.count(), 2);
  kept.second.Send({});
  auto [request, answer] = handler.Next();
  Echo(std::move(request), std::move(answer));
  EXPECT_THAT(third.ReadAll(), EndsWith("GET /last "));
}

TEST(HttpHostileTest, AFloodOfRequestsIsReadOneByOne) {
  TestHandler handler;
  const TestServer server(handler);
  RawClient client(server.path());
  std::string flood;
  for (int i = 0; i < 1000; ++i) flood += kGet;
  // More than the socket and the server hold: the server does not read on.
  ssize_t sent = 0;
  size_t total = 0;
  while ((sent = send(client.fd(), flood.data(), flood.size(), MSG_DONTWAIT)) > 0) total += sent;
  EXPECT_EQ(errno, EAGAIN);
  auto first = handler.Next();
  EXPECT_EQ(handler.count(), 1);
  EXPECT_LT(total, 4 << 20);
}

TEST(HttpHostileTest, AFloodHoldsNobodyUp) {
  TestHandler handler(Echo);
  const TestServer server(handler);
  std::thread flooder([path = server.path()] {
    RawClient client(path);
    std::thread reader([&] { client.ReadAll(); });
    for (int i = 0; i < 2000; ++i) client.Send(kGet);
    client.Send(kLastGet);
    reader.join();
  });
  for (int i = 0; i < 50; ++i) {
    RawClient client(server.path());
    EXPECT_THAT(client.Ask(kLastGet), EndsWith("GET /last "));
  }
  flooder.join();
}

TEST(HttpHostileTest, WhoHasEndedItsHalfGetsItsAnswers) {
  TestHandler handler;
  const TestServer server(handler);
  RawClient client(server.path());
  client.Send(std::string(kGet) + std::string(kGet));
  client.EndSending();
  for (int i = 0; i < 2; ++i) {
    auto [request, answer] = handler.Next();
    Echo(std::move(request), std::move(answer));
  }
  client.ReadUntil("GET /x ");
  EXPECT_THAT(client.ReadAll(), EndsWith("GET /x "));
  RawClient half(server.path());
  half.Send("GET / HT");
  half.EndSending();
  EXPECT_THAT(half.ReadAll(), StartsWith("HTTP/1.1 400 "));
}

TEST(HttpHostileTest, DescriptorsThatAreSentAreNotTaken) {
  TestHandler handler;
  const TestServer server(handler);
  testing::HaveAllTakeDescriptors();  // as on a kernel that cannot refuse them
  RawClient client(server.path());
  const UniqueFd null = testing::DevNull();
  const std::array<int, 8> fds = {null.get(), null.get(), null.get(), null.get(),
                                  null.get(), null.get(), null.get(), null.get()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
  std::string text(kLastGet);
  iovec part{.iov_base = text.data(), .iov_len = text.size()};
  msghdr message{
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  *header = {.cmsg_len = CMSG_LEN(sizeof fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  std::memcpy(CMSG_DATA(header), &fds, sizeof fds);
  const size_t before = OpenFiles();
  ASSERT_GT(sendmsg(client.fd(), &message, MSG_NOSIGNAL), 0);
  auto [request, answer] = handler.Next();
  EXPECT_LE(OpenFiles(), before + 1) << "the connection's own";
  Echo(std::move(request), std::move(answer));
  EXPECT_THAT(client.ReadAll(), EndsWith("GET /last "));
}

// Without descriptors a connection stays where it is, and the server tries again without spinning.
TEST(HttpHostileTest, WithoutDescriptorsItWaits) {
  TestHandler handler(Echo);
  TestServer server(handler);
  rlimit old_limit{};
  getrlimit(RLIMIT_NOFILE, &old_limit);
  RawClient client(server.path());
  EXPECT_THAT(client.Ask(kLastGet), EndsWith("GET /last "));
  RawClient next;
  rlimit no_more = old_limit;
  no_more.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &no_more);
  next.Connect(server.path());
  const int64_t begin_ns = ClockNs(CLOCK_PROCESS_CPUTIME_ID);
  const int64_t start_ns = MonotonicNs();
  EXPECT_TRUE(Eventually([&] { return !server.log().lines().empty(); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int64_t used_ns = ClockNs(CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
  setrlimit(RLIMIT_NOFILE, &old_limit);
  const int64_t took_ns = MonotonicNs() - start_ns;  // it tries, and says so, each 200 ms
  EXPECT_LE(std::ssize(server.log().lines()), 1 + took_ns / 200'000'000);
  EXPECT_LT(used_ns, 30'000'000);
  EXPECT_THAT(next.Ask(kLastGet), EndsWith("GET /last "));
}

}  // namespace
}  // namespace ringside
