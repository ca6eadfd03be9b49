// A vfio-user server that reads slowly, asks for much, or answers each time just soon enough: what
// waits for it ends when it is to, all the same.
#include <array>
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>

#include "base/clock.h"
#include "tests/support/recording_log.h"
#include "tests/support/vfio/vfio_user_fixture.h"
#include "vfio/vfio_user_connection.h"
#include "vfio/vfio_user_device.h"

namespace ringside {
namespace {

using testing::BoundedEvent;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kWaitLimit;
using testing::ScriptedReply;
using testing::SharedMemory;

constexpr auto kShort = absl::Seconds(1);
// Far more than kShort, and less than the server below takes to read one answer.
constexpr auto kSoon = absl::Seconds(8);
constexpr uint64_t kIova = 0x100000;
constexpr uint32_t kAllOnes = 0xffffffff;

bool Is(const VfioUserMessage& message, VfioUserCommand command) {
  return message.header.command == static_cast<uint16_t>(command);
}

class VfioUserSlowTest : public testing::VfioUserTest {
 protected:
  ~VfioUserSlowTest() override {
    device_.reset();
    server_.reset();  // before what its script uses
  }
  // The script of a server that at `trigger` asks for four times 1 MiB of memory, and takes of what
  // it is sent 4 KiB each 40 ms: each answer for some 10 s.
  auto ReadsSlowlyAt(VfioUserCommand trigger) {
    return [this, trigger](const VfioUserMessage& message, ScriptedReply& reply) {
      if (!is_slow_ || !Is(message, trigger)) return;
      reply.is_silent = trigger == VfioUserCommand::kVersion;
      reply.last = [this](int client) { ReadSlowly(client); };
    };
  }
  void OpenWithMemory(const VfioUserOptions& options) {
    auto device = OpenVfioUserDevice(path_, options);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    ASSERT_TRUE(device_->MapDma(memory_.At(kIova)).ok());
  }
  // Until the first answer is on its way, and the socket is full.
  void LetItReadSlowly() {
    is_slow_ = true;
    device_->ReadBar(0, 0);
    ASSERT_TRUE(is_full_.Wait());
  }

  const SharedMemory memory_{size_t{kVfioUserMaxTransfer}};
  std::atomic<bool> is_slow_ = false;
  BoundedEvent is_full_;
  int not_read_ = 0;  // by the device, then

 private:
  void ReadSlowly(int client) {
    VfioUserPayload ask;
    AppendTo(ask, VfioUserDmaAccess{.address = kIova, .count = kVfioUserMaxTransfer});
    for (uint16_t i = 0; i < 4; ++i) {
      const VfioUserHeader header = {.id = i,
                                     .command = static_cast<uint16_t>(VfioUserCommand::kDmaRead)};
      if (!testing::SendVfioUserMessage(client, header, ask, {}).ok()) return;
    }
    std::array<std::byte, 4096> some;
    for (int reads = 0; recv(client, some.data(), some.size(), 0) > 0; ++reads) {
      if (reads == 4) {
        ioctl(client, SIOCOUTQ, &not_read_);
        is_full_.Notify();
      }
      pollfd end = {.fd = client, .events = POLLRDHUP};
      if (poll(&end, 1, 40) == 1) return;
    }
  }
};

// Neither the connection's lock nor its thread are the server's to hold.
TEST_F(VfioUserSlowTest, ACallHasItsTimeOutWhileAnotherAnswerGoesOut) {
  Serve(ReadsSlowlyAt(VfioUserCommand::kRegionRead));
  OpenWithMemory({.timeout = kShort});
  LetItReadSlowly();
  const absl::Time start = absl::Now();
  EXPECT_EQ(device_->ReadBar(0, 0), kAllOnes);
  EXPECT_LT(absl::Now() - start, kSoon);
}

TEST_F(VfioUserSlowTest, AnAnswerThatFindsNoRoomArrivesAllTheSame) {
  Serve();
  OpenWithMemory({});
  memory_.data[kVfioUserMaxTransfer - 1] = std::byte{0x5a};
  VfioUserPayload ask;
  AppendTo(ask, VfioUserDmaAccess{.address = kIova, .count = kVfioUserMaxTransfer});
  for (int i = 0; i < 3; ++i) {
    const VfioUserMessage answer = server_->Ask(VfioUserCommand::kDmaRead, ask);
    ASSERT_EQ(answer.payload.size(), ask.size() + kVfioUserMaxTransfer);
    EXPECT_EQ(answer.payload.back(), std::byte{0x5a});
  }
}

// And of its answers no more than one waits here.
TEST_F(VfioUserSlowTest, WhoTakesAnAnswerSlowlyIsGone) {
  testing::RecordingLog log;
  Serve(ReadsSlowlyAt(VfioUserCommand::kRegionRead));
  OpenWithMemory({.timeout = kShort, .log = Logger(&log)});
  LetItReadSlowly();
  EXPECT_GT(not_read_, 0);
  EXPECT_TRUE(IsGone(kSoon));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("has not taken what it is sent for 1s")));
}

TEST_F(VfioUserSlowTest, TheLimitOfComingBackHoldsForWhoReadsSlowly) {
  Serve();
  OpenWithMemory({.timeout = kWaitLimit, .limit = kShort});
  server_.reset();
  ASSERT_TRUE(IsGone(kWaitLimit));
  is_slow_ = true;
  Serve(ReadsSlowlyAt(VfioUserCommand::kVersion));
  const absl::Time start = absl::Now();
  const absl::Status status = device_->Reset();
  EXPECT_LT(absl::Now() - start, kSoon);
  EXPECT_THAT(std::string(Message(status)), HasSubstr("its answers take too long in all"));
}

TEST_F(VfioUserSlowTest, AHurryReachesWhoWaitsForOneThatReadsSlowly) {
  Serve(ReadsSlowlyAt(VfioUserCommand::kRegionRead));
  OpenWithMemory({.timeout = kWaitLimit});
  LetItReadSlowly();
  const absl::Time start = absl::Now();
  device_->Hurry(MonotonicNs() + 50'000'000);
  EXPECT_EQ(device_->ReadBar(0, 0), kAllOnes);
  EXPECT_LT(absl::Now() - start, kSoon);
  EXPECT_TRUE(IsGone(kWaitLimit));
}

// Its thread had nothing to look after when it heard of the end.
TEST_F(VfioUserSlowTest, AHurryHoldsForWhatIsAskedAfterIt) {
  std::atomic<bool> is_deaf = false;
  Serve([&](const VfioUserMessage&, ScriptedReply& reply) { reply.is_silent = is_deaf; });
  ASSERT_TRUE(Open(kWaitLimit).ok());
  is_deaf = true;
  const absl::Time start = absl::Now();
  device_->Hurry(MonotonicNs() + 100'000'000);
  EXPECT_FALSE(IsGone(absl::Milliseconds(30)));
  EXPECT_EQ(device_->ReadBar(0, 0), kAllOnes);
  EXPECT_LT(absl::Now() - start, kSoon);
}

// One end for them all, however soon each comes.
TEST_F(VfioUserSlowTest, AHurryBoundsAllAnswersTogether) {
  Serve([](const VfioUserMessage& message, ScriptedReply&) {
    if (Is(message, VfioUserCommand::kRegionRead)) absl::SleepFor(absl::Milliseconds(20));
  });
  ASSERT_TRUE(Open().ok());
  const int before = server_->CountOf(VfioUserCommand::kRegionRead);
  device_->Hurry(MonotonicNs() + 100'000'000);
  device_->Hurry(MonotonicNs() + 10'000'000'000);  // the earliest counts
  constexpr int kReads = 40;
  for (int i = 0; i < kReads; ++i) device_->ReadBar(0, 0);
  EXPECT_EQ(device_->ReadBar(0, 0), kAllOnes);
  EXPECT_TRUE(IsGone(kWaitLimit));
  EXPECT_LT(server_->CountOf(VfioUserCommand::kRegionRead) - before, kReads / 2);
}

// A device that is idle then goes as ever; what is asked of it later is not even sent.
TEST_F(VfioUserSlowTest, WhatComesAfterTheEndFailsAtOnce) {
  testing::RecordingLog log;
  Serve();
  OpenWithMemory({.timeout = kWaitLimit, .log = Logger(&log)});
  device_->Hurry(MonotonicNs());
  EXPECT_FALSE(IsGone(absl::Milliseconds(50)));
  const auto asked = [this] { return server_->CountOf(VfioUserCommand::kRegionRead); };
  const int before = asked();
  EXPECT_EQ(device_->ReadBar(0, 0), kAllOnes);
  EXPECT_TRUE(IsGone(kWaitLimit));
  EXPECT_TRUE(absl::IsUnavailable(device_->Reset()));
  device_.reset();
  EXPECT_EQ(asked(), before);
  EXPECT_THAT(log.lines(), ElementsAre());
}

// What the thread does for a connection whose end comes while a command is served.
class EndsWhileItServes : public VfioUserConnection::Handler {
 public:
  absl::StatusOr<VfioUserPayload> Serve(const VfioUserMessage&) override {
    ++served;
    connection->EndBy(MonotonicNs());
    return VfioUserPayload();
  }
  int64_t Woken(VfioUserConnection&) override { return VfioUserConnection::kNever; }
  void Gone(VfioUserConnection&, const absl::Status& status) override {
    why = status;
    gone.Notify();
  }

  VfioUserConnection* connection = nullptr;
  int served = 0;
  absl::Status why;
  BoundedEvent gone;
};

TEST_F(VfioUserSlowTest, NothingIsServedBeyondTheEnd) {
  Serve([](const VfioUserMessage&, ScriptedReply& reply) {
    const VfioUserHeader command = {.command = static_cast<uint16_t>(VfioUserCommand::kDmaWrite),
                                    .size = sizeof command,
                                    .flags = kVfioUserNoReply};
    for (int i = 0; i < 10; ++i) {
      reply.raw.append(reinterpret_cast<const char*>(&command), sizeof command);
    }
  });
  const EventFd wake = *EventFd::Create();
  EndsWhileItServes handler;
  auto connection = VfioUserConnection::Connect(path_, kWaitLimit, handler, wake);
  ASSERT_TRUE(connection.ok()) << connection.status();
  handler.connection = connection->get();
  EXPECT_TRUE(absl::IsUnavailable(
      (*connection)->Call(VfioUserCommand::kVersion, VfioUserPayload()).status()));
  ASSERT_TRUE(handler.gone.Wait());
  EXPECT_EQ(handler.served, 1);
  EXPECT_THAT(std::string(Message(handler.why)), HasSubstr("too long in all"));
}

}  // namespace
}  // namespace ringside
