// Frames on a stream socket, as passt has them: in pieces, one behind the other, more than the
// socket takes, and what is none.
#include "net/stream_network.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "net/frame_file.h"
#include "tests/support/directories.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using Bytes = std::vector<uint8_t>;
using ::testing::HasSubstr;
using testing::WaitForFd;
using enum FrameChannel::Sent;

class StreamNetworkTest : public ::testing::Test {
 protected:
  StreamNetworkTest() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) abort();
    peer_ = UniqueFd(ends[0]);
    const UniqueFd own(ends[1]);
    network_ = *StreamNetwork::ByDescriptor(own.get());
  }

  FrameChannel& channel() { return network_->channel(0); }
  static Bytes OnWire(const Bytes& frame) {
    const size_t size = frame.size();
    Bytes wire = {0, static_cast<uint8_t>(size >> 16), static_cast<uint8_t>(size >> 8),
                  static_cast<uint8_t>(size)};
    wire.insert(wire.end(), frame.begin(), frame.end());
    return wire;
  }
  void Put(const Bytes& bytes) {
    ASSERT_EQ(write(peer_.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  // Into two pieces, the first of which the header does not fill.
  ssize_t Receive(Bytes& frame) {
    frame.assign(kMaxFrame, 0xee);
    const std::array<iovec, 2> room = {{{frame.data(), 20}, {&frame[20], frame.size() - 20}}};
    const ssize_t size = channel().Receive(room);
    frame.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return size;
  }
  FrameChannel::Sent Send(Bytes frame) {
    frame.insert(frame.begin(), kNetHeaderSize, 0x77);
    const std::array<iovec, 3> parts = {
        {{frame.data(), 5}, {&frame[5], 20}, {&frame[25], frame.size() - 25}}};
    return channel().Send(parts);
  }
  static Bytes Expected(const Bytes& frame) {
    Bytes all(kNetHeaderSize, 0);
    all.insert(all.end(), frame.begin(), frame.end());
    return all;
  }

  UniqueFd peer_;
  std::unique_ptr<StreamNetwork> network_;
};

TEST_F(StreamNetworkTest, FramesComeWholeHoweverTheyAreCut) {
  Bytes wire;
  for (const size_t size : {60, 14, 1514, 65553}) {
    const Bytes frame = OnWire(Bytes(size, static_cast<uint8_t>(size)));
    wire.insert(wire.end(), frame.begin(), frame.end());
  }
  Bytes got;
  std::vector<size_t> sizes;
  size_t put = 0;
  for (const size_t piece : {1, 3, 5, 62, 10, 1000, 700, 30000, 40000}) {
    const size_t some = std::min(piece, wire.size() - put);
    Put(Bytes(wire.begin() + static_cast<ptrdiff_t>(put),
              wire.begin() + static_cast<ptrdiff_t>(put + some)));
    put += some;
    while (const ssize_t size = Receive(got)) {
      ASSERT_GT(size, 0);
      sizes.push_back(got.size() - kNetHeaderSize);
      EXPECT_EQ(got, Expected(Bytes(sizes.back(), static_cast<uint8_t>(sizes.back()))));
    }
  }
  EXPECT_EQ(sizes, (std::vector<size_t>{60, 14, 1514, 65553}));
}

TEST_F(StreamNetworkTest, AFrameInMorePiecesThanOneCallTakesIsDropped) {
  // The length has one, and of the first there is more than the head of a frame.
  for (const size_t pieces : {kMaxFrameParts - 2, kMaxFrameParts - 1}) {
    Bytes frame(70 + (pieces - 1) * 60, 5);
    std::vector<iovec> parts;
    for (size_t i = 0; i < pieces; ++i) {
      parts.push_back({&frame[i == 0 ? 0 : 10 + 60 * i], i == 0 ? size_t{70} : size_t{60}});
    }
    EXPECT_EQ(channel().Send(parts), pieces < kMaxFrameParts - 1 ? kYes : kDropped);
  }
  EXPECT_EQ(Send(Bytes(100, 9)), kYes);
}

TEST_F(StreamNetworkTest, AFrameGoesOutWithItsLength) {
  const Bytes frame(100, 9);
  EXPECT_EQ(Send(frame), kYes);
  Bytes got(200);
  got.resize(static_cast<size_t>(read(peer_.get(), got.data(), got.size())));
  EXPECT_EQ(got, OnWire(frame));
}

// passt connects a socket of the host's to whatever address a guest's packet has.
TEST_F(StreamNetworkTest, WhatIsForLoopbackDoesNotGoOut) {
  const auto packet = [](uint16_t type, const char* to) {
    Bytes frame(100, 9);
    frame[12] = static_cast<uint8_t>(type >> 8);
    frame[13] = static_cast<uint8_t>(type);
    inet_pton(type == 0x800 ? AF_INET : AF_INET6, to, &frame[14 + (type == 0x800 ? 16 : 24)]);
    return frame;
  };
  for (const char* to : {"127.0.0.1", "127.255.255.254", "0.0.0.0"}) {
    EXPECT_EQ(Send(packet(0x800, to)), kDropped) << to;
  }
  for (const char* to : {"::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0", "::127.0.0.1"}) {
    EXPECT_EQ(Send(packet(0x86dd, to)), kDropped) << to;
  }
  EXPECT_EQ(recv(peer_.get(), Bytes(200).data(), 200, MSG_DONTWAIT), -1);
  for (const char* to : {"10.0.0.1", "126.0.0.1", "128.0.0.1", "255.255.255.255"}) {
    EXPECT_EQ(Send(packet(0x800, to)), kYes) << to;
  }
  for (const char* to : {"2001:db8::1", "fe80::1", "ff02::1", "0:0:0:0:1::1"}) {
    EXPECT_EQ(Send(packet(0x86dd, to)), kYes) << to;
  }
  EXPECT_EQ(Send(packet(0x806, "::1")), kYes) << "neither";
}

TEST_F(StreamNetworkTest, WhatTheSocketDoesNotTakeFollows) {
  Bytes expected;
  uint8_t number = 0;
  FrameChannel::Sent sent = kYes;
  while (sent == kYes) {
    const Bytes frame(50000, ++number);
    sent = Send(frame);
    if (sent != kYes) break;
    const Bytes wire = OnWire(frame);
    expected.insert(expected.end(), wire.begin(), wire.end());
  }
  EXPECT_EQ(sent, kFull);
  Bytes got;
  while (got.size() < expected.size()) {
    Bytes some(100000);
    ASSERT_TRUE(WaitForFd(peer_.get(), POLLIN));
    some.resize(static_cast<size_t>(read(peer_.get(), some.data(), some.size())));
    got.insert(got.end(), some.begin(), some.end());
    if (channel().HasUnsent()) (void)channel().Flush();
  }
  EXPECT_EQ(got, expected);
  EXPECT_FALSE(channel().HasUnsent());
  EXPECT_EQ(Send(Bytes(60)), kYes);
}

TEST_F(StreamNetworkTest, ALengthThatNoFrameHasEndsIt) {
  for (const Bytes& wrong :
       {Bytes{0, 0, 0, 0}, Bytes{0, 0, 0, 13}, Bytes{0, 1, 0, 18}, Bytes{0xff, 0xff, 0xff, 0xff}}) {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peer_ = UniqueFd(ends[0]);
    const UniqueFd own(ends[1]);
    network_ = *StreamNetwork::ByDescriptor(own.get());
    Put(wrong);
    Bytes got;
    EXPECT_EQ(Receive(got), FrameChannel::kGone);
  }
}

TEST_F(StreamNetworkTest, APeerThatGoesIsSeenWithoutASignal) {
  Put(OnWire(Bytes(60)));
  peer_ = UniqueFd();
  Bytes got;
  EXPECT_GT(Receive(got), 0) << "what it has said before";
  EXPECT_EQ(Receive(got), FrameChannel::kGone);
  EXPECT_EQ(Send(Bytes(60)), kGone);
}

TEST_F(StreamNetworkTest, WhoListensAndTakesNobodyIsNotWaitedForWithoutEnd) {
  sockaddr_un address = {.sun_family = AF_UNIX};
  const testing::TempDirectory directory;
  const std::string path = directory / "socket";
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  const UniqueFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  std::vector<std::unique_ptr<StreamNetwork>> connected;
  absl::Status status;
  while (status.ok() && connected.size() < 10) {
    auto network = StreamNetwork::Connect(path);
    status = network.status();
    if (network.ok()) connected.push_back(*std::move(network));
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("takes no connection"));
}

// An error of one frame does not hide those behind it, which nobody tells of again.
TEST(FrameFileTest, AnErrorIsThatOfOneFrame) {
  const auto socket_on = [](sockaddr_in& address) {
    UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(fd.get(), any, size) != 0 || getsockname(fd.get(), any, &size) != 0) abort();
    return fd;
  };
  const auto connect_to = [](const UniqueFd& fd, const sockaddr_in& address) {
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  };
  sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}}, there = here;
  UniqueFd own = socket_on(here);
  socket_on(there);  // and closed at once: what is sent there comes back as an error
  ASSERT_TRUE(connect_to(own, there));
  ASSERT_EQ(write(own.get(), "x", 1), 1);
  const UniqueFd peer = socket_on(there);
  ASSERT_TRUE(connect_to(peer, here));
  ASSERT_EQ(write(peer.get(), "frame", 5), 5);
  UniqueFd sender(dup(own.get()));
  FrameFile file(std::move(own), std::move(sender));
  std::array<char, 100> bytes;
  const iovec room = {bytes.data(), bytes.size()};
  EXPECT_EQ(file.Receive(std::span(&room, 1)), 5);
  EXPECT_EQ(file.Receive(std::span(&room, 1)), FrameChannel::kNothing);
}

TEST_F(StreamNetworkTest, WhatIsNoSuchSocketIsRefused) {
  EXPECT_THAT(StreamNetwork::ByDescriptor(9999).status(), IsBadInput("9999", "no stream socket"));
  EXPECT_THAT(StreamNetwork::ByDescriptor(STDERR_FILENO).status(),
              IsBadInput("descriptor 2", "no stream socket"));
  EXPECT_THAT(StreamNetwork::Connect("").status(), IsBadInput("''", "socket"));
  EXPECT_THAT(StreamNetwork::Connect(std::string(200, 'x')).status(), IsBadInput("x", "too long"));
  EXPECT_EQ(StreamNetwork::Connect("/nowhere/passt.sock").status().code(),
            absl::StatusCode::kNotFound);
  const testing::TempDirectory directory;
  const absl::Status nobody = StreamNetwork::Connect(directory / "passt.sock").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(nobody)) << nobody;
}

}  // namespace
}  // namespace ringside
