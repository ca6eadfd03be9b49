// How long a client waits for an agent that is neither silent nor done.
#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>

#include "agent/agent_channel.h"
#include "agent/client.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(200);

class AgentChannelTest : public ::testing::Test {
 protected:
  AgentChannelTest() {
    std::array<int, 2> ends;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    ours_ = UniqueFd(ends[0]);
    its_ = UniqueFd(ends[1]);
    std::string hello;
    Encode(HelloMessage{}, hello);
    Say(hello);
  }
  ~AgentChannelTest() override {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
  }

  void Say(std::string_view bytes) {
    EXPECT_EQ(send(its_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  // Again and again, in pieces, until the test is over; the client may be gone by then.
  void SayOn(const std::string& bytes, size_t piece) {
    thread_ = std::thread([this, bytes, piece] {
      for (size_t at = 0; !is_over_; at = (at + piece) % bytes.size()) {
        send(its_.get(), bytes.data() + at, piece, MSG_NOSIGNAL);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    });
  }

  UniqueFd ours_, its_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

// All of it would take 20 s.
TEST_F(AgentChannelTest, AMessageInPiecesHasThePatienceOfOne) {
  auto channel = AgentChannel::Greet(std::move(ours_), {.patience = kShort});
  ASSERT_TRUE(channel.ok()) << channel.status();
  std::string error;
  Encode(ErrorMessage{.error = EIO, .text = std::string(1024, 'x')}, error);
  SayOn(error, 1);
  const auto frame = channel->Receive();
  EXPECT_TRUE(absl::IsUnavailable(frame.status())) << frame.status();
}

// Each message comes in time, and there are always more of them: a thousand would take 20 s.
TEST_F(AgentChannelTest, AllOfACallHasItsLimit) {
  std::string data;
  AppendFrame(AgentType::kData, "x", data);
  SayOn(data, data.size());
  const auto call = [&]() -> absl::Status {
    RINGSIDE_ASSIGN_OR_RETURN(AgentChannel channel,
                              AgentChannel::Greet(std::move(ours_), {.limit = kShort}));
    AgentClient client(std::move(channel));
    int taken = 0;
    return client.Get("/file", false, [&](const AgentFrame&) {
      return ++taken < 1000 ? absl::OkStatus() : absl::InternalError("it goes on");
    });
  };
  const absl::Status status = call();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

// This process may have slept meanwhile.
TEST_F(AgentChannelTest, WhatIsThereIsTakenHoweverLate) {
  auto channel = AgentChannel::Greet(std::move(ours_), {.patience = absl::ZeroDuration()});
  ASSERT_TRUE(channel.ok()) << channel.status();
  std::string data;
  AppendFrame(AgentType::kData, std::string(kMostData, 'x'), data);
  for (int i = 0; i < 3; ++i) Say(data);
  for (int i = 0; i < 3; ++i) {
    const auto frame = channel->Receive();
    ASSERT_TRUE(frame.ok()) << frame.status();
    EXPECT_EQ(frame->payload.size(), kMostData);
  }
}

}  // namespace
}  // namespace ringside
