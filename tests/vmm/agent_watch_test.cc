// Whether the agent of a guest is there, as a machine watches it, against sockets that say
// anything.
#include "vmm/agent_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <thread>

#include "agent/agent_message.h"
#include "base/clock.h"
#include "base/unix_listener.h"
#include "tests/support/directories.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using testing::SpinUntil;

std::string Frame(AgentType type) {
  std::string frame;
  AppendFrame(type, {}, frame);
  return frame;
}

std::string GoodAnswer() {
  std::string answer = "OK 1073741824\n";
  Encode(HelloMessage{}, answer);
  return answer + Frame(AgentType::kDone);
}

class AgentWatchTest : public ::testing::Test {
 protected:
  void Begin(bool is_told = true, bool renews = false) {
    AgentWatch::Config config = {.path = path_, .renews = renews, .log = Logger(&log_)};
    if (is_told) {
      config.told = [this](bool up) {
        const MutexLock lock(mutex_);
        told_.push_back(up);
      };
    }
    watch_ = std::make_unique<AgentWatch>(std::move(config), *io_thread_);
    watch_->Begin();
  }
  // What a connection of it has asked.
  static std::string Asked(const std::unique_ptr<UniqueFd>& fd) {
    std::string question(1024, '\0');
    ssize_t got = 0;
    EXPECT_TRUE(SpinUntil([&] {
      got = recv(fd->get(), question.data(), question.size(), 0);
      return got >= 0;
    }));
    question.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return question;
  }
  void Listen() { listener_ = std::make_unique<UnixListener>(*UnixListener::Bind(path_)); }
  // The next connection of the watch, which has asked; closed when it is dropped.
  std::unique_ptr<UniqueFd> Accept() {
    auto fd = std::make_unique<UniqueFd>();
    EXPECT_TRUE(SpinUntil([&] {
      auto accepted = listener_->Accept();
      if (accepted.ok() && accepted->has_value()) *fd = std::move((*accepted)->fd);
      return fd->valid();
    }));
    EXPECT_TRUE(testing::WaitForFd(fd->get(), POLLIN)) << "neither asks nor goes";
    return fd;
  }
  static void Say(const std::unique_ptr<UniqueFd>& fd, const std::string& text) {
    EXPECT_EQ(send(fd->get(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  static bool IsOver(const std::unique_ptr<UniqueFd>& fd) {
    char byte;
    const ssize_t got = recv(fd->get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }
  std::vector<bool> told() {
    const MutexLock lock(mutex_);
    return told_;
  }
  bool HasTold(size_t count) {
    return SpinUntil([&] { return told().size() >= count; });
  }

  testing::RecordingLog log_;
  testing::TempDirectory directory_;
  const std::string path_ = directory_.path() / "vsock";
  std::unique_ptr<IoThread> io_thread_ = *IoThread::Start("test");
  std::unique_ptr<UnixListener> listener_;
  Mutex mutex_;
  std::vector<bool> told_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<AgentWatch> watch_;
};

TEST_F(AgentWatchTest, AnAgentThatAnswersIsUpUntilNoFurtherConnectionIsAnswered) {
  Listen();
  Begin();
  auto connection = Accept();
  std::string expected = "CONNECT 5005\n";
  Encode(HelloMessage{.capabilities = 0}, expected);
  expected += Frame(AgentType::kPing);
  EXPECT_EQ(Asked(connection), expected);
  // In two parts.
  Say(connection, GoodAnswer().substr(0, 20));
  EXPECT_TRUE(told().empty());
  Say(connection, GoodAnswer().substr(20));
  ASSERT_TRUE(HasTold(1));

  connection.reset();
  connection = Accept();
  Say(connection, GoodAnswer());
  connection.reset();
  connection = Accept();
  EXPECT_EQ(told(), std::vector{true}) << "it has always been there";
  connection.reset();
  connection = Accept();
  EXPECT_EQ(told(), (std::vector{true, false}));
  Say(connection, GoodAnswer());
  ASSERT_TRUE(HasTold(3));
  EXPECT_EQ(told(), (std::vector{true, false, true}));
}

TEST_F(AgentWatchTest, NobodyHasToBeThereYet) {
  Begin();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  Listen();
  Say(Accept(), GoodAnswer());
  EXPECT_TRUE(HasTold(1));
}

TEST_F(AgentWatchTest, WhatIsNoAnswerIsNoAgent) {
  Listen();
  Begin();
  const std::string good = GoodAnswer();
  for (const std::string& answer :
       {std::string("NO\n"), std::string(1300, 'x'), "OK 1\n" + Frame(AgentType::kDone),
        good.substr(0, good.size() - 8) + Frame(AgentType::kTreeEnd), good + "x",
        "OK 1\n" + std::string(8, '\xff')}) {
    auto connection = Accept();
    Say(connection, answer);
    EXPECT_TRUE(SpinUntil([&] { return IsOver(connection); })) << answer;
  }
  EXPECT_TRUE(told().empty());
}

// It is closed by the watch, and does not keep its thread awake.
TEST_F(AgentWatchTest, AnAgentThatTalksUnaskedIsAskedAgain) {
  Listen();
  Begin();
  auto connection = Accept();
  Say(connection, GoodAnswer());
  ASSERT_TRUE(HasTold(1));
  Say(connection, GoodAnswer());
  auto next = Accept();
  next.reset();
  ASSERT_TRUE(HasTold(2));
}

TEST_F(AgentWatchTest, OneThatComesAndGoesIsToldOfEverLessOften) {
  Listen();
  Begin();
  constexpr int kConnections = 16;
  const int64_t begin_ns = MonotonicNs();
  for (int i = 0; i < kConnections; ++i) {
    auto connection = Accept();
    if (i % 2 == 0) Say(connection, GoodAnswer());
  }
  // 10 ms and a quarter more each time.
  EXPECT_GT(MonotonicNs() - begin_ns, 1'000'000'000);
  EXPECT_LE(told().size(), size_t{kConnections});
}

// Of a guest that is a copy: it gets random bytes between HELLO and PING, once, and others each
// time.
TEST_F(AgentWatchTest, ACopyRenewsItsRandomNumbersOnce) {
  std::string head = "CONNECT 5005\n";
  Encode(HelloMessage{.capabilities = 0}, head);
  const size_t plain = (head + Frame(AgentType::kPing)).size();
  Listen();
  Begin(true, true);
  auto connection = Accept();
  const std::string unanswered = Asked(connection);
  connection.reset();
  connection = Accept();
  const std::string asked = Asked(connection);
  EXPECT_EQ(asked.size(), plain + kFrameHeader + 256);
  AgentFrame frame;
  ASSERT_EQ(ReadFrame(std::string_view(asked).substr(head.size()), frame), FrameState::kWhole);
  EXPECT_EQ(frame.type, AgentType::kEntropy);
  EXPECT_NE(asked, unanswered);
  Say(connection, GoodAnswer());
  EXPECT_TRUE(told().empty()) << "that was not yet all";
  Say(connection, Frame(AgentType::kDone));
  EXPECT_TRUE(HasTold(1));
  connection.reset();
  EXPECT_EQ(Asked(Accept()).size(), plain);
  EXPECT_TRUE(log_.lines().empty());
}

TEST_F(AgentWatchTest, WhereNobodyWantsToKnowItIsOverWhenThatIsDone) {
  Listen();
  Begin(false, true);
  Accept().reset();
  auto connection = Accept();
  Say(connection, GoodAnswer() + Frame(AgentType::kDone));
  EXPECT_TRUE(SpinUntil([&] { return IsOver(connection); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(listener_->Accept()->has_value());
}

TEST_F(AgentWatchTest, ThatItCannotBeDoneIsSaid) {
  Listen();
  Begin(true, true);
  auto connection = Accept();
  std::string answer = "OK 1\n";
  Encode(HelloMessage{}, answer);
  Encode(ErrorMessage{.error = 1, .text = "not\npermitted"}, answer);
  Say(connection, answer + Frame(AgentType::kDone));
  ASSERT_TRUE(HasTold(1));
  ASSERT_EQ(log_.lines().size(), 1u);
  EXPECT_NE(log_.lines()[0].find("renew"), std::string::npos) << log_.lines()[0];
}

TEST_F(AgentWatchTest, ItEndsAtAnyTime) {
  Listen();
  for (int i = 0; i < 50; ++i) {
    Begin();
    const std::string answer = i % 3 == 1 ? GoodAnswer() : "NO\n";
    // It may be one of those before, which are closed.
    if (i % 3 > 0) (void)send(Accept()->get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    watch_.reset();
    // What has come meanwhile.
    while (listener_->Accept()->has_value()) {
    }
  }
}

}  // namespace
}  // namespace ringside
