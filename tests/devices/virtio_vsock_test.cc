// A virtio-vsock device between a driver and programs of the host at Unix sockets.
#include "devices/virtio_vsock.h"

#include <csignal>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/devices/virtio_vsock_fixture.h"
#include "tests/support/net/passed_descriptors.h"
#include "tests/support/temp_file.h"

namespace ringside::testing {
namespace {

using ::testing::ElementsAre;

RINGSIDE_WITH_BOTH_WAITERS(VirtioVsockTest);

TEST_P(VirtioVsockTest, TellsWhatItIs) {
  Make();
  EXPECT_EQ(device_->id(), 19);
  EXPECT_EQ(device_->features(),
            VirtioVsock::kStreamFeature | kVirtioRingIndirectDesc | kVirtioRingEventIdx);
  std::array<uint8_t, 12> config = {};
  device_->ReadConfig(0, std::as_writable_bytes(std::span(config)));
  EXPECT_THAT(config, ElementsAre(kCid, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  device_->ReadConfig(~uint64_t{0} - 3, std::as_writable_bytes(std::span(config)));
  EXPECT_EQ(config[0], 0);
}

TEST_P(VirtioVsockTest, AProgramOfTheHostConnects) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  EXPECT_GE(stream.host_port, VsockHub::kFirstOwnPort);
  EXPECT_EQ(counts().open.Get(), 1U);
  EXPECT_EQ(counts().made.Get(), 1U);
  ASSERT_TRUE(host.Write("to the guest"));
  EXPECT_EQ(NextData(12), "to the guest");
  SendData(stream, "to the host", 7);
  EXPECT_EQ(host.Read(11), "to the host");
  Stream second;
  const HostSocket other = Join(second);
  EXPECT_EQ(second.host_port, stream.host_port + 1);
}

TEST_P(VirtioVsockTest, WhatFollowsTheLineIsTheGuests) {
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 80\nGET /\n"));
  const Stream stream = {.guest_port = 80, .host_port = NextOp(VsockOp::kRequest).src_port};
  Send(stream, VsockOp::kResponse);
  EXPECT_EQ(NextData(6), "GET /\n");
}

// A kernel that cannot refuse them ends a read behind bytes that came with descriptors, and no
// event tells of the rest.
TEST_P(VirtioVsockTest, DescriptorsThatAreSentAlongHoldNothingUp) {
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 80\n"));
  const Stream stream = {.guest_port = 80, .host_port = NextOp(VsockOp::kRequest).src_port};
  HaveAllTakeDescriptors();
  ASSERT_TRUE(host.SendWithDescriptor("a", host.fd()));
  ASSERT_TRUE(host.Write("b"));
  Send(stream, VsockOp::kResponse);
  EXPECT_EQ(NextData(2), "ab");
}

// The I/O thread would drop them, and wait for as long as their sender has set.
TEST_P(VirtioVsockTest, DescriptorsAreRefused) {
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  if (!KernelRefusesDescriptors(host.fd())) {
    GTEST_SKIP() << "no SO_PASSRIGHTS, which Linux has since 6.16";
  }
  EXPECT_FALSE(host.SendWithDescriptor("a", host.fd())) << "before it is accepted";
  ASSERT_TRUE(host.Write("CONNECT 80\n"));
  NextOp(VsockOp::kRequest);
  EXPECT_FALSE(host.SendWithDescriptor("a", host.fd()));
  const HostSocket listener = HostSocket::ListenAt(PathOf(9));
  Send({.guest_port = 1, .host_port = 9}, VsockOp::kRequest);
  EXPECT_FALSE(listener.Accept().SendWithDescriptor("a", host.fd()));
}

// A child that was forked meanwhile keeps what was closed, and what watched it would name memory
// that is somebody else's by then.
TEST_P(VirtioVsockTest, AChildThatHasItsSocketKeepsNothingWatched) {
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 80\n"));
  const Stream stream = {.guest_port = 80, .host_port = NextOp(VsockOp::kRequest).src_port};
  RunOn(*threads_[0], [] {});  // what it was to watch it watches now
  const size_t watched = DescriptorsInEpolls();
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  Send(stream, VsockOp::kReset);
  EXPECT_TRUE(SpinUntil([&] { return DescriptorsInEpolls() == watched - 1; }));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_P(VirtioVsockTest, TheGuestRefuses) {
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 80\n"));
  const Stream stream = {.guest_port = 80, .host_port = NextOp(VsockOp::kRequest).src_port};
  Send(stream, VsockOp::kReset);
  EXPECT_TRUE(host.AtEnd());
  EXPECT_EQ(counts().refused.Get(), 1U);
}

TEST_P(VirtioVsockTest, AGuestThatDoesNotAnswerIsNotWaitedFor) {
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 80\n"));
  const uint32_t port = NextOp(VsockOp::kRequest).src_port;
  EXPECT_TRUE(host.AtEnd());
  EXPECT_EQ(NextOp(VsockOp::kReset).src_port, port);
}

TEST_P(VirtioVsockTest, WrongAndSlowLinesEnd) {
  Start();
  const HostSocket silent = HostSocket::ConnectTo(path());
  const HostSocket wrong = HostSocket::ConnectTo(path());
  ASSERT_TRUE(wrong.Write("CONNECT to me\n"));
  EXPECT_TRUE(wrong.AtEnd());
  const HostSocket slow = HostSocket::ConnectTo(path());
  ASSERT_TRUE(slow.Write("CONN"));
  ASSERT_TRUE(slow.Write("ECT 7"));
  EXPECT_FALSE(HasPacket());
  ASSERT_TRUE(slow.Write("\n"));
  EXPECT_EQ(NextOp(VsockOp::kRequest).dst_port, 7U);
  EXPECT_TRUE(silent.AtEnd());  // its time is over
}

TEST_P(VirtioVsockTest, TheGuestConnects) {
  Start();
  const HostSocket listener = HostSocket::ListenAt(PathOf(99));
  const Stream stream = {.guest_port = 5000, .host_port = 99};
  Send(stream, VsockOp::kRequest);
  const VsockHeader response = NextOp(VsockOp::kResponse);
  EXPECT_EQ(response.src_port, 99U);
  EXPECT_EQ(response.dst_port, 5000U);
  EXPECT_EQ(response.src_cid, kVsockHostCid);
  const HostSocket host = listener.Accept();
  SendData(stream, "hello");
  EXPECT_EQ(host.Read(5), "hello");
  ASSERT_TRUE(host.Write("hi"));
  EXPECT_EQ(NextData(2), "hi");
}

TEST_P(VirtioVsockTest, WhereNobodyListensTheGuestIsRefused) {
  Start();
  for (const uint32_t port : {0U, 99U, 0xffffffffU}) {
    Send({.guest_port = port, .host_port = port}, VsockOp::kRequest);
    EXPECT_EQ(NextOp(VsockOp::kReset).src_port, port);
  }
  EXPECT_EQ(counts().refused.Get(), 3U);
  const HostSocket full = HostSocket::ListenAt(PathOf(7), 0);
  Send({.guest_port = 1, .host_port = 7}, VsockOp::kRequest);
  EXPECT_EQ(NextOp(VsockOp::kResponse).src_port, 7U);
  Send({.guest_port = 2, .host_port = 7}, VsockOp::kRequest);
  EXPECT_EQ(NextOp(VsockOp::kReset).dst_port, 2U);
}

TEST_P(VirtioVsockTest, TheHostEndsItsHalf) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  ASSERT_TRUE(host.Write("last"));
  shutdown(host.fd(), SHUT_WR);
  EXPECT_EQ(NextData(4), "last");
  EXPECT_EQ(NextOp(VsockOp::kShutdown).flags, kVsockNoSend);
  SendData(stream, "answer");
  EXPECT_EQ(host.Read(6), "answer");
  Send(stream, VsockOp::kShutdown, kVsockNeither);
  EXPECT_EQ(NextOp(VsockOp::kReset).src_port, stream.host_port);
  EXPECT_TRUE(host.AtEnd());
  EXPECT_TRUE(SpinUntil([&] { return counts().open.Get() == 0; }));
}

TEST_P(VirtioVsockTest, TheGuestEndsItsHalf) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  SendData(stream, "last");
  Send(stream, VsockOp::kShutdown, kVsockNoSend);
  EXPECT_EQ(host.Read(10), "last");  // and its end
  ASSERT_TRUE(host.Write("answer"));
  EXPECT_EQ(NextData(6), "answer");
  shutdown(host.fd(), SHUT_WR);
  EXPECT_EQ(NextOp(VsockOp::kShutdown).flags, kVsockNeither);
  Send(stream, VsockOp::kReset);
  EXPECT_TRUE(SpinUntil([&] { return counts().open.Get() == 0; }));
  EXPECT_FALSE(HasPacket());
}

TEST_P(VirtioVsockTest, AGuestThatReceivesNoMoreStopsItsHost) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  Send(stream, VsockOp::kShutdown, kVsockNoReceive);
  EXPECT_EQ(NextOp(VsockOp::kShutdown).flags, kVsockNoSend);
  EXPECT_LT(send(host.fd(), "x", 1, MSG_NOSIGNAL), 0);
  SendData(stream, "out");
  EXPECT_EQ(host.Read(3), "out");
}

TEST_P(VirtioVsockTest, AHostThatIsGoneIsToldOf) {
  Start();
  Stream stream;
  HostSocket host = Join(stream);
  ASSERT_TRUE(host.Write("last"));
  host.Close();
  std::string got;
  uint32_t flags = 0;
  while (flags != kVsockNeither) {
    const std::optional<VsockPacket> packet = NextPacket();
    ASSERT_TRUE(packet.has_value());
    got += packet->payload;
    flags |= packet->header.flags;
  }
  EXPECT_EQ(got, "last");
  // The guest does not answer: the host's patience ends.
  EXPECT_EQ(NextOp(VsockOp::kReset).src_port, stream.host_port);
  EXPECT_EQ(counts().open.Get(), 0U);
}

TEST_P(VirtioVsockTest, WhatTheGuestHasSentArrivesAfterItsEnd) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  const std::string data = Pattern(60000, 1);
  size_t sent = 0;
  // So much that its socket does not hold it.
  for (uint32_t told = 0; sent - told + data.size() <= VsockConnection::kRoom;) {
    SendData(stream, data);
    sent += data.size();
    ASSERT_TRUE(WaitForTaken());
    while (HasPacket()) told = NextPacket()->header.fwd_cnt;
  }
  Send(stream, VsockOp::kShutdown, kVsockNeither);
  EXPECT_EQ(NextOp(VsockOp::kReset).src_port, stream.host_port);
  EXPECT_EQ(counts().open.Get(), 1U);
  const std::string got = host.Read(sent + 1);
  EXPECT_EQ(got.size(), sent);
  EXPECT_EQ(got.substr(sent - data.size()), data);
  EXPECT_TRUE(SpinUntil([&] { return counts().open.Get() == 0; }));
}

TEST_P(VirtioVsockTest, AResetClosesAll) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  Reset();
  EXPECT_TRUE(host.AtEnd());
  EXPECT_EQ(counts().open.Get(), 0U);
  // One that comes meanwhile waits for the next driver.
  const HostSocket early = HostSocket::ConnectTo(path());
  ASSERT_TRUE(early.Write("CONNECT 4\n"));
  Start();
  EXPECT_EQ(NextOp(VsockOp::kRequest).dst_port, 4U);
}

TEST_P(VirtioVsockTest, QueuesMoveTogether) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  for (const uint16_t queue : {0, 1, 2}) {
    const size_t to = 1 - queue % 2;
    Move(queue, to);
    for (uint16_t i = 0; i < VirtioVsock::kQueues; ++i) {
      EXPECT_EQ(&device_->io_thread(i), threads_[to].get());
    }
    ASSERT_TRUE(host.Write("in"));
    EXPECT_EQ(NextData(2), "in");
    SendData(stream, "out");
    EXPECT_EQ(host.Read(3), "out");
  }
}

TEST_P(VirtioVsockTest, APauseHoldsAllUp) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  Pause();
  ASSERT_TRUE(host.Write("in"));
  SendData(stream, "out");
  const HostSocket early = HostSocket::ConnectTo(path());
  ASSERT_TRUE(early.Write("CONNECT 4\n"));
  EXPECT_FALSE(WaitForFd(host.fd(), POLLIN, absl::Milliseconds(20)));
  EXPECT_FALSE(HasPacket());
  device_->Resume();
  EXPECT_EQ(host.Read(3), "out");
  std::string got;
  bool asked = false;
  while (got.size() < 2 || !asked) {
    const std::optional<VsockPacket> packet = NextPacket();
    ASSERT_TRUE(packet.has_value());
    got += packet->payload;
    asked |= packet->header.op == VsockOp::kRequest;
  }
  EXPECT_EQ(got, "in");
}

TEST_P(VirtioVsockTest, ARestoredDriverIsToldOnce) {
  Make();
  Start();
  GiveEventBuffer();
  Stream stream;
  const HostSocket host = Join(stream);
  EXPECT_FALSE(HasEvent());
  Reset();
  device_->RestoreState({});
  Start();
  GiveEventBuffer();
  GiveEventBuffer();
  ASSERT_TRUE(SpinUntil([&] { return HasEvent(); }));
  Queue& queue = *queues_[VirtioVsock::kEvent];
  EXPECT_EQ(queue.driver.TakeUsed()->written, 4U);
  EXPECT_EQ(std::to_integer<int>(*At(queue.buffers + 3, 1)), 0);
  GiveEventBuffer();
  const HostSocket second = Join(stream);
  EXPECT_FALSE(HasEvent());
}

// The guest closes all connections when it handles the event: also those made just before.
TEST_P(VirtioVsockTest, ConnectionsWaitUntilARestoredDriverHasBeenTold) {
  Make();
  device_->RestoreState({});
  Start();
  // At once, as a restored driver has given them: one that comes later says that it was told.
  Pause();
  GiveEventBuffer();
  GiveEventBuffer();
  device_->Resume();
  const HostSocket host = HostSocket::ConnectTo(path());
  const absl::Time begin = absl::Now();
  ASSERT_TRUE(host.Write("CONNECT 4\n"));
  ASSERT_TRUE(SpinUntil([&] { return HasEvent(); }));
  absl::SleepFor(absl::Milliseconds(100));
  const bool has_packet = HasPacket();
  const absl::Duration patience = absl::Nanoseconds(VsockHub::kResetNs);
  EXPECT_TRUE(!has_packet || absl::Now() - begin >= patience);
  const absl::Time told = absl::Now();
  GiveEventBuffer();
  EXPECT_EQ(NextOp(VsockOp::kRequest).dst_port, 4U);
  // Unless this thread was late itself.
  EXPECT_TRUE(absl::Now() - told < patience * 3 / 4 || told - begin > patience / 4);
}

TEST_P(VirtioVsockTest, ARestoredDriverThatTakesNoEventsIsNotWaitedForLong) {
  Make();
  device_->RestoreState({});
  const absl::Time begin = absl::Now();
  Start();
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 4\n"));
  EXPECT_EQ(NextOp(VsockOp::kRequest).dst_port, 4U);
  EXPECT_GE(absl::Now() - begin, absl::Nanoseconds(VsockHub::kResetNs));
  // And it is still told when it does.
  GiveEventBuffer();
  EXPECT_TRUE(SpinUntil([&] { return HasEvent(); }));
}

TEST_P(VirtioVsockTest, TheFileGoesWithIt) {
  Make();
  EXPECT_FALSE(VsockHost::Listen(path()).ok());
  device_.reset();
  host_.reset();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

}  // namespace
}  // namespace ringside::testing
