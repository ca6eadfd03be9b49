// One chain a behaviour, in the transmit, receive or control queue: what VIRTIO 1.2 sections 2.7.5
// and 5.1.6 forbid, and the odd but legal; then headers that lie.

#include <algorithm>
#include <array>
#include <cstring>

#include "console.h"
#include "deadline.h"
#include "hostile_net.h"

namespace guest {
namespace {

constexpr uint16_t kNext = kDescriptorNext;
constexpr uint16_t kWrite = kDescriptorWrite;
constexpr uint16_t kIndirect = kDescriptorIndirect;

enum class Place : uint8_t { kMemory, kHole, kBeyond, kWrapping };

struct Part {
  Place place;
  uint32_t length;
  uint16_t flags;
  uint16_t next;
};

}  // namespace

// Descriptors from 0 on; head 0 is offered.
struct HostileChain {
  std::string_view name;
  uint16_t queue;
  size_t count;
  std::array<Part, 3> parts;
  // The driver's memory must not change: no part of it is the device's to write to.
  bool kept = false;
};

namespace {

constexpr uint32_t kHuge = 0xffffffff;

constexpr auto kChains = std::to_array<HostileChain>({
    {"out-empty", kTransmitQueue, 1, {Part{Place::kMemory, 0, 0, 0}}},
    {"out-header-cut", kTransmitQueue, 1, {Part{Place::kMemory, 11, 0, 0}}},
    {"out-header-alone", kTransmitQueue, 1, {Part{Place::kMemory, 12, 0, 0}}},
    {"out-one-byte", kTransmitQueue, 1, {Part{Place::kMemory, 13, 0, 0}}},
    {"out-headers-piecemeal",
     kTransmitQueue,
     3,
     {Part{Place::kMemory, 1, kNext, 1},
      {Place::kMemory, 11, kNext, 2},
      {Place::kMemory, 60, 0, 0}}},
    {"out-64k", kTransmitQueue, 1, {Part{Place::kMemory, 65536, 0, 0}}},
    {"out-beyond-64k",
     kTransmitQueue,
     2,
     {Part{Place::kMemory, 65536, kNext, 1}, {Place::kMemory, 65536, 0, 0}}},
    {"out-huge", kTransmitQueue, 1, {Part{Place::kMemory, kHuge, 0, 0}}},
    {"out-hole", kTransmitQueue, 1, {Part{Place::kHole, 100, 0, 0}}},
    {"out-beyond-memory", kTransmitQueue, 1, {Part{Place::kBeyond, 100, 0, 0}}},
    {"out-wrapping", kTransmitQueue, 1, {Part{Place::kWrapping, 1000, 0, 0}}},
    {"out-half-in-hole",
     kTransmitQueue,
     2,
     {Part{Place::kMemory, 12, kNext, 1}, {Place::kHole, 100, 0, 0}}},
    {"out-to-write", kTransmitQueue, 1, {Part{Place::kMemory, 100, kWrite, 0}}},
    {"out-loop", kTransmitQueue, 1, {Part{Place::kMemory, 12, kNext, 0}}},
    {"out-loop-of-two",
     kTransmitQueue,
     2,
     {Part{Place::kMemory, 12, kNext, 1}, {Place::kMemory, 1, kNext, 0}}},
    {"out-next-beyond", kTransmitQueue, 1, {Part{Place::kMemory, 12, kNext, 0xffff}}},
    {"out-indirect-unasked", kTransmitQueue, 1, {Part{Place::kMemory, 64, kIndirect, 0}}},
    {"in-empty", kReceiveQueue, 1, {Part{Place::kMemory, 0, kWrite, 0}}},
    {"in-header-cut", kReceiveQueue, 1, {Part{Place::kMemory, 11, kWrite, 0}}},
    {"in-header-alone", kReceiveQueue, 1, {Part{Place::kMemory, 12, kWrite, 0}}},
    {"in-one-byte", kReceiveQueue, 1, {Part{Place::kMemory, 13, kWrite, 0}}},
    {"in-bytes",
     kReceiveQueue,
     3,
     {Part{Place::kMemory, 1, kNext | kWrite, 1},
      {Place::kMemory, 12, kNext | kWrite, 2},
      {Place::kMemory, 20, kWrite, 0}}},
    {"in-to-read", kReceiveQueue, 1, {Part{Place::kMemory, 2048, 0, 0}}, /*kept=*/true},
    {"in-to-read-behind",
     kReceiveQueue,
     2,
     {Part{Place::kHole, 12, kNext | kWrite, 1}, {Place::kMemory, 2048, 0, 0}},
     /*kept=*/true},
    {"in-hole", kReceiveQueue, 1, {Part{Place::kHole, 2048, kWrite, 0}}},
    {"in-beyond-memory", kReceiveQueue, 1, {Part{Place::kBeyond, 2048, kWrite, 0}}},
    {"in-wrapping", kReceiveQueue, 1, {Part{Place::kWrapping, 2048, kWrite, 0}}},
    {"in-huge", kReceiveQueue, 1, {Part{Place::kMemory, kHuge, kWrite, 0}}},
    {"in-loop", kReceiveQueue, 1, {Part{Place::kMemory, 2048, kNext | kWrite, 0}}},
    {"in-next-beyond", kReceiveQueue, 1, {Part{Place::kMemory, 12, kNext | kWrite, 0x1000}}},
    {"command-empty", kControlQueue, 1, {Part{Place::kMemory, 0, 0, 0}}},
    {"command-without-answer", kControlQueue, 1, {Part{Place::kMemory, 3, 0, 0}}},
    {"command-answer-alone", kControlQueue, 1, {Part{Place::kMemory, 1, kWrite, 0}}},
    {"command-answer-empty",
     kControlQueue,
     2,
     {Part{Place::kMemory, 3, kNext, 1}, {Place::kMemory, 0, kWrite, 0}}},
    {"command-answer-in-hole",
     kControlQueue,
     2,
     {Part{Place::kMemory, 3, kNext, 1}, {Place::kHole, 1, kWrite, 0}}},
    {"command-in-hole",
     kControlQueue,
     2,
     {Part{Place::kHole, 3, kNext, 1}, {Place::kMemory, 1, kWrite, 0}}},
    {"command-huge",
     kControlQueue,
     2,
     {Part{Place::kMemory, kHuge, kNext, 1}, {Place::kMemory, 1, kWrite, 0}}},
    {"command-of-64k",
     kControlQueue,
     2,
     {Part{Place::kMemory, 65535, kNext, 1}, {Place::kMemory, 1, kWrite, 0}}},
    {"command-loop",
     kControlQueue,
     2,
     {Part{Place::kMemory, 3, kNext, 1}, {Place::kMemory, 1, kNext | kWrite, 0}}},
});

uint64_t AddressOf(Place place) {
  switch (place) {
    case Place::kHole:
      return kHole;
    case Place::kBeyond:
      return kBeyondMemory;
    case Place::kWrapping:
      return kWrapping;
    case Place::kMemory:
      break;
  }
  return HostileNetMemory();
}

bool IsKept() {
  const auto* const bytes = reinterpret_cast<const volatile uint8_t*>(HostileNetMemory());
  for (uint64_t i = 0; i < 2048; ++i) {
    if (bytes[i] != 0xa5) return Expect("chain: memory that was not to be written", 0xa5, bytes[i]);
  }
  return true;
}

bool RunChain(HostileNet& target, const HostileChain* chain) {
  if (chain->queue == kControlQueue && !target.net().Offers(kNetFeatureControl)) return true;
  Virtqueue& rings = chain->queue == kReceiveQueue    ? target.receive()
                     : chain->queue == kTransmitQueue ? target.transmit()
                                                      : target.net().control();
  // Headers of zeroes are good ones, and so is a command of zeroes: promiscuous mode off.
  std::memset(reinterpret_cast<void*>(HostileNetMemory()), chain->kept ? 0xa5 : 0, 65536);
  for (uint16_t i = 0; i < chain->count; ++i) {
    const Part& part = chain->parts[i];
    rings.WriteDescriptor(i, {AddressOf(part.place), part.length, part.flags, part.next});
  }
  const uint16_t used = rings.used_index();
  target.Offer(chain->queue, 0);
  if (chain->queue == kReceiveQueue) target.Stimulate();
  // A device may leave what it cannot use where it is, and need say nothing.
  const auto done = [&] {
    return rings.used_index() != used || target.net().transport().NeedsReset();
  };
  SpinUntil(done, kAMoment);
  const Outcome outcome =
      done() ? AwaitOutcome(target.net().transport(), rings, used) : Outcome::kNothing;
  return target.SayOutcome(outcome) & (!chain->kept || IsKept());
}

// Every field of the header wrong, each alone and all together, on frames that are good but for
// that.
bool HeadersLie(HostileNet& target, const HostileChain*) {
  constexpr uint16_t kLies = 16;
  NetPair& pair = target.net().pair();
  const std::array<NetHeader, kLies> lies = {{
      {.flags = kNetNeedsChecksum, .checksum_start = 0xffff, .checksum_offset = 0xffff},
      {.flags = kNetNeedsChecksum, .checksum_start = 59, .checksum_offset = 0},
      {.flags = kNetNeedsChecksum, .checksum_start = 0, .checksum_offset = 0},
      {.flags = kNetNeedsChecksum, .checksum_start = 14, .checksum_offset = 0xfff0},
      {.flags = 0xff},
      {.segmentation = 1},
      {.segmentation = 1, .header_length = 0xffff, .segment_size = 0},
      {.segmentation = 1, .header_length = 54, .segment_size = 0xffff},
      {.segmentation = 3, .segment_size = 1},
      {.segmentation = 4, .segment_size = 8},
      {.segmentation = 5, .segment_size = 1},
      {.segmentation = 0x7f, .segment_size = 100},
      {.segmentation = 0x80, .segment_size = 100},
      {.flags = kNetNeedsChecksum,
       .segmentation = 0x81,
       .header_length = 10,
       .segment_size = 1,
       .checksum_start = 34,
       .checksum_offset = 16},
      {.header_length = 0xffff},
      {.flags = 0xff,
       .segmentation = 0xff,
       .header_length = 0xffff,
       .segment_size = 0xffff,
       .checksum_start = 0xffff,
       .checksum_offset = 0xffff,
       .buffers = 0xffff},
  }};
  const uint16_t used = target.transmit().used_index();
  for (uint16_t i = 0; i < kLies; ++i) {
    NetPeer peer = target.peer();
    peer.own_mac = target.net().mac();
    const uint64_t length = WriteArpRequest(pair.frame(i), peer);
    pair.header(i) = lies[i];
    pair.Transmit(i, length);
    pair.Flush();
  }
  const auto all_taken = [&] {
    return static_cast<uint16_t>(target.transmit().used_index() - used) == kLies;
  };
  SpinUntil([&] { return all_taken() || target.net().transport().NeedsReset(); });
  for (uint16_t i = 0; i < kLies; ++i) pair.header(i) = {};
  // They are the host's to refuse, and no reason to give up.
  return Expect("headers that lie: frames taken", kLies,
                static_cast<uint16_t>(target.transmit().used_index() - used)) &
         target.SayOutcome(Outcome::kAnswered);
}

constexpr size_t kBehaviourCount = kChains.size() + 1;

constexpr std::array<NetBehaviour, kBehaviourCount> AllBehaviours() {
  std::array<NetBehaviour, kBehaviourCount> behaviours = {};
  for (size_t i = 0; i < kChains.size(); ++i) {
    behaviours[i] = {kChains[i].name, RunChain, &kChains[i]};
  }
  behaviours[kChains.size()] = {"headers-lie", HeadersLie, nullptr};
  return behaviours;
}
constexpr auto kBehaviours = AllBehaviours();

}  // namespace

std::span<const NetBehaviour> NetFrameBehaviours() {
  return kBehaviours;
}

}  // namespace guest
