// net-check=N: echoes whose every byte is checked, through each of N pairs of queues of every
// network, in every way that its driver may wait and lay out buffers; checksums left to the
// network; the control queue's answers.

#include <new>

#include "allocator.h"
#include "checks.h"
#include "clock.h"
#include "console.h"
#include "net_load.h"
#include "virtio_net.h"

namespace guest {
namespace {

constexpr uint64_t kEthernetMtu = 1500;

// Frames go out on one pair and come in on any: which is the host's to choose.
class SteeredPort {
 public:
  SteeredPort(std::span<NetPair> pairs, size_t out) : pairs_(pairs), out_(pairs[out]) {}

  uint16_t slots() const { return out_.slots(); }
  uint8_t* frame(uint16_t slot) { return out_.frame(slot); }
  void Transmit(uint16_t slot, uint64_t length) { out_.Transmit(slot, length); }
  bool TakeTransmitted(uint16_t& slot) { return out_.TakeTransmitted(slot); }
  bool TakeReceived(NetFrame& frame) {
    for (NetPair& pair : pairs_) {
      if (!pair.TakeReceived(frame)) continue;
      from_ = &pair;
      return true;
    }
    return false;
  }
  void GiveBack(const NetFrame& frame) { from_->GiveBack(frame); }
  void Flush() {
    for (NetPair& pair : pairs_) pair.Flush();
  }
  // By interrupt only where there is no other pair to come in on.
  bool WaitForWork(Wake wake, uint64_t deadline) {
    return pairs_.size() > 1 || out_.WaitForWork(wake, deadline);
  }
  uint64_t kicks() const { return out_.kicks(); }
  uint64_t interrupts() const { return out_.interrupts(); }

 private:
  std::span<NetPair> pairs_;
  NetPair& out_;
  NetPair* from_ = nullptr;
};

bool IsClean(const NetResult& result) {
  return Expect("net: round trips", 1, result.all_ios > 0) &
         Expect("net: echoes that differ", 0, result.mismatches) &
         Expect("net: echoes lost", 0, result.lost) &
         Expect("net: echoes that came again", 0, result.duplicates) &
         Expect("net: frames that stayed, or interrupts lost", 0, result.errors);
}

bool Echo(SteeredPort& port, const NetPeer& peer, uint64_t frame_bytes, uint64_t depth) {
  const NetJob job = {.name = "echo",
                      .frame_bytes = frame_bytes,
                      .depth = depth,
                      .runtime_ns = 5'000'000,
                      .verify = true,
                      .seed = frame_bytes + depth};
  const uint64_t mark = AllocatorMark();
  auto* const load =
      new (AllocateArray<NetLoad<SteeredPort>>(1)) NetLoad<SteeredPort>(port, job, peer);
  const char* const error = load->Run(0);
  if (error != nullptr) Say("FAIL net: expected echoes got ", error);
  const bool ok = error == nullptr && IsClean(load->result());
  ReleaseMemory(mark);
  return ok;
}

// One echo whose checksum is not there yet: only who passes on that it is still to be made, and
// where, brings it to an answer.
bool EchoWithoutChecksum(VirtioNet& net, const NetPeer& peer) {
  constexpr uint64_t kLength = 100;
  constexpr uint64_t kWrong = 2;
  NetPair& pair = net.pair();
  uint8_t* const frame = pair.frame(0);
  NumberEcho(frame, WriteEcho(frame, kLength, peer, /*sequence=*/0, /*seed=*/1), kWrong);
  StoreTo<uint16_t>(frame + kEthernetBytes + kIpv4Bytes + 2, 0);
  NetHeader& header = pair.header(0);
  header.flags = kNetNeedsChecksum;
  header.checksum_start = kEthernetBytes + kIpv4Bytes;
  header.checksum_offset = 2;
  pair.Transmit(0, kLength);
  pair.Flush();
  bool answered = false, sent = false;
  uint16_t slot = 0;
  const uint64_t end = TimeStamp() + NsToTicks(3'000'000'000);
  while ((!answered || !sent) && TimeStamp() < end) {
    sent = pair.TakeTransmitted(slot) || sent;
    NetFrame received;
    EchoReply reply;
    if (!pair.TakeReceived(received)) continue;
    answered = answered || (ReadEchoReply(received.data, received.length, reply) &&
                            IsWholeEchoReply(received.data, received.length, kLength, peer, 1));
    pair.GiveBack(received);
    pair.Flush();
  }
  header = {};
  return Expect("net: an echo whose checksum the network makes is answered", 1, answered);
}

bool CheckControl(VirtioNet& net) {
  const auto answers = [&net](const char* what, NetAnswer expected, NetCommand command,
                              std::initializer_list<uint8_t> data) {
    return Expect(what, static_cast<uint8_t>(expected),
                  static_cast<uint8_t>(net.Command(command, data)));
  };
  if (!net.Start({.control = true})) return false;
  bool ok = answers("net: promiscuous mode on", NetAnswer::kOk, kNetPromiscuous, {1}) &
            answers("net: promiscuous mode off", NetAnswer::kOk, kNetPromiscuous, {0}) &
            answers("net: unknown command", NetAnswer::kError, {0x70, 1}, {0}) &
            answers("net: command without data", NetAnswer::kError, kNetPromiscuous, {});
  if (net.Offers(kNetFeatureControlMac)) {
    const MacAddress& mac = net.mac();
    ok &= answers("net: MAC address set", NetAnswer::kOk, kNetSetMac,
                  {mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]});
    ok &= answers("net: MAC address cut short", NetAnswer::kError, kNetSetMac, {mac[0]});
  }
  return ok;
}

bool CheckSizes(VirtioNet& net, const NetPeer& peer, size_t pair) {
  SteeredPort port(net.pairs(), pair);
  const uint64_t largest = std::min(net.mtu(), kEthernetMtu) + kEthernetBytes;
  for (const uint64_t bytes : {kMinFrame, uint64_t{64}, uint64_t{255}, uint64_t{1001}, largest}) {
    if (!Echo(port, peer, bytes, 1) || !Echo(port, peer, bytes, 16)) return false;
  }
  return true;
}

bool CheckNetwork(VirtioNet& net, NetPeer peer, uint16_t pairs) {
  if (!net.Start({})) return false;
  peer.own_mac = net.mac();
  if (!Resolve(net.pair(), peer)) return Expect("net: an answer to ARP", 1, 0);
  const bool merges = net.Offers(kNetFeatureMergeable);
  for (const NetOptions& options :
       {NetOptions{}, NetOptions{.wait = Wait::kInterrupt}, NetOptions{.event_idx = false},
        NetOptions{.small_buffers = merges}, NetOptions{.queue_size = 16}}) {
    if (!net.Start(options) || !CheckSizes(net, peer, 0)) return false;
    if (!Expect("net: rules broken", 0, net.pair().faults())) return false;
  }
  if (net.Offers(kNetFeatureChecksum) && !EchoWithoutChecksum(net, peer)) return false;
  if (net.Offers(kNetFeatureControl) && !CheckControl(net)) return false;
  if (pairs > 1 && !net.Start({.pairs = pairs})) return false;
  for (uint16_t i = 0; pairs > 1 && i < pairs; ++i) {
    if (!CheckSizes(net, peer, i)) return false;
  }
  return true;
}

}  // namespace

void CheckNetworks(const CommandLine& command_line, uint64_t pairs) {
  NetPeer peer;
  if (!ReadNetAddresses(command_line, peer) || !InitClock()) return;
  if (Networks().empty()) return Say("FAIL net: expected a network got none");
  for (VirtioNet& net : Networks()) {
    if (!CheckNetwork(net, peer, static_cast<uint16_t>(pairs))) continue;
    const MacAddress& mac = net.mac();
    uint64_t address = 0;
    for (const uint8_t byte : mac) address = address << 8 | byte;
    Say("net ", Decimal{uint64_t(net.index())}, " transport=", net.transport().name(),
        " mac=", Hex{address, 12}, " mtu=", Decimal{net.mtu()},
        " link=", net.link_is_up() ? "up" : "down", " pairs=", Decimal{net.max_pairs()}, " ok");
  }
}

}  // namespace guest
