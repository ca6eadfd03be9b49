// A network's rings that lie, memory that changes while the device reads it, commands of all kinds,
// and frames without end.

#include <array>

#include "console.h"
#include "deadline.h"
#include "hostile_net.h"
#include "random.h"

namespace guest {
namespace {

constexpr uint16_t kFrames = 16;
constexpr uint32_t kFrameBytes = 76;

// Descriptor k of a queue: an ordinary buffer in the hostile memory.
void PutBuffer(Virtqueue& rings, uint16_t queue, uint16_t k) {
  const uint64_t address = HostileNetMemory() + uint64_t{2048} * k;
  if (queue == kReceiveQueue) {
    rings.WriteDescriptor(k, {address, 2048, kDescriptorWrite, 0});
  } else {
    rings.WriteDescriptor(k, {address, kFrameBytes, 0, 0});
  }
}

Virtqueue& RingsOf(HostileNet& target, uint16_t queue) {
  return queue == kReceiveQueue ? target.receive() : target.transmit();
}

Outcome AwaitMoment(HostileNet& target, const Virtqueue& rings, uint16_t used) {
  SpinUntil([&] { return rings.used_index() != used || target.net().transport().NeedsReset(); },
            kAMoment);
  if (target.net().transport().NeedsReset()) return Outcome::kNeedsReset;
  return rings.used_index() != used ? Outcome::kAnswered : Outcome::kNothing;
}

template <uint16_t kQueue>
bool HeadTwice(HostileNet& target, const HostileChain*) {
  Virtqueue& rings = RingsOf(target, kQueue);
  PutBuffer(rings, kQueue, 0);
  const uint16_t used = rings.used_index();
  rings.AddHead(0);
  target.Offer(kQueue, 0);
  if (kQueue == kReceiveQueue) target.Stimulate();
  return target.SayOutcome(AwaitMoment(target, rings, used));
}

template <uint16_t kQueue>
bool HeadBeyond(HostileNet& target, const HostileChain*) {
  Virtqueue& rings = RingsOf(target, kQueue);
  const uint16_t used = rings.used_index();
  target.Offer(kQueue, rings.size());
  if (kQueue == kReceiveQueue) target.Stimulate();
  return target.SayOutcome(AwaitMoment(target, rings, used));
}

template <uint16_t kQueue, uint16_t kJump>
bool IndexJumps(HostileNet& target, const HostileChain*) {
  Virtqueue& rings = RingsOf(target, kQueue);
  PutBuffer(rings, kQueue, 0);
  const uint16_t used = rings.used_index();
  rings.next_available() += kJump == 0 ? static_cast<uint16_t>(rings.size() + 1) : kJump;
  rings.Publish();
  target.net().transport().Notify(kQueue).Kick();
  if (kQueue == kReceiveQueue) target.Stimulate();
  return target.SayOutcome(AwaitMoment(target, rings, used));
}

// Addresses and lengths that lead to no harm to this guest if a device is so good as to follow
// them.
void ChangeSomething(Virtqueue& rings, uint16_t queue, Random& random) {
  const auto k = static_cast<uint16_t>(random.Below(kFrames));
  volatile Descriptor& descriptor = rings.descriptor(k);
  constexpr std::array<uint64_t, 3> kAddresses = {kHole, kBeyondMemory, kWrapping};
  constexpr std::array<uint32_t, 6> kLengths = {0, 1, 12, 13, 2048, 0xffffffff};
  switch (random.Below(6)) {
    case 0:
      descriptor.address = kAddresses[random.Below(kAddresses.size())];
      break;
    case 1:
      descriptor.length = kLengths[random.Below(kLengths.size())];
      break;
    case 2:
      descriptor.flags = static_cast<uint16_t>(random.Below(8));
      break;
    case 3:
      descriptor.next = static_cast<uint16_t>(random.Below(2 * kFrames));
      break;
    case 4:  // of a header, while it is read
      Store<uint64_t>(HostileNetMemory() + uint64_t{2048} * k, random.Next());
      break;
    default:
      PutBuffer(rings, queue, k);
      break;
  }
}

// Buffers whose descriptors change from their publication on, in rounds: a queue that breaks ends
// one.
template <uint16_t kQueue>
bool ChangedWhileRead(HostileNet& target, const HostileChain*) {
  Random random(21 + kQueue);
  uint64_t broken = 0;
  for (int round = 0; round < 30; ++round) {
    if (!target.net().Start({.event_idx = round % 2 == 0, .buffers = false})) return false;
    Virtqueue& rings = RingsOf(target, kQueue);
    for (uint16_t k = 0; k < kFrames; ++k) {
      PutBuffer(rings, kQueue, k);
      target.Offer(kQueue, k);
      for (uint64_t i = random.Below(50); i > 0; --i) ChangeSomething(rings, kQueue, random);
    }
    if (kQueue == kReceiveQueue) target.Stimulate();
    const Deadline deadline(kAMoment / 8);
    while (!deadline.Passed() && !target.net().transport().NeedsReset()) {
      for (int i = 0; i < 1000; ++i) ChangeSomething(rings, kQueue, random);
    }
    broken += target.net().transport().NeedsReset();
    if (round % 8 == 0 && !target.ServeOther()) return false;
  }
  Say("hostile ", target.name(), " needs-reset=", Decimal{broken});
  return true;
}

// No buffers, though frames keep coming; then buffers without end, though none come.
bool NeverTakesFrames(HostileNet& target, const HostileChain*) {
  for (int i = 0; i < 64; ++i) target.Stimulate();
  const Deadline deadline(kAMoment);
  while (!deadline.Passed()) Pause();
  if (!Expect("no buffers: it gives up", 0, target.net().transport().NeedsReset())) return false;
  return target.SayOutcome(Outcome::kNothing);
}

// Every class and command there may be, with data of all lengths: an answer to each, and most of
// them no.
bool AnyCommand(HostileNet& target, const HostileChain*) {
  if (!target.net().Offers(kNetFeatureControl)) return true;
  Random random(23);
  uint64_t accepted = 0;
  for (uint16_t i = 0; i < 600; ++i) {
    const auto kind = static_cast<uint8_t>(i < 100 ? i / 10 : random.Next());
    const auto command = static_cast<uint8_t>(i < 100 ? i % 10 : random.Next());
    const auto byte = [&] { return static_cast<uint8_t>(random.Next()); };
    NetAnswer answer = NetAnswer::kNone;
    switch (random.Below(4)) {
      case 0:
        answer = target.net().Command({kind, command}, {});
        break;
      case 1:
        answer = target.net().Command({kind, command}, {byte()});
        break;
      case 2:
        answer = target.net().Command({kind, command}, {byte(), byte()});
        break;
      default:  // a table that says it has more entries than there are
        answer = target.net().Command({kind, command}, {byte(), byte(), byte(), 0xff, byte(),
                                                        byte(), byte(), byte(), byte(), byte()});
        break;
    }
    if (!Expect("any command: answered", 1, answer != NetAnswer::kNone)) return false;
    accepted += answer == NetAnswer::kOk;
  }
  Say("hostile ", target.name(), " accepted=", Decimal{accepted});
  return target.ServeOther();
}

// More pairs than there are, and none.
bool ImpossiblePairs(HostileNet& target, const HostileChain*) {
  if (!target.net().Offers(kNetFeatureControl)) return true;
  for (const uint16_t pairs : {uint16_t{0}, uint16_t{9}, uint16_t{0x8000}, uint16_t{0xffff}}) {
    const NetAnswer answer = target.net().Command(
        kNetSetPairs, {static_cast<uint8_t>(pairs), static_cast<uint8_t>(pairs >> 8)});
    if (!Expect("impossible pairs: refused", static_cast<uint8_t>(NetAnswer::kError),
                static_cast<uint8_t>(answer))) {
      return false;
    }
  }
  return target.ServeOther();
}

constexpr auto kBehaviours = std::to_array<NetBehaviour>({
    {"out-head-twice", HeadTwice<kTransmitQueue>},
    {"in-head-twice", HeadTwice<kReceiveQueue>},
    {"out-head-beyond-queue", HeadBeyond<kTransmitQueue>},
    {"in-head-beyond-queue", HeadBeyond<kReceiveQueue>},
    {"out-index-beyond-queue", IndexJumps<kTransmitQueue, 0>},
    {"in-index-beyond-queue", IndexJumps<kReceiveQueue, 0>},
    {"out-index-back", IndexJumps<kTransmitQueue, 0xffff>},
    {"in-index-back", IndexJumps<kReceiveQueue, 0xffff>},
    {"out-changed-while-read", ChangedWhileRead<kTransmitQueue>},
    {"in-changed-while-read", ChangedWhileRead<kReceiveQueue>},
    {"in-never-taken", NeverTakesFrames},
    {"any-command", AnyCommand},
    {"impossible-pairs", ImpossiblePairs},
});

}  // namespace

std::span<const NetBehaviour> NetRingBehaviours() {
  return kBehaviours;
}

}  // namespace guest
