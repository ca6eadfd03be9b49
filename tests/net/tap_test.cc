// Taps in a network namespace of the test's own: by name and by descriptor, what they carry, and
// what is said of those that cannot be had.
#include "net/tap.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/capability.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

#include "net/running_counts.h"
#include "net/tap_claim.h"
#include "tests/support/net/own_network.h"
#include "tests/support/status_matchers.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::OwnNetwork;
using testing::SpinUntil;
using testing::WaitForFd;

constexpr auto kRefuse = HostNetwork::TooSoon::kRefuse;

class TapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!network_.allowed()) GTEST_SKIP() << OwnNetwork::kNotAllowed;
    if (access("/dev/net/tun", R_OK | W_OK) != 0) GTEST_SKIP() << "there is no /dev/net/tun here";
  }

  // The other end of what a tap carries: all frames of the interface, from inside the host.
  static UniqueFd Sniffer(const std::string& name) {
    UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
    const sockaddr_ll address = {.sll_family = AF_PACKET,
                                 .sll_protocol = htons(ETH_P_ALL),
                                 .sll_ifindex = static_cast<int>(OwnNetwork::IndexOf(name))};
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) abort();
    return fd;
  }
  static std::vector<uint8_t> Frame(uint8_t mark) {
    std::vector<uint8_t> frame(64, mark);
    frame[12] = 0x88;  // an EtherType for experiments, IEEE 802
    frame[13] = 0xb5;
    return frame;
  }
  // A datagram of one of 256 flows. What is no protocol that the host knows is one flow to it.
  static std::vector<uint8_t> FlowFrame(uint8_t flow) {
    std::vector<uint8_t> frame(64);
    const std::array<uint8_t, 26> headers = {0x08, 0x00,  // IPv4
                                             0x45, 0,    0, 50, 0,  0, 0, 0,
                                             64,   17,   0, 0,                // 50 bytes of UDP
                                             10,   0,    0, 1,  10, 0, 0, 2,  // from, to
                                             0x40, flow, 0, 9};               // their ports
    std::ranges::copy(headers, frame.begin() + 12);
    frame[39] = 30;  // of the datagram
    return frame;
  }
  static FrameChannel::Sent Send(FrameChannel& channel, std::vector<uint8_t> frame) {
    std::array<uint8_t, kNetHeaderSize> header = {};
    const std::array<iovec, 2> parts = {
        {{header.data(), header.size()}, {frame.data(), frame.size()}}};
    return channel.Send(parts);
  }
  static ssize_t Receive(FrameChannel& channel, std::vector<uint8_t>& frame) {
    frame.assign(kMaxFrame, 0);
    const iovec part = {frame.data(), frame.size()};
    const ssize_t size = channel.Receive(std::span(&part, 1));
    frame.resize(size > 0 ? static_cast<size_t>(size) : 0);
    return size;
  }
  static UniqueFd OpenTun(const char* name, int flags) {
    UniqueFd fd(open("/dev/net/tun", O_RDWR | O_CLOEXEC));
    ifreq request = {};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    request.ifr_flags = static_cast<short>(flags);
    if (ioctl(fd.get(), TUNSETIFF, &request) != 0) abort();
    return fd;
  }

  const OwnNetwork network_;
};

TEST_F(TapTest, OneThatIsMadeCarriesFramesAndEndsWithItsUser) {
  {
    auto tap = Tap::ByName("rs0", 1, 1400);
    ASSERT_TRUE(tap.ok()) << tap.status();
    EXPECT_EQ((*tap)->info().name, "rs0");
    EXPECT_EQ((*tap)->info().mtu, 1400);
    EXPECT_TRUE((*tap)->info().takes_offloads);
    EXPECT_NE((*tap)->info().offloads & (kNetChecksum | kNetTso4), 0u);
    EXPECT_TRUE(OwnNetwork::IsUp("rs0"));
    EXPECT_NE(OwnNetwork::Flags("rs0") & IFF_MULTICAST, 0) << "as it was made";
    FrameChannel& channel = (*tap)->channel(0);
    const UniqueFd sniffer = Sniffer("rs0");
    EXPECT_EQ(Send(channel, Frame(7)), FrameChannel::Sent::kYes);
    std::vector<uint8_t> got(100);
    ASSERT_TRUE(WaitForFd(sniffer.get(), POLLIN));
    got.resize(static_cast<size_t>(read(sniffer.get(), got.data(), got.size())));
    EXPECT_EQ(got, Frame(7));

    ASSERT_EQ(write(sniffer.get(), Frame(8).data(), 64), 64);
    ASSERT_TRUE(WaitForFd(channel.receive_fd(), POLLIN));
    ASSERT_EQ(Receive(channel, got), 64 + 12);
    EXPECT_EQ((std::vector<uint8_t>(got.begin() + 12, got.end())), Frame(8));
    EXPECT_EQ(Receive(channel, got), FrameChannel::kNothing);
  }
  EXPECT_EQ(OwnNetwork::IndexOf("rs0"), 0u);
}

TEST_F(TapTest, OneThatIsThereIsTakenAndLeft) {
  const UniqueFd maker = OpenTun("rs0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE);
  ASSERT_EQ(ioctl(maker.get(), TUNSETPERSIST, 1), 0);
  {
    EXPECT_TRUE(Tap::ByName("rs0", 1, 0).ok());
    auto tap = Tap::ByName("rs0", 3, 0);
    ASSERT_TRUE(tap.ok()) << tap.status();
    EXPECT_EQ((*tap)->info().pairs, 3);
    EXPECT_FALSE(OwnNetwork::IsUp("rs0")) << "that is its owner's to say";
    EXPECT_EQ(Send((*tap)->channel(0), Frame(1)), FrameChannel::Sent::kDropped);
  }
  EXPECT_NE(OwnNetwork::IndexOf("rs0"), 0u);
}

TEST_F(TapTest, ItsQueuesAreAttachedAndDetached) {
  auto tap = Tap::ByName("rs0", 2, 0);
  ASSERT_TRUE(tap.ok()) << tap.status();
  const UniqueFd sniffer = Sniffer("rs0");
  const auto in_second = [&] {
    std::vector<uint8_t> got;
    size_t frames = 0;
    for (uint8_t i = 0; i < 200; ++i) {
      const std::vector<uint8_t> frame = FlowFrame(i);
      EXPECT_EQ(write(sniffer.get(), frame.data(), frame.size()), 64);
    }
    while (Receive((*tap)->channel(0), got) > 0) {
    }
    while (Receive((*tap)->channel(1), got) > 0) ++frames;
    return frames;
  };
  EXPECT_GT(in_second(), 0u);
  ASSERT_TRUE((*tap)->SetPairs(1, kRefuse).ok());
  EXPECT_EQ(in_second(), 0u);
  ASSERT_TRUE((*tap)->SetPairs(2, kRefuse).ok());
  EXPECT_GT(in_second(), 0u);
}

// Each queue that is attached or detached is a change.
TEST_F(TapTest, AGuestChangesItOnlySoOften) {
  constexpr uint16_t kPairs = 8;
  auto tap = Tap::ByName("rs0", kPairs, 0);
  ASSERT_TRUE(tap.ok()) << tap.status();
  int changes = 0;
  uint16_t attached = kPairs;
  absl::Status status;
  const absl::Time start = absl::Now();
  for (uint16_t pairs = 1; changes < 1000; pairs = pairs == 1 ? kPairs : 1) {
    status = (*tap)->SetPairs(pairs, kRefuse);
    if (!status.ok()) break;
    changes += kPairs - 1;
    attached = pairs;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_GE(changes, 4 * (kPairs - 1)) << "drivers that come soon after each other";
  const double refilled =
      absl::ToDoubleSeconds(absl::Now() - start) * 1e9 / double{ChangeLimit::kNsPerChange};
  EXPECT_LE(changes, ChangeLimit::kBurst + kPairs + refilled);
  // What is left is too little for all pairs, and goes one by one.
  const uint16_t beside = attached == 1 ? 2 : kPairs - 1;
  for (int round = 0; round < 2 * kPairs; ++round) {
    if (!(*tap)->SetPairs(round % 2 == 0 ? beside : attached, kRefuse).ok()) break;
  }
  // The host itself goes on at once, and the next driver is not to pay for that with its network.
  EXPECT_TRUE((*tap)->SetPairs(1, HostNetwork::TooSoon::kNever).ok());
  EXPECT_TRUE((*tap)->SetPairs(kPairs, HostNetwork::TooSoon::kNever).ok());
  EXPECT_TRUE((*tap)->SetOffloads(kNetChecksum, HostNetwork::TooSoon::kWait).ok());
  EXPECT_TRUE((*tap)->SetPairs(1, HostNetwork::TooSoon::kWait).ok());
}

TEST_F(TapTest, TwoNetworksOfOneProcessDoNotShareOne) {
  constexpr int kFlags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
  const UniqueFd maker = OpenTun("rs0", kFlags);
  const int number = maker.get();
  const UniqueFd copy(dup(number));
  const std::array<int, 1> given = {number}, duplicate = {copy.get()};
  const auto is_refused = [](const absl::Status& status) {
    return absl::IsFailedPrecondition(status) &&
           std::string(Message(status)).find("'rs0' is another network's") != std::string::npos;
  };
  {
    const auto first = Tap::ByDescriptors(given);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_TRUE(is_refused(Tap::ByDescriptors(given).status()));
    EXPECT_TRUE(is_refused(Tap::ByDescriptors(duplicate).status()));
    EXPECT_TRUE(is_refused(Tap::ByName("rs0", 2, 0).status()));
    EXPECT_TRUE(Tap::ByName("rs1", 2, 0).ok());
  }
  const auto by_name = Tap::ByName("rs0", 2, 0);
  ASSERT_TRUE(by_name.ok()) << by_name.status();
  ASSERT_TRUE(OwnNetwork::SetAddress("rs0", 0x42)) << "as udev does";
  EXPECT_TRUE(is_refused(Tap::ByDescriptors(given).status()));
}

// The name says nothing of taps in namespaces that this process is not in.
TEST_F(TapTest, TapsOfOneNameInTwoNamespacesAreTwo) {
  constexpr int kFlags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  std::vector<UniqueFd> queues;
  for (int i = 0; i < 2; ++i) {
    const OwnNetwork other;
    queues.push_back(OpenTun("rs0", kFlags));
  }
  const std::array<int, 1> one = {queues[0].get()}, two = {queues[1].get()};
  const auto first = Tap::ByDescriptors(one);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Tap::ByDescriptors(two);
  EXPECT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(Tap::ByName("rs0", 1, 0).ok());
  EXPECT_FALSE(Tap::ByDescriptors(one).ok());
}

TEST_F(TapTest, OneDescriptorIsOneQueue) {
  const UniqueFd queue = OpenTun("rs0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE);
  const std::array<int, 2> twice = {queue.get(), queue.get()};
  EXPECT_THAT(std::string(Message(Tap::ByDescriptors(twice).status())), HasSubstr("given twice"));
}

constexpr unsigned kAnyIndex = 4711;

// What `function` returns in a child of this process.
template <typename Function>
int InChild(Function function) {
  const pid_t child = fork();
  if (child == 0) _exit(function());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// As one with capabilities of its file.
TEST(TapClaimTest, HoldsInAProcessThatMayNotBeDumped) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  EXPECT_EQ(InChild([] {
              if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) {
                return 2;
              }
              if (prctl(PR_SET_DUMPABLE, 0) != 0) return 3;
              const auto first = TapClaim::OfInterface(kAnyIndex, "rs0");
              if (!first.ok() || !first->holds()) return 4;
              return TapClaim::OfInterface(kAnyIndex, "rs0").ok() ? 5 : 0;
            }),
            0);
}

TEST(TapClaimTest, EndsWithItsOwnerAlsoIfAChildHasTheDescriptor) {
  std::optional<TapClaim> claim = *TapClaim::OfInterface(kAnyIndex, "rs0");
  ASSERT_TRUE(claim->holds());
  EXPECT_FALSE(TapClaim::OfInterface(kAnyIndex, "rs0").ok());
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  claim.reset();
  EXPECT_TRUE(TapClaim::OfInterface(kAnyIndex, "rs0").ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(RunningCountsTest, NeverGoBackAndNeverWrap) {
  RunningCounts counts;
  counts.Begin({.frames_in = 10, .bytes_in = 1000, .frames_out = 5, .bytes_out = 500});
  const auto see = [&](uint64_t frames) {
    counts.See({.frames_in = frames,
                .bytes_in = 100 * frames,
                .frames_out = frames,
                .bytes_out = 100 * frames});
    return counts.since();
  };
  EXPECT_EQ(see(7).frames_in, 0u) << "fewer than at first";
  EXPECT_EQ(counts.since().frames_out, 2u);
  EXPECT_EQ(see(30).frames_in, 20u);
  EXPECT_EQ(counts.since().bytes_in, 2000u);
  EXPECT_EQ(see(0).frames_in, 20u) << "it is gone";
  EXPECT_EQ(see(12).bytes_out, 2500u) << "it was made anew";
  EXPECT_EQ(see(31).frames_out, 26u);
}

TEST(ChangeLimitTest, ABurstAndThenSoManyPerSecond) {
  constexpr int64_t kNow = 5'000'000'000;
  constexpr int64_t kEach = ChangeLimit::kNsPerChange;
  ChangeLimit limit;
  EXPECT_EQ(limit.Ask(kNow, ChangeLimit::kBurst - 7), 0);
  EXPECT_EQ(limit.Ask(kNow, 7), 0);
  EXPECT_EQ(limit.Ask(kNow, 1), kEach);
  EXPECT_EQ(limit.Ask(kNow, 7), 7 * kEach) << "what is refused does not count";
  EXPECT_EQ(limit.Ask(kNow + 7 * kEach - 1, 7), 1);
  EXPECT_EQ(limit.Ask(kNow + 7 * kEach, 7), 0);
  EXPECT_EQ(limit.Ask(kNow + 1000 * kEach, ChangeLimit::kBurst), 0) << "as at first, and no more";
  EXPECT_EQ(limit.Ask(kNow + 1000 * kEach, 1), kEach);
}

TEST_F(TapTest, OneThatIsRemovedIsGone) {
  auto tap = Tap::ByName("rs0", 1, 0);
  ASSERT_TRUE(tap.ok()) << tap.status();
  ASSERT_TRUE(OwnNetwork::Remove("rs0"));
  FrameChannel& channel = (*tap)->channel(0);
  EXPECT_TRUE(WaitForFd(channel.receive_fd(), POLLIN));
  std::vector<uint8_t> got;
  EXPECT_EQ(Receive(channel, got), FrameChannel::kGone);
  EXPECT_EQ(Send(channel, Frame(1)), FrameChannel::Sent::kGone);
  EXPECT_TRUE(absl::IsUnavailable((*tap)->SetOffloads(0, kRefuse)))
      << (*tap)->SetOffloads(0, kRefuse);
}

// A machine before has left one queue of two detached, and its cable pulled.
TEST_F(TapTest, DescriptorsCanBeUsedAgain) {
  constexpr int kFlags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR | IFF_MULTI_QUEUE;
  const UniqueFd first = OpenTun("rs0", kFlags), second = OpenTun("rs0", kFlags);
  const std::vector<int> fds = {first.get(), second.get()};
  ASSERT_TRUE(OwnNetwork::SetUp("rs0", true));
  for (int machine = 0; machine < 3; ++machine) {
    auto tap = Tap::ByDescriptors(fds);
    ASSERT_TRUE(tap.ok()) << tap.status();
    // The kernel sees to that in its own time.
    EXPECT_TRUE(SpinUntil([] { return (OwnNetwork::Flags("rs0") & IFF_RUNNING) != 0; }));
    EXPECT_TRUE((*tap)->SetPairs(1, kRefuse).ok());
    (*tap)->SetCarrier(false);
  }
}

TEST_F(TapTest, OneOfSeveralPairsThatIsRemovedIsGone) {
  auto tap = Tap::ByName("rs0", 2, 0);
  ASSERT_TRUE(tap.ok()) << tap.status();
  ASSERT_TRUE(OwnNetwork::Remove("rs0"));
  EXPECT_TRUE(absl::IsUnavailable((*tap)->SetPairs(1, kRefuse))) << (*tap)->SetPairs(1, kRefuse);
}

TEST_F(TapTest, ByDescriptor) {
  const UniqueFd good = OpenTun("rs0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  const int number = good.get();
  auto tap = Tap::ByDescriptors(std::span(&number, 1));
  ASSERT_TRUE(tap.ok()) << tap.status();
  EXPECT_EQ((*tap)->info().name, "rs0");
  ASSERT_TRUE(OwnNetwork::SetUp("rs0", true));
  EXPECT_EQ(Send((*tap)->channel(0), Frame(1)), FrameChannel::Sent::kYes);

  const UniqueFd without_header = OpenTun("rs1", IFF_TAP | IFF_NO_PI);
  const UniqueFd tun = OpenTun("rs2", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR);
  const UniqueFd other = OpenTun("rs3", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  const UniqueFd fresh(open("/dev/net/tun", O_RDWR | O_CLOEXEC));
  const UniqueFd file(open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto status = [](std::vector<int> fds) { return Tap::ByDescriptors(fds).status(); };
  EXPECT_THAT(status({}), IsBadInput("descriptors", "1 to 8"));
  EXPECT_THAT(status({9999}), IsBadInput("9999", "not open"));
  EXPECT_THAT(status({file.get()}), IsBadInput("descriptor", "no queue of a tap"));
  EXPECT_THAT(status({fresh.get()}), IsBadInput("descriptor", "no queue of a tap"));
  EXPECT_THAT(status({without_header.get()}), IsBadInput("rs1", "IFF_VNET_HDR"));
  EXPECT_THAT(status({tun.get()}), IsBadInput("rs2", "IFF_TAP"));
  EXPECT_THAT(status({number, other.get()}), IsBadInput("rs3", "one tap"));
}

TEST_F(TapTest, WhatCannotBeHadIsSaidInOneLine) {
  EXPECT_THAT(Tap::ByName("", 1, 0).status(), IsBadInput("tap ''", "1 to 15"));
  EXPECT_THAT(Tap::ByName("sixteenletters00", 1, 0).status(),
              IsBadInput("sixteenletters00", "1 to 15"));
  EXPECT_THAT(Tap::ByName("lo", 1, 0).status(), IsBadInput("'lo'", "no tap"));
  EXPECT_THAT(Tap::ByName("a/b", 1, 0).status(), IsBadInput("a/b", "no interface has such a name"));
  const UniqueFd somebody = OpenTun("rs0", IFF_TAP | IFF_NO_PI | IFF_VNET_HDR);
  const absl::Status busy = Tap::ByName("rs0", 1, 0).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(busy)) << busy;
  EXPECT_THAT(std::string(Message(busy)), HasSubstr("another process has it"));
  EXPECT_THAT(Tap::ByName("rs0", 2, 0).status(), IsBadInput("rs0", "multi_queue"));
}

TEST_F(TapTest, WithoutRightsItSaysWhatToDo) {
  // Of a thread of its own, whose rights end with it.
  std::thread([&] {
    __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    __user_cap_data_struct data[2] = {};
    ASSERT_EQ(syscall(SYS_capget, &header, data), 0);
    data[0].effective &= ~(1U << CAP_NET_ADMIN);
    ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
    const absl::Status status = Tap::ByName("rs0", 1, 0).status();
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("--net user"));
  }).join();
}

}  // namespace
}  // namespace ringside
