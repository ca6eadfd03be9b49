// What a virtio-vsock device bears of guests and of programs of the host that break its rules, do
// not read, or are too many.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include "tests/support/devices/virtio_vsock_fixture.h"
#include "tests/support/temp_file.h"

namespace ringside::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_P(VirtioVsockTest, UnknownConnectionsAreReset) {
  Start();
  const Stream stream = {.guest_port = 1, .host_port = 2};
  for (const VsockOp op : {VsockOp::kData, VsockOp::kResponse, VsockOp::kShutdown,
                           VsockOp::kCreditUpdate, VsockOp::kCreditRequest, VsockOp{77}}) {
    Send(stream, op);
    const VsockHeader reset = NextOp(VsockOp::kReset);
    EXPECT_EQ(reset.src_port, 2U);
    EXPECT_EQ(reset.dst_port, 1U);
  }
  // Not a RST, nor what is from somebody else.
  Send(stream, VsockOp::kReset);
  VsockHeader header = HeaderOf(stream, VsockOp::kData);
  header.src_cid = 4;
  SendRaw(header);
  ASSERT_TRUE(WaitForTaken());
  EXPECT_FALSE(HasPacket());
  EXPECT_EQ(device_->stats(1).errors.Get(), 1U);
  // Other guests and other types are not there.
  header = HeaderOf(stream, VsockOp::kRequest);
  header.dst_cid = 17;
  SendRaw(header);
  EXPECT_EQ(NextOp(VsockOp::kReset).src_cid, 17U);
  header = HeaderOf(stream, VsockOp::kRequest);
  header.type = 2;
  SendRaw(header);
  EXPECT_EQ(NextOp(VsockOp::kReset).type, 2);
}

TEST_P(VirtioVsockTest, PacketsThatBreakTheRulesEndTheirConnectionAlone) {
  Start();
  Stream other;
  const HostSocket unharmed = Join(other, 1);
  const auto expect_reset = [&](const char* what, auto send) {
    SCOPED_TRACE(what);
    Stream stream;
    const HostSocket host = Join(stream, 2);
    send(stream);
    EXPECT_EQ(NextOp(VsockOp::kReset).src_port, stream.host_port);
    EXPECT_TRUE(host.AtEnd());
  };
  expect_reset("length", [&](Stream& s) { SendRaw(HeaderOf(s, VsockOp::kData, 100), "short"); });
  expect_reset("huge", [&](Stream& s) { SendRaw(HeaderOf(s, VsockOp::kData, ~0U), "short"); });
  expect_reset("request", [&](Stream& s) { Send(s, VsockOp::kRequest); });
  expect_reset("response", [&](Stream& s) { Send(s, VsockOp::kResponse); });
  expect_reset("op", [&](Stream& s) { Send(s, VsockOp{0}); });
  SendData(other, "");
  SendData(other, "fine");
  EXPECT_EQ(unharmed.Read(4), "fine");
  EXPECT_THAT(events_.reasons(), IsEmpty());
}

TEST_P(VirtioVsockTest, ChainsThatAreNoPacketsBreakTheQueue) {
  const auto expect_broken = [&](const char* why, auto give) {
    Start(0);
    const size_t before = events_.reasons().size();
    give();
    ASSERT_TRUE(SpinUntil([&] { return events_.reasons().size() > before; })) << why;
    EXPECT_THAT(events_.reasons().back(), HasSubstr(why));
    Reset();
  };
  expect_broken("shorter than its header", [&] {
    tx().driver.NewChain().AppendReadable(tx().buffers, kVsockHeaderSize - 1).Add();
    Publish(tx());
  });
  expect_broken("to be written", [&] {
    tx().driver.NewChain().AppendReadable(tx().buffers, 44).AppendWritable(tx().buffers, 1).Add();
    Publish(tx());
  });
  expect_broken("no room for a packet", [&] {
    GiveBuffers(1, kVsockHeaderSize);
    Send({}, VsockOp::kData);
  });
  expect_broken("is to be read", [&] {
    rx().driver.NewChain().AppendReadable(rx().buffers, 100).Add();
    Publish(rx());
    Send({}, VsockOp::kData);
  });
}

TEST_P(VirtioVsockTest, HeadersInPiecesAndScatteredBuffers) {
  Start(0);
  // A header in three pieces, and data behind the second.
  auto chain = rx().driver.NewChain();
  const uint64_t at = rx().buffers;
  chain.AppendWritable(at, 10).AppendWritable(at + 10, 30).AppendWritable(at + 40, 9);
  rx().address_of[chain.AppendWritable(at + 49, 100).Add()] = at;
  Publish(rx());
  const HostSocket listener = HostSocket::ListenAt(PathOf(9));
  const Stream stream = {.guest_port = 1, .host_port = 9};
  SendRaw(HeaderOf(stream, VsockOp::kRequest), "", 11);
  EXPECT_EQ(NextPacket(100)->header.op, VsockOp::kResponse);
  const HostSocket host = listener.Accept();
  SendData(stream, "in very many pieces", 50);
  EXPECT_EQ(host.Read(19), "in very many pieces");
  ASSERT_TRUE(host.Write(std::string(200, 'x')));
  // As far as each buffer goes.
  EXPECT_EQ(NextPacket(100)->payload.size(), 56U);
  EXPECT_EQ(NextPacket(100)->payload.size(), 56U);
}

TEST_P(VirtioVsockTest, AHostThatDoesNotReadHoldsUpItselfAlone) {
  Start();
  Stream slow, quick;
  const HostSocket slow_host = Join(slow, 1), quick_host = Join(quick, 2);
  const std::string data = Pattern(60000, 3);
  // More than its socket holds, and up to the credit.
  uint64_t sent = 0, told = 0;
  for (int i = 0; i < 400 && sent - told + data.size() <= VsockConnection::kRoom; ++i) {
    SendData(slow, data);
    sent += data.size();
    ASSERT_TRUE(WaitForTaken());
    while (HasPacket()) told = NextPacket()->header.fwd_cnt;
  }
  EXPECT_GT(sent, VsockConnection::kRoom);
  SendData(quick, "quick");
  EXPECT_EQ(quick_host.Read(5), "quick");
  for (uint64_t got = 0; got < sent; got += data.size()) {
    ASSERT_EQ(slow_host.Read(data.size()), data) << got;
  }
  // And there is room again.
  while (told < sent - VsockConnection::kRoom / 2) {
    const std::optional<VsockPacket> packet = NextPacket();
    ASSERT_TRUE(packet.has_value());
    told = packet->header.fwd_cnt;
  }
}

TEST_P(VirtioVsockTest, DataBeyondTheCreditResets) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  const std::string data(64000, 'x');
  while (!HasPacket() || NextPacket()->header.op != VsockOp::kReset) SendData(stream, data);
}

TEST_P(VirtioVsockTest, AGuestThatDoesNotReadHoldsUpItselfAlone) {
  Start();
  Stream slow = {.buf_alloc = 8192}, quick;
  const HostSocket slow_host = Join(slow, 1), quick_host = Join(quick, 2);
  const std::string data = Pattern(100000, 5);
  ASSERT_TRUE(slow_host.Write(data));
  EXPECT_EQ(NextData(8192), data.substr(0, 8192));
  EXPECT_EQ(NextPacket()->header.op, VsockOp::kCreditRequest);
  EXPECT_EQ(counts().credit_waits.Get(), 1U);
  ASSERT_TRUE(quick_host.Write("quick"));
  EXPECT_EQ(NextData(5), "quick");
  // It is asked again, and answers in the end.
  EXPECT_EQ(NextPacket()->header.op, VsockOp::kCreditRequest);
  std::string got = data.substr(0, 8192);
  while (got.size() < data.size()) {
    slow.fwd_cnt = static_cast<uint32_t>(got.size());
    Send(slow, VsockOp::kCreditUpdate);
    got += NextData(std::min<size_t>(8192, data.size() - got.size()));
  }
  EXPECT_EQ(got, data);
}

// Linux guests reset a connection of which too many packets wait.
TEST_P(VirtioVsockTest, SmallPiecesBecomeLargePackets) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  std::string expected, got;
  uint32_t packets = 0;
  // More than may be under way, and the rest so few that the socket takes them.
  for (int i = 0; i < 300; ++i) {
    const std::string piece(1, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(host.Write(piece));
    expected += piece;
    while (HasPacket()) {
      const std::optional<VsockPacket> packet = NextPacket();
      got += packet->payload;
      packets += packet->header.op == VsockOp::kData;
      // It reads nothing, so it has nothing to tell.
      if (packet->header.op == VsockOp::kCreditRequest) Send(stream, VsockOp::kCreditUpdate);
    }
  }
  EXPECT_LE(packets, VsockSendCredit::kMaxPackets);
  // It has read all of that.
  stream.fwd_cnt = static_cast<uint32_t>(got.size());
  Send(stream, VsockOp::kCreditUpdate);
  got += NextData(expected.size() - got.size(), &packets);
  EXPECT_EQ(got, expected);
}

TEST_P(VirtioVsockTest, WithoutBuffersSocketsAreLeftAlone) {
  Start(0);
  GiveBuffers(1);
  Stream stream;
  const HostSocket host = HostSocket::ConnectTo(path());
  ASSERT_TRUE(host.Write("CONNECT 80\n"));
  stream = {.guest_port = 80, .host_port = NextPacket(0)->header.src_port};
  Send(stream, VsockOp::kResponse);
  (void)host.ReadLine();
  ASSERT_TRUE(host.Write("1"));
  ASSERT_TRUE(host.Write("2"));
  SleepObserver observer(*threads_[0]);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  const uint64_t wake_ups = threads_[0]->stats().wake_ups.Get();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(host.Write("x"));
  EXPECT_LE(threads_[0]->stats().wake_ups.Get(), wake_ups + 2);
  // The other direction goes on.
  SendData(stream, "out");
  EXPECT_EQ(host.Read(3), "out");
  // And a kick is wanted now.
  const uint64_t kicks = rx().kicks;
  GiveBuffers(1);
  EXPECT_EQ(rx().kicks, kicks + 1);
  const std::string got = NextPacket(0)->payload;
  EXPECT_EQ(got.substr(0, 3), "12x");
}

// Data of one stream that one turn takes goes together; it must not overtake, or be overtaken by,
// anything else.
TEST_P(VirtioVsockTest, PacketsOfOneTurnStayInOrder) {
  Start();
  Stream one, two, bad;
  const HostSocket first = Join(one, 1), second = Join(two, 2), third = Join(bad, 3);
  const auto add = [&](const Stream& stream, std::string_view data, size_t pieces = 1) {
    Add(HeaderOf(stream, VsockOp::kData, static_cast<uint32_t>(data.size())), data, pieces);
  };
  // More pieces than go together, an end, and what is wrong behind what is right.
  add(one, "a");
  add(one, "bc", 2);
  add(two, "A");
  add(one, std::string(60, 'd'), 40);
  add(one, "");
  add(one, "e");
  Add(HeaderOf(one, VsockOp::kShutdown, 0, kVsockNoSend));
  add(two, "B");
  add(bad, "right");
  Add(HeaderOf(bad, VsockOp::kData, 5), "no");
  add(two, "C");
  RunOn(*threads_[0], [&] { Publish(tx()); });
  EXPECT_EQ(first.Read(100), "abc" + std::string(60, 'd') + "e");  // and its end
  EXPECT_EQ(second.Read(3), "ABC");
  EXPECT_EQ(NextOp(VsockOp::kReset).src_port, bad.host_port);
  EXPECT_EQ(third.Read(100), "right");
}

TEST_P(VirtioVsockTest, RefusalsThatTheGuestDoesNotTakeStopItsPackets) {
  Start(0);
  const Stream unknown = {.guest_port = 1, .host_port = 2};
  const auto taken = [&] { return device_->stats(VirtioVsock::kTransmit).writes.Get(); };
  // The last of them stay in the ring.
  for (size_t i = 0; i < VsockHub::kMaxResets + kRingSize; ++i) Send(unknown, VsockOp::kData);
  EXPECT_TRUE(SpinUntil([&] { return taken() == VsockHub::kMaxResets; }));
  SleepObserver observer(*threads_[0]);
  ASSERT_TRUE(observer.WaitUntilItSleeps());
  EXPECT_EQ(taken(), VsockHub::kMaxResets);
  // As the guest takes them its packets go on.
  GiveBuffers(kRingSize);
  for (size_t i = 0; i < VsockHub::kMaxResets; ++i) {
    ASSERT_EQ(NextOp(VsockOp::kReset).src_port, 2U) << i;
  }
  EXPECT_TRUE(WaitForTaken());
  EXPECT_GT(taken(), VsockHub::kMaxResets);
}

// They wait in the socket's queue, and the thread sleeps.
TEST_P(VirtioVsockTest, WithoutDescriptorsProgramsWait) {
  Start();
  const HostSocket host = HostSocket::Unconnected();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  const uint64_t turns = threads_[0]->stats().turns.Get();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_TRUE(host.Connect(path()));
  EXPECT_EQ(send(host.fd(), "CONNECT 4\n", 10, 0), 10);  // poll(2) needs a limit above 0
  absl::SleepFor(absl::Seconds(1));
  EXPECT_FALSE(HasPacket());
  // A look each 0.2 s.
  EXPECT_LE(threads_[0]->stats().turns.Get(), turns + 20);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(NextOp(VsockOp::kRequest).dst_port, 4U);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("raise 'ulimit -n'")));
}

TEST_P(VirtioVsockTest, ATurnIsBounded) {
  Start();
  Stream stream;
  const HostSocket host = Join(stream);
  for (int i = 0; i < 63; ++i) Add(HeaderOf(stream, VsockOp::kData, 1), "x");
  RunOn(*threads_[0], [&] { Publish(tx()); });
  ASSERT_EQ(host.Read(63).size(), 63U);
  EXPECT_GE(device_->stats(1).batches.Get(), 63U / 16);
}

// A guest that accepts and gives no buffers makes many sockets wait to be looked at.
TEST_P(VirtioVsockTest, LooksAtSocketsThatHaveNothingAreBounded) {
  constexpr uint32_t kHosts = 4 * VsockHub::kLooksPerPacket;
  static_assert(kHosts <= kRingSize);
  Make(kHosts, {.kind = PollKind::kNever});
  Start(0);
  GiveBuffers(kHosts);
  std::vector<HostSocket> hosts;
  std::vector<Stream> streams;
  for (uint32_t i = 0; i < kHosts; ++i) {
    hosts.push_back(HostSocket::ConnectTo(path()));
    ASSERT_TRUE(hosts.back().Write("CONNECT 80\n"));
    streams.push_back({.guest_port = 80, .host_port = NextPacket(0)->header.src_port});
  }
  for (uint32_t i = 0; i < kHosts; ++i) {
    Send(streams[i], VsockOp::kResponse);
    (void)hosts[i].ReadLine();
  }
  ASSERT_TRUE(hosts.back().Write("last"));
  ASSERT_TRUE(SleepObserver(*threads_[0]).WaitUntilItSleeps());
  const uint64_t turns = threads_[0]->stats().turns.Get();
  GiveBuffers(1);
  EXPECT_EQ(NextPacket(0)->payload, "last");
  EXPECT_GE(threads_[0]->stats().turns.Get(), turns + kHosts / VsockHub::kLooksPerPacket);
}

// All of them had the same time, which ends for all at once after the thread was held.
TEST_P(VirtioVsockTest, ClientsWhoseTimeIsOverTogetherGoOverSeveralTurns) {
  constexpr uint32_t kHosts = 3 * VsockHub::kExpiredPerTurn;
  Make(kHosts, {.kind = PollKind::kNever});
  Start();
  std::vector<HostSocket> hosts;
  for (uint32_t i = 0; i < kHosts; ++i) hosts.push_back(HostSocket::ConnectTo(path()));
  ASSERT_TRUE(SpinUntil([&] { return counts().open.Get() == kHosts; }));
  uint64_t turns = 0;
  RunOn(*threads_[0], [&] {
    absl::SleepFor(absl::Nanoseconds(VsockHub::kGreetingNs));
    turns = threads_[0]->stats().turns.Get();
  });
  EXPECT_TRUE(SpinUntil([&] { return counts().open.Get() == 0; }));
  EXPECT_GE(threads_[0]->stats().turns.Get(), turns + kHosts / VsockHub::kExpiredPerTurn - 1);
}

TEST_P(VirtioVsockTest, ThereAreNoMoreThanItMayHave) {
  Make(2);
  Start();
  Stream one, two;
  HostSocket first = Join(one);
  const HostSocket second = Join(two);
  const HostSocket third = HostSocket::ConnectTo(path());
  EXPECT_TRUE(third.AtEnd());
  const HostSocket listener = HostSocket::ListenAt(PathOf(9));
  Send({.guest_port = 8, .host_port = 9}, VsockOp::kRequest);
  EXPECT_EQ(NextOp(VsockOp::kReset).src_port, 9U);
  EXPECT_EQ(counts().refused.Get(), 2U);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("max-connections")));
  Send(one, VsockOp::kReset);
  ASSERT_TRUE(first.AtEnd());
  Stream again;
  const HostSocket fourth = Join(again);
}

}  // namespace
}  // namespace ringside::testing
