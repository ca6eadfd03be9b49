// Rings that lie, and memory that changes while the device reads it.

#include <array>

#include "allocator.h"
#include "console.h"
#include "deadline.h"
#include "hostile.h"
#include "random.h"

namespace guest {
namespace {

// Descriptors 3k to 3k + 2: an ordinary read into the hostile memory.
constexpr uint16_t kRequests = 16;

void PutRead(VirtioBlk& disk, uint16_t k, uint32_t length) {
  const auto first = static_cast<uint16_t>(3 * k);
  const auto put = [&](int i, uint64_t address, uint32_t size, uint16_t flags) {
    volatile Descriptor& to = disk.queue().descriptor(static_cast<uint16_t>(first + i));
    to.address = address;
    to.length = size;
    to.flags = flags;
    to.next = static_cast<uint16_t>(first + i + 1);
  };
  const HostileMemory& memory = Memory();
  *memory.header = {.type = kBlkRead, .reserved = 0, .sector = 0};
  memory.status[k] = kBlkNone;
  put(0, reinterpret_cast<uint64_t>(memory.header), 16, kDescriptorNext);
  put(1, memory.data, length, kDescriptorNext | kDescriptorWrite);
  put(2, reinterpret_cast<uint64_t>(&memory.status[k]), 1, kDescriptorWrite);
}

// Says what became of it, and that is all: there is no right answer but to live.
bool SayOutcome(HostileTarget& target, uint16_t used_index) {
  const bool other_served = target.ServeOther();
  const Outcome outcome = AwaitOutcome(target.disk(), used_index);
  Say("hostile ", target.name(), " outcome=", Name(outcome));
  return other_served;
}

// ---- Heads and indices ----

bool HeadTwice(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  PutRead(disk, 0, HostileMemory::kDataSize);
  const uint16_t used = disk.queue().used_index();
  disk.queue().AddHead(0);
  disk.queue().AddHead(0);
  disk.queue().Publish();
  disk.pci().Kick(0);
  return SayOutcome(target, used);
}

// The second time while the device has the first, or has just finished it.
bool HeadAgainAndAgain(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  PutRead(disk, 0, HostileMemory::kDataSize);
  const uint16_t used = disk.queue().used_index();
  for (int i = 0; i < 100; ++i) Offer(disk, 0);
  return SayOutcome(target, used);
}

bool HeadBeyondQueue(HostileTarget& target) {
  const uint16_t used = target.disk().queue().used_index();
  Offer(target.disk(), target.disk().queue().size());
  return SayOutcome(target, used);
}

bool HeadAtTheTop(HostileTarget& target) {
  const uint16_t used = target.disk().queue().used_index();
  Offer(target.disk(), 0xffff);
  return SayOutcome(target, used);
}

// With reads in flight, heads that are answered at once come again and again in one go, until a
// chain breaks the ring: a device has shown none of that when the reads are done, and whatever it
// keeps of each has to have room.
bool HeadsOfABrokenRing(HostileTarget& target) {
  constexpr uint16_t kFirstShared = 3 * kRequests;
  constexpr uint16_t kShared = 32;
  VirtioBlk& disk = target.disk();
  Virtqueue& queue = disk.queue();
  const HostileMemory& memory = Memory();
  const uint16_t used = queue.used_index();
  for (uint16_t k = 0; k < kRequests; ++k) {
    PutRead(disk, k, HostileMemory::kDataSize);
    queue.AddHead(static_cast<uint16_t>(3 * k));
  }
  // Their header is another: the device may look at the reads' late.
  BlkRequest::Header& header = memory.header[1];
  header = {.type = kBlkGetId, .reserved = 0, .sector = 0};
  memory.table[0] = {reinterpret_cast<uint64_t>(&header), 16, kDescriptorNext, 1};
  memory.table[1] = {reinterpret_cast<uint64_t>(&memory.status[kRequests]), 1, kDescriptorWrite, 0};
  for (uint16_t i = 0; i < kShared; ++i) {
    queue.WriteDescriptor(static_cast<uint16_t>(kFirstShared + i),
                          {reinterpret_cast<uint64_t>(memory.table), 32, kDescriptorIndirect, 0});
  }
  const auto broken = static_cast<uint16_t>(kFirstShared + kShared);
  queue.WriteDescriptor(broken, {0, 0, 0, 0});
  queue.Publish();
  disk.pci().Kick(0);
  const Deadline taken(20'000);
  while (!taken.Passed()) Pause();
  for (uint16_t i = 0; i + 1 < queue.size(); ++i) {
    queue.AddHead(static_cast<uint16_t>(kFirstShared + i % kShared));
  }
  queue.AddHead(broken);
  queue.Publish();
  disk.pci().Kick(0);
  return SayOutcome(target, used);
}

template <uint16_t kJump>
bool IndexJumps(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  PutRead(disk, 0, 4096);
  const uint16_t used = disk.queue().used_index();
  const uint16_t jump = kJump == 0 ? static_cast<uint16_t>(disk.queue().size() + 1) : kJump;
  disk.queue().next_available() += jump;
  disk.queue().Publish();
  disk.pci().Kick(0);
  return SayOutcome(target, used);
}

// ---- Changes while the device reads ----

// Addresses and lengths that lead to no harm to this guest if a device is so good as to follow
// them.
uint64_t AnyAddress(Random& random) {
  const HostileMemory& memory = Memory();
  const std::array<uint64_t, 6> addresses = {
      memory.data,
      reinterpret_cast<uint64_t>(memory.header),
      reinterpret_cast<uint64_t>(memory.table),
      kHole,
      kBeyondMemory,
      kWrapping,
  };
  return addresses[random.Below(addresses.size())];
}

uint32_t AnyLength(Random& random) {
  constexpr std::array<uint32_t, 8> kLengths = {0, 1, 16, 48, 512, 4096, 0x80000000, 0xffffffff};
  return kLengths[random.Below(kLengths.size())];
}

void ChangeSomething(VirtioBlk& disk, Random& random) {
  const auto i = static_cast<uint16_t>(random.Below(3 * kRequests));
  volatile Descriptor& descriptor = disk.queue().descriptor(i);
  switch (random.Below(8)) {
    case 0:
      descriptor.address = AnyAddress(random);
      break;
    case 1:
      descriptor.length = AnyLength(random);
      break;
    case 2:
      descriptor.flags = static_cast<uint16_t>(random.Below(8));
      break;
    case 3:
      descriptor.next = static_cast<uint16_t>(random.Below(4 * kRequests));
      break;
    case 4: {  // of an indirect table, for whoever has come to one
      Descriptor& entry = Memory().table[random.Below(4)];
      entry = {AnyAddress(random), AnyLength(random), static_cast<uint16_t>(random.Below(8)),
               static_cast<uint16_t>(random.Below(5))};
      break;
    }
    case 5:
      Memory().header->type = random.Below(2) == 0 ? kBlkRead : kBlkGetId;
      break;
    case 6:
      Memory().header->sector = random.Next() >> random.Below(64);
      break;
    default:  // as it should be
      PutRead(disk, static_cast<uint16_t>(random.Below(kRequests)), 4096);
      break;
  }
}

// Rounds of requests whose descriptors change from their publication until the device gives up or
// has answered them all. Written from the CPU beside the one that reads; every other round kicks
// late, for a device that polls.
bool ChangedWhileRead(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  Random random(11);
  bool ok = true;
  uint64_t broken = 0;
  for (int round = 0; ok && round < 40; ++round) {
    if (!disk.Start({.event_idx = round % 2 == 0})) return false;
    for (uint16_t k = 0; k < kRequests; ++k) {
      PutRead(disk, k, 4096);
      disk.queue().AddHead(static_cast<uint16_t>(3 * k));
      disk.queue().Publish();
      if (round % 4 < 2) disk.pci().Kick(0);
      for (uint64_t i = random.Below(100); i > 0; --i) ChangeSomething(disk, random);
    }
    disk.pci().Kick(0);
    const Deadline deadline(kAMoment / 8);
    while (!deadline.Passed() && !disk.pci().NeedsReset() &&
           disk.queue().used_index() != kRequests) {
      for (int i = 0; i < 1000; ++i) ChangeSomething(disk, random);
    }
    broken += disk.pci().NeedsReset();
    if (round % 8 == 0) ok = target.ServeOther();
  }
  Say("hostile ", target.name(), " needs-reset=", Decimal{broken});
  return ok;
}

// The available ring's entries and its index, while requests are in flight.
bool AvailableRingChanges(HostileTarget& target) {
  VirtioBlk& disk = target.disk();
  Random random(12);
  for (int round = 0; round < 40; ++round) {
    if (!disk.Start({})) return false;
    for (uint16_t k = 0; k < kRequests; ++k) PutRead(disk, k, 4096);
    const Deadline deadline(kAMoment / 8);
    for (int i = 0; !deadline.Passed(); ++i) {
      disk.queue().AddHead(static_cast<uint16_t>(random.Below(3 * kRequests)));
      if (random.Below(8) == 0)
        disk.queue().next_available() = static_cast<uint16_t>(random.Next());
      disk.queue().Publish();
      if (i % 64 == 0) disk.pci().Kick(0);
    }
  }
  return target.ServeOther();
}

constexpr auto kBehaviours = std::to_array<Behaviour>({
    {"head-twice", HeadTwice},
    {"head-again", HeadAgainAndAgain},
    {"heads-of-a-broken-ring", HeadsOfABrokenRing},
    {"head-beyond-queue", HeadBeyondQueue},
    {"head-at-the-top", HeadAtTheTop},
    {"index-beyond-queue", IndexJumps<0>},
    {"index-half-way", IndexJumps<0x8000>},
    {"index-back", IndexJumps<0xffff>},
    {"changed-while-read", ChangedWhileRead},
    {"available-ring-changes", AvailableRingChanges},
});

}  // namespace

std::span<const Behaviour> RingBehaviours() {
  return kBehaviours;
}

}  // namespace guest
