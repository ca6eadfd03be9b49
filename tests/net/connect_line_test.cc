// The line of a client of a vsock, whole, in pieces, and wrong.
#include "net/connect_line.h"

#include <gtest/gtest.h>
#include <string>

namespace ringside {
namespace {

using State = ConnectLine::State;

TEST(ConnectLineTest, TakesPorts) {
  for (const uint32_t port : {0U, 1U, 1024U, 0xffffffffU}) {
    const std::string line = "CONNECT " + std::to_string(port) + "\n";
    const ConnectLine parsed = ParseConnectLine(line + "data\n");
    EXPECT_EQ(parsed.state, State::kWhole);
    EXPECT_EQ(parsed.port, port);
    EXPECT_EQ(parsed.length, line.size());
  }
}

TEST(ConnectLineTest, TakesWhatPeopleType) {
  for (const std::string line : {"connect 52\n", "Connect 52\r\n"}) {
    const ConnectLine parsed = ParseConnectLine(line + "\n");
    EXPECT_EQ(parsed.state, State::kWhole) << line;
    EXPECT_EQ(parsed.port, 52U);
    EXPECT_EQ(parsed.length, line.size());
  }
}

TEST(ConnectLineTest, WaitsForTheRest) {
  const std::string line = "CONNECT 52\n";
  for (size_t size = 0; size < line.size(); ++size) {
    EXPECT_EQ(ParseConnectLine(line.substr(0, size)).state, State::kPartial) << size;
  }
}

TEST(ConnectLineTest, RefusesAllElse) {
  for (const char* const line :
       {"GET / HTTP/1.1\n", "\n", "CONNECT\n", "CONNECT \n", "CONNECT -1\n", "CONNECT +1\n",
        "CONNECT 4294967296\n", "CONNECT 5 2\n", "CONNECT 52\r\r\n", "CONNECT \r\n", "\r\n",
        "CONNECT  52\n", "CONNECT 0x10\n", "D", "CONNECTX"}) {
    EXPECT_EQ(ParseConnectLine(line).state, State::kWrong) << line;
  }
}

TEST(ConnectLineTest, HasALongest) {
  const std::string digits(ConnectLine::kMaxLength, '1');
  EXPECT_EQ(ParseConnectLine("CONNECT " + digits).state, State::kWrong);
  EXPECT_EQ(ParseConnectLine("CONNECT " + digits.substr(0, 23)).state, State::kPartial);
  EXPECT_EQ(ParseConnectLine("CONNECT " + std::string(20, '0') + "52\n").state, State::kWhole);
}

}  // namespace
}  // namespace ringside
