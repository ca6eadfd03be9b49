#include "http/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

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

}  // namespace
}  // namespace ringside
