// A connection of the agent, with time that the test gives it.
#include "agent/guest/agent_connection.h"

#include <array>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace ringside {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class AgentConnectionTest : public ::testing::Test {
 protected:
  AgentConnectionTest() : connection_(Sockets(), false, agent_, 0) {}

  void Send(const std::string& bytes) {
    ASSERT_EQ(send(client_.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  }
  static std::string Hello() {
    std::string bytes;
    Encode(HelloMessage{}, bytes);
    return bytes;
  }
  static std::string HelloAndPing() {
    std::string bytes = Hello();
    AppendFrame(AgentType::kPing, {}, bytes);
    return bytes;
  }

  // The types of what the connection has said since.
  std::vector<AgentType> Said() {
    std::string bytes(65536, '\0');
    const ssize_t got = recv(client_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    std::vector<AgentType> types;
    AgentFrame frame;
    std::string_view rest = bytes;
    while (ReadFrame(rest, frame) == FrameState::kWhole) {
      types.push_back(frame.type);
      rest.remove_prefix(frame.size());
    }
    return types;
  }

  AgentState agent_;
  UniqueFd client_;
  AgentConnection connection_;

 private:
  UniqueFd Sockets() {
    std::array<int, 2> ends;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    client_ = UniqueFd(ends[0]);
    return UniqueFd(ends[1]);
  }
};

TEST_F(AgentConnectionTest, AClientHasTenSecondsToAskForSomething) {
  EXPECT_EQ(connection_.deadline_ns(), 10 * kSecond);
  Send(Hello());  // which asks for nothing
  connection_.Turn(POLLIN, 9 * kSecond);
  EXPECT_EQ(Said(), (std::vector{AgentType::kHello}));
  EXPECT_EQ(connection_.deadline_ns(), 10 * kSecond);
  EXPECT_FALSE(connection_.idle_since_ns()) << "its place is its own for so long";
  connection_.Turn(0, 10 * kSecond);
  EXPECT_EQ(Said(), (std::vector{AgentType::kError}));
  EXPECT_FALSE(connection_.is_over()) << "it has not read that yet";
  EXPECT_EQ(connection_.deadline_ns(), 11 * kSecond);
  connection_.Turn(0, 11 * kSecond);
  EXPECT_TRUE(connection_.is_over());
}

TEST_F(AgentConnectionTest, AfterARequestItMayStay) {
  Send(HelloAndPing());
  connection_.Turn(POLLIN, kSecond);
  EXPECT_EQ(Said(), (std::vector{AgentType::kHello, AgentType::kDone}));
  EXPECT_FALSE(connection_.deadline_ns());
  EXPECT_EQ(connection_.idle_since_ns(), kSecond);
  connection_.Turn(0, 3600 * kSecond);
  EXPECT_FALSE(connection_.is_over());
}

TEST_F(AgentConnectionTest, HalfAMessageIsNotIdle) {
  Send(HelloAndPing() + std::string(3, '\0'));
  connection_.Turn(POLLIN, kSecond);
  EXPECT_FALSE(connection_.idle_since_ns());
}

TEST_F(AgentConnectionTest, AMessageMayComeByteByByte) {
  for (const char byte : HelloAndPing()) {
    Send(std::string(1, byte));
    connection_.Turn(POLLIN, kSecond);
  }
  EXPECT_EQ(Said(), (std::vector{AgentType::kHello, AgentType::kDone}));
}

}  // namespace
}  // namespace ringside
