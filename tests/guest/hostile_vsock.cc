// What hostile drivers of a vsock do. See hostile_vsock.h.

#include "hostile_vsock.h"

#include <array>
#include <cstring>

#include "console.h"
#include "deadline.h"
#include "hostile.h"
#include "vsock_order.h"

namespace guest {

// Slots in turn: a device that answers out of turn finds its packets changed, which is no harm
// here.
VsockHeader* HostileVsock::Next(uint16_t& slot) {
  uint16_t done = 0;
  while (pair().TakeTransmitted(done)) --under_way_;
  if (under_way_ == pair().slots()) return nullptr;
  ++under_way_;
  slot = static_cast<uint16_t>(next_slot_++ % pair().slots());
  return &pair().header(slot);
}

void HostileVsock::Drain() {
  VsockPacket packet;
  while (pair().TakeReceived(packet)) {
    ports_[next_port_++ % std::size(ports_)] = packet.header.source_port;
    pair().GiveBack(packet);
  }
  pair().Flush();
}

uint32_t HostileVsock::AnyPort() {
  constexpr std::array<uint32_t, 6> kPorts = {
      0, 1, kVsockControlPort, kVsockServicePort, uint32_t{1} << 30, 0xffffffff};
  if (random_.Below(2) == 0) return ports_[random_.Below(std::size(ports_))];
  return kPorts[random_.Below(kPorts.size())];
}

// Right in most fields, so that what is wrong in one gets past the looks at the others.
VsockHeader HostileVsock::AnyHeader() {
  const auto mostly = [this](uint64_t right, uint64_t wrong) {
    return random_.Below(32) == 0 ? wrong : right;
  };
  constexpr std::array<uint32_t, 7> kLengths = {0, 1, 64, 4000, 4096, 262145, 0xffffffff};
  VsockHeader header;
  header.source_cid = mostly(vsock_.cid(), random_.Next());
  header.destination_cid = mostly(kVsockHostCid, random_.Next());
  header.source_port = random_.Below(2) == 0 ? kVsockServicePort : AnyPort();
  header.destination_port = AnyPort();
  header.length = kLengths[random_.Below(kLengths.size())];
  header.type = static_cast<uint16_t>(mostly(kVsockStreamType, random_.Next()));
  header.op = static_cast<VsockOp>(mostly(1 + random_.Below(7), random_.Next()));
  header.flags = static_cast<uint32_t>(mostly(random_.Below(4), random_.Next()));
  header.buf_alloc =
      static_cast<uint32_t>(mostly(uint64_t{1} << random_.Below(32), random_.Next()));
  header.fwd_cnt = static_cast<uint32_t>(random_.Below(2) == 0 ? 0 : random_.Next());
  return header;
}

namespace {

constexpr uint32_t kMostData = 4000;

// For some time, whatever the vsock makes of it; false after a FAIL line.
template <typename Act>
bool ForAWhile(HostileVsock& target, Act act) {
  const Deadline deadline(10 * kAMoment);
  while (!deadline.Passed()) {
    if (target.NeedsReset()) return Expect("hostile vsock: legal chains break nothing", 0, 1);
    act();
    target.Drain();
  }
  return true;
}

// Headers of all kinds, in packets that are as long as they say, or not.
bool AnyHeaders(HostileVsock& target) {
  return ForAWhile(target, [&] {
    uint16_t slot = 0;
    VsockHeader* const header = target.Next(slot);
    if (header == nullptr) return;
    *header = target.AnyHeader();
    const uint32_t said = header->length;
    header->length = static_cast<uint32_t>(
        target.random().Below(4) == 0 ? target.random().Below(kMostData) : said % kMostData);
    target.pair().Transmit(slot);  // so many bytes
    if (target.random().Below(4) == 0) header->length = said;
  });
}

// Accepts whatever asks, and then sends far beyond what it may.
bool BeyondCredit(HostileVsock& target) {
  return ForAWhile(target, [&] {
    uint16_t slot = 0;
    VsockHeader* const header = target.Next(slot);
    if (header == nullptr) return;
    *header = target.AnyHeader();
    header->source_cid = target.vsock().cid();
    header->destination_cid = kVsockHostCid;
    header->type = kVsockStreamType;
    header->op = target.random().Below(4) == 0 ? VsockOp::kResponse : VsockOp::kData;
    header->length = header->op == VsockOp::kData ? kMostData : 0;
    target.pair().Transmit(slot);
  });
}

// Connects to a program that listens, again and again, and closes nothing.
bool ConnectsWithoutEnd(HostileVsock& target) {
  uint32_t port = 1;
  return ForAWhile(target, [&] {
    uint16_t slot = 0;
    VsockHeader* const header = target.Next(slot);
    if (header == nullptr) return;
    *header = {.source_cid = target.vsock().cid(),
               .destination_cid = kVsockHostCid,
               .source_port = port++,
               .destination_port = kVsockMirrorPort,
               .op = VsockOp::kRequest,
               .buf_alloc = 4096};
    target.pair().Transmit(slot);
  });
}

// Refusals without end, none of which is taken: the vsock takes no more packets at some time.
bool NeverTakesAnything(HostileVsock& target) {
  const Deadline deadline(kAMoment);
  while (!deadline.Passed() && !target.NeedsReset()) {
    uint16_t slot = 0;
    VsockHeader* const header = target.Next(slot);
    if (header == nullptr) continue;
    *header = target.AnyHeader();
    header->length = 0;
    target.pair().Transmit(slot);
    target.pair().Flush();
  }
  return Expect("hostile vsock: buffers that are not taken break nothing", 0, target.NeedsReset());
}

// Addresses and lengths that lead to no harm to this guest if a device is so good as to follow
// them.
void ChangeSomething(HostileVsock& target, Virtqueue& rings, uint16_t flags) {
  constexpr std::array<uint64_t, 3> kAddresses = {kHole, kBeyondMemory, kWrapping};
  constexpr std::array<uint32_t, 7> kLengths = {0, 1, 43, 44, 45, 4096, 0xffffffff};
  Random& random = target.random();
  const auto k = static_cast<uint16_t>(random.Below(rings.size()));
  volatile Descriptor& descriptor = rings.descriptor(k);
  switch (random.Below(5)) {
    case 0:
      descriptor.address = kAddresses[random.Below(kAddresses.size())];
      break;
    case 1:
      descriptor.length = kLengths[random.Below(kLengths.size())];
      break;
    case 2:
      descriptor.flags = static_cast<uint16_t>(flags ^ random.Below(8));
      break;
    case 3:
      descriptor.next = static_cast<uint16_t>(random.Below(2 * rings.size()));
      break;
    default:  // of a header, while it is read
      target.pair().header(k) = target.AnyHeader();
      break;
  }
}

// Descriptors and headers change while the vsock reads them, in rounds: a queue that breaks ends
// one.
template <bool kReceives>
bool ChangedWhileRead(HostileVsock& target) {
  uint64_t broken = 0;
  for (int round = 0; round < 30; ++round) {
    if (!target.vsock().Start({.event_idx = round % 2 == 0})) return false;
    HostileVsock fresh(target.vsock(), target.random().Next());
    VsockPair& pair = target.pair();
    Virtqueue& rings = kReceives ? pair.receive_rings() : pair.transmit_rings();
    const Deadline deadline(kAMoment / 8);
    while (!deadline.Passed() && !fresh.NeedsReset()) {
      uint16_t slot = 0;
      VsockHeader* const header = fresh.Next(slot);
      if (header != nullptr) {
        *header = fresh.AnyHeader();
        header->length %= kMostData;
        pair.Transmit(slot);
      }
      pair.Flush();
      for (int i = 0; i < 20; ++i) {
        ChangeSomething(fresh, rings, kReceives ? kDescriptorWrite : uint16_t{0});
      }
    }
    broken += fresh.NeedsReset();
  }
  Say("hostile vsock needs-reset=", Decimal{broken});
  return true;
}

// Any entries and indices of the rings.
template <uint16_t kQueue>
bool RingsLie(HostileVsock& target) {
  uint64_t broken = 0;
  for (int round = 0; round < 20; ++round) {
    if (!target.vsock().Start({})) return false;
    Virtqueue& rings = kQueue == VirtioVsock::kReceive    ? target.pair().receive_rings()
                       : kQueue == VirtioVsock::kTransmit ? target.pair().transmit_rings()
                                                          : target.vsock().events();
    for (int i = 0; i < 8; ++i) rings.AddHead(static_cast<uint16_t>(target.random().Next()));
    if (round % 2 == 0) rings.next_available() = static_cast<uint16_t>(target.random().Next());
    rings.Publish();
    target.vsock().transport().Notify(kQueue).Kick();
    uint16_t slot = 0;
    HostileVsock fresh(target.vsock(), target.random().Next());
    *fresh.Next(slot) = {.source_cid = target.vsock().cid(), .op = VsockOp::kData};
    target.pair().Transmit(slot);
    target.pair().Flush();
    SpinUntil([&] { return target.NeedsReset(); }, kAMoment / 8);
    broken += target.NeedsReset();
  }
  Say("hostile vsock needs-reset=", Decimal{broken});
  return true;
}

constexpr auto kBehaviours = std::to_array<VsockBehaviour>({
    {"vsock-any-headers", AnyHeaders},
    {"vsock-beyond-credit", BeyondCredit},
    {"vsock-connects-without-end", ConnectsWithoutEnd},
    {"vsock-never-takes-anything", NeverTakesAnything},
    {"vsock-out-changed-while-read", ChangedWhileRead<false>},
    {"vsock-in-changed-while-read", ChangedWhileRead<true>},
    {"vsock-in-rings-lie", RingsLie<VirtioVsock::kReceive>},
    {"vsock-out-rings-lie", RingsLie<VirtioVsock::kTransmit>},
    {"vsock-event-rings-lie", RingsLie<VirtioVsock::kEvent>},
});

}  // namespace

std::span<const VsockBehaviour> VsockBehaviours() {
  return kBehaviours;
}

}  // namespace guest
