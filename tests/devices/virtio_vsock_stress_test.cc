// Many programs of the host at once with a guest that echoes, over queues that move and rest: each
// byte comes back, and each stream ends in order. And drivers that go in the middle of that.
#include <map>
#include <random>
#include <thread>

#include "tests/support/devices/virtio_vsock_fixture.h"
#include "tests/support/temp_file.h"

namespace ringside::testing {
namespace {

class VirtioVsockStressTest : public VirtioVsockTest {
 protected:
  static constexpr int kHosts = 12;
  static constexpr uint32_t kRoom = 16 << 10;  // of the guest, for one connection

  // A connection of the guest, which sends back what it gets.
  struct Echo {
    Stream stream;
    std::string waiting;
    uint32_t sent = 0;
    uint32_t device_room = 0, device_forwarded = 0;
    bool host_ended = false, has_ended = false;

    uint32_t credit() const { return device_room - (sent - device_forwarded); }
  };

  // What the guest has to do now.
  void GuestTurn(std::mt19937& random) {
    for (int i = 0; i < 32 && HasPacket(); ++i) {
      const std::optional<VsockPacket> packet = NextPacket();
      ASSERT_TRUE(packet.has_value());
      Hear(*packet);
    }
    for (auto& [port, echo] : echoes_) Answer(echo, random);
    std::erase_if(echoes_, [](const auto& each) { return each.second.stream.host_port == 0; });
  }
  void Hear(const VsockPacket& packet) {
    const VsockHeader& header = packet.header;
    if (header.op == VsockOp::kRequest) {
      Echo& echo = echoes_[header.src_port];
      echo.stream = {
          .guest_port = header.dst_port, .host_port = header.src_port, .buf_alloc = kRoom};
      Send(echo.stream, VsockOp::kResponse);
    }
    const auto found = echoes_.find(header.src_port);
    if (found == echoes_.end()) return;  // of one that has just ended
    Echo& echo = found->second;
    echo.device_room = header.buf_alloc;
    echo.device_forwarded = header.fwd_cnt;
    echo.waiting += packet.payload;
    ASSERT_LE(echo.waiting.size(), kRoom);
    if (header.op == VsockOp::kCreditRequest) Send(echo.stream, VsockOp::kCreditUpdate);
    if ((header.flags & kVsockNoSend) != 0) echo.host_ended = true;
    if (header.flags == kVsockNeither) {
      EXPECT_TRUE(echo.waiting.empty());
      Send(echo.stream, VsockOp::kReset);
      echo.stream.host_port = 0;
    }
  }
  void Answer(Echo& echo, std::mt19937& random) {
    const size_t size = std::min<size_t>({echo.waiting.size(), echo.credit(), random() % 9000});
    if (size > 0) {
      echo.stream.fwd_cnt += static_cast<uint32_t>(size);
      echo.sent += static_cast<uint32_t>(size);
      SendData(echo.stream, echo.waiting.substr(0, size), 1 + random() % 3);
      echo.waiting.erase(0, size);
    }
    if (!echo.waiting.empty() || !echo.host_ended || echo.has_ended) return;
    echo.has_ended = true;
    if (echo.stream.host_port != 0) Send(echo.stream, VsockOp::kShutdown, kVsockNoSend);
  }

  // A program: whether all it wrote came back.
  bool Talk(uint32_t seed, size_t size) {
    std::mt19937 random(seed);
    const HostSocket host = HostSocket::ConnectTo(path());
    if (!host.Write("CONNECT 7\n") || host.ReadLine().substr(0, 3) != "OK ") return false;
    const std::string text = Pattern(size, static_cast<char>(seed));
    std::thread writer([&] {
      for (size_t at = 0; at < text.size();) {
        const size_t some = 1 + random() % (random() % 4 == 0 ? 20000 : 50);
        if (!host.Write(std::string_view(text).substr(at, some))) return;
        at += some;
      }
      shutdown(host.fd(), SHUT_WR);
    });
    const std::string got = host.Read(text.size());
    writer.join();
    return got == text && host.AtEnd();
  }

  std::map<uint32_t, Echo> echoes_;  // by the host's port
};

RINGSIDE_WITH_BOTH_WAITERS(VirtioVsockStressTest);

TEST_P(VirtioVsockStressTest, EachByteComesBack) {
  Start();
  std::mt19937 random(1);
  std::atomic<int> running = kHosts;
  std::atomic<int> right = 0;
  std::vector<std::thread> hosts;
  for (uint32_t i = 0; i < kHosts; ++i) {
    hosts.emplace_back([this, i, &running, &right] {
      for (uint32_t round = 0; round < 3; ++round)
        right += Talk(i * 8 + round, 30000 * (i % 4) + i);
      --running;
    });
  }
  const absl::Time patience_ends = absl::Now() + 3 * kWaitLimit;
  for (uint32_t turn = 0; running > 0 && absl::Now() < patience_ends; ++turn) {
    GuestTurn(random);
    if (turn % 512 == 0) Move(0, turn / 512 % 2);
    if (turn % 512 == 300) {
      Pause();
      device_->Resume();
    }
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(right, 3 * kHosts);
  EXPECT_EQ(counts().made.Get(), 3U * kHosts);
  EXPECT_EQ(counts().refused.Get(), 0U);
  EXPECT_TRUE(SpinUntil([&] {
    GuestTurn(random);
    return counts().open.Get() == 0;
  }));
}

TEST_P(VirtioVsockStressTest, DriversGoInTheMiddle) {
  Make();
  std::mt19937 random(2);
  for (int round = 0; round < 8; ++round) {
    Start();
    echoes_.clear();
    std::vector<std::thread> hosts;
    std::atomic<int> running = 4;
    for (uint32_t i = 0; i < 4; ++i) {
      hosts.emplace_back([this, i, &running] {
        (void)Talk(i, 100000);
        --running;
      });
    }
    const auto turns = static_cast<int>(random() % 2000);
    for (int turn = 0; turn < turns && running > 0; ++turn) {
      GuestTurn(random);
      if (turn % 256 == 0) Move(0, turn / 256 % 2);
    }
    Reset();
    EXPECT_EQ(counts().open.Get(), 0U);
    // Those that have come too late for this driver are served by the next.
    Start();
    echoes_.clear();
    while (running > 0) GuestTurn(random);
    for (std::thread& host : hosts) host.join();
    Reset();
  }
}

}  // namespace
}  // namespace ringside::testing
