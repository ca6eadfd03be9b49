// One chain a behaviour, made by hand in the descriptor table: what VIRTIO 1.2 sections 2.7.5 and
// 5.2.6 forbid must not be answered with success, and the odd but legal must work.

#include <algorithm>
#include <array>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "hostile.h"

namespace guest {
namespace {

constexpr uint16_t kNext = kDescriptorNext;
constexpr uint16_t kWrite = kDescriptorWrite;
constexpr uint16_t kIndirect = kDescriptorIndirect;

constexpr uint32_t kDataLength = 4096;

// Puts descriptors into the table of queue 0 or into the indirect table.
class Chain {
 public:
  explicit Chain(HostileTarget& target) : target_(target) {}

  void Put(uint16_t i, uint64_t address, uint32_t length, uint16_t flags, uint16_t next = 0) {
    volatile Descriptor& to = disk().queue().descriptor(i);
    to.address = address;
    to.length = length;
    to.flags = flags;
    to.next = next;
  }
  void PutIndirect(uint16_t i, uint64_t address, uint32_t length, uint16_t flags,
                   uint16_t next = 0) {
    Memory().table[i] = {address, length, flags, next};
  }
  // The three parts of an ordinary read of the first page, at 0, 1, 2.
  void PutHeader() { Put(0, header(), 16, kNext, 1); }
  void PutData() { Put(1, Memory().data, kDataLength, kNext | kWrite, 2); }
  void PutStatus() { Put(2, status(), 1, kWrite); }
  void PutRead() {
    PutHeader();
    PutData();
    PutStatus();
  }
  void PutReadIndirect() {
    PutIndirect(0, header(), 16, kNext, 1);
    PutIndirect(1, Memory().data, kDataLength, kNext | kWrite, 2);
    PutIndirect(2, status(), 1, kWrite);
    Put(0, table(), 3 * 16, kIndirect);
  }

  static uint64_t header() { return reinterpret_cast<uint64_t>(Memory().header); }
  static uint64_t status() { return reinterpret_cast<uint64_t>(Memory().status); }
  static uint64_t table() { return reinterpret_cast<uint64_t>(Memory().table); }
  HostileTarget& target() { return target_; }
  VirtioBlk& disk() { return target_.disk(); }

  // Where the device is to put the status, if not at status().
  void ExpectStatusAt(uint64_t address) { status_at_ = address; }
  uint8_t result() const { return Load<uint8_t>(status_at_); }

 private:
  HostileTarget& target_;
  uint64_t status_at_ = status();
};

struct Answer {
  Outcome outcome;
  uint8_t status;
};

// Offers descriptor 0 of what `build` makes, an ordinary read of the first page but for what it
// changes.
Answer Try(HostileTarget& target, void (*build)(Chain&)) {
  const HostileMemory& memory = Memory();
  *memory.header = {.type = kBlkRead, .reserved = 0, .sector = 0};
  *memory.status = kBlkNone;
  std::memset(reinterpret_cast<void*>(memory.data), 0xa5, kDataLength);
  std::memset(memory.table, 0, kPageSize);
  Chain chain(target);
  chain.PutRead();
  build(chain);
  const uint16_t used = target.disk().queue().used_index();
  Offer(target.disk(), 0);
  target.ServeOther();
  const Outcome outcome = AwaitOutcome(target.disk(), used);
  return {outcome, chain.result()};
}

// There is no right answer, or a device may take what a driver must not give.
template <void (*kBuild)(Chain&)>
bool Tolerated(HostileTarget& target) {
  const Answer answer = Try(target, kBuild);
  Say("hostile ", target.name(), " outcome=", Name(answer.outcome), " status=", Hex{answer.status});
  return true;
}

template <void (*kBuild)(Chain&)>
bool Refused(HostileTarget& target) {
  const Answer answer = Try(target, kBuild);
  Say("hostile ", target.name(), " outcome=", Name(answer.outcome), " status=", Hex{answer.status});
  return Expect("bad chain: answered with success", 0, answer.status == kBlkOk);
}

template <void (*kBuild)(Chain&)>
bool Served(HostileTarget& target) {
  const Answer answer = Try(target, kBuild);
  return Expect("legal chain: answered", 1, answer.outcome == Outcome::kAnswered) &
         Expect("legal chain: status", kBlkOk, answer.status) &
         Expect("legal chain: data", 1, target.IsFirstPage(Memory().data));
}

// ---- Loops ----

void LoopOfOne(Chain& chain) {
  chain.Put(1, Memory().data, kDataLength, kNext | kWrite, 1);
}
void LoopOfThree(Chain& chain) {
  chain.Put(2, Memory().data, 512, kNext | kWrite, 0);
}
void LoopInTable(Chain& chain) {
  chain.PutReadIndirect();
  chain.PutIndirect(2, Memory().data, 512, kNext | kWrite, 1);
}

// ---- Addresses and lengths ----

void HugeLength(Chain& chain) {
  chain.Put(1, Memory().data, 0xffffffff, kNext | kWrite, 2);
}
// Adds up to 512 in 32 bits.
void HugeSum(Chain& chain) {
  chain.Put(1, Memory().data, 0xfffffe00, kNext | kWrite, 3);
  chain.Put(3, Memory().data, 0x400, kNext | kWrite, 2);
}
void BeyondMemory(Chain& chain) {
  chain.Put(1, kBeyondMemory, kDataLength, kNext | kWrite, 2);
}
void InHole(Chain& chain) {
  chain.Put(1, kHole, kDataLength, kNext | kWrite, 2);
}
void Wraps(Chain& chain) {
  chain.Put(1, kWrapping, 0x200, kNext | kWrite, 2);
}
void AcrossEndOfMemory(Chain& chain) {
  chain.Put(1, AllocatorEnd() - 512, kDataLength, kNext | kWrite, 2);
}
void InDoorbells(Chain& chain) {
  chain.Put(1, chain.disk().pci().notify().address, 512, kNext | kWrite, 2);
}
void HeaderInHole(Chain& chain) {
  chain.Put(0, kHole, 16, kNext, 1);
}
void StatusInHole(Chain& chain) {
  chain.Put(2, kHole, 1, kWrite);
}
void StatusWraps(Chain& chain) {
  chain.Put(2, ~uint64_t{0}, 2, kWrite);
}

// ---- Shapes ----

void StatusNotWritable(Chain& chain) {
  chain.Put(2, Chain::status(), 1, 0);
}
void NoStatus(Chain& chain) {
  chain.Put(0, Chain::header(), 16, 0);
}
void OnlyStatus(Chain& chain) {
  chain.Put(0, Chain::status(), 1, kWrite);
}
void ShortHeader(Chain& chain) {
  chain.Put(0, Chain::header(), 8, kNext, 2);
}
void WritableBeforeReadable(Chain& chain) {
  chain.Put(0, Memory().data, kDataLength, kNext | kWrite, 1);
  chain.Put(1, Chain::header(), 16, kNext, 2);
}
void Empty(Chain& chain) {
  chain.Put(0, 0, 0, 0);
}
void NextBeyondTable(Chain& chain) {
  chain.Put(1, Memory().data, kDataLength, kNext | kWrite, 0xffff);
}
void LoopOfAll(Chain& chain) {
  const uint16_t size = chain.disk().queue().size();
  for (uint16_t i = 1; i < size; ++i) {
    chain.Put(i, Memory().data, 512, kNext | kWrite, static_cast<uint16_t>((i + 1) % size));
  }
}

// ---- Indirect tables, section 2.7.5.3 ----

void IndirectInIndirect(Chain& chain) {
  chain.PutReadIndirect();
  chain.PutIndirect(1, Chain::table(), 3 * 16, kIndirect | kNext, 2);
}
void IndirectAlone(Chain& chain) {
  chain.PutReadIndirect();
  chain.PutIndirect(0, Chain::table(), 3 * 16, kIndirect);
}
void IndirectWithNext(Chain& chain) {
  chain.PutReadIndirect();
  chain.Put(0, Chain::table(), 3 * 16, kIndirect | kNext, 2);
}
void IndirectOfOddLength(Chain& chain) {
  chain.PutReadIndirect();
  chain.Put(0, Chain::table(), 3 * 16 - 1, kIndirect);
}
void IndirectEmpty(Chain& chain) {
  chain.PutReadIndirect();
  chain.Put(0, Chain::table(), 0, kIndirect);
}
void IndirectHuge(Chain& chain) {
  chain.PutReadIndirect();
  chain.Put(0, Chain::table(), 0xfffffff0, kIndirect);
}
void IndirectInHole(Chain& chain) {
  chain.Put(0, kHole, 3 * 16, kIndirect);
}
void IndirectWraps(Chain& chain) {
  chain.Put(0, ~uint64_t{0} - 15, 3 * 16, kIndirect);
}
void IndirectNextBeyondTable(Chain& chain) {
  chain.PutReadIndirect();
  chain.PutIndirect(1, Memory().data, kDataLength, kNext | kWrite, 3);
}

// The queue's own descriptors as a table, which begins with the one that refers to it.
void IndirectOwnTable(Chain& chain) {
  chain.Put(0, chain.disk().queue().descriptor_area(), 16u * chain.disk().queue().size(),
            kIndirect);
}
void IndirectOwnTableBehindHeader(Chain& chain) {
  chain.Put(1, chain.disk().queue().descriptor_area(), 2 * 16, kIndirect);
}

void Indirect(Chain& chain) {
  chain.PutReadIndirect();
}
bool IndirectNotNegotiated(HostileTarget& target) {
  return target.disk().Start({.indirect = false}) && Tolerated<Indirect>(target);
}

// ---- Legal: where the parts of a request begin and end is the driver's choice (section 2.7.4.2)
// --

void SplitHeader(Chain& chain) {
  chain.Put(0, Chain::header(), 4, kNext, 3);
  chain.Put(3, Chain::header() + 4, 7, kNext, 4);
  chain.Put(4, Chain::header() + 11, 5, kNext, 1);
}
void SplitData(Chain& chain) {
  chain.Put(1, Memory().data, 1, kNext | kWrite, 3);
  chain.Put(3, Memory().data + 1, 4094, kNext | kWrite, 4);
  chain.Put(4, Memory().data + 4095, 1, kNext | kWrite, 2);
}
void StatusBehindData(Chain& chain) {
  chain.Put(1, Memory().data, kDataLength + 1, kWrite);
  chain.ExpectStatusAt(Memory().data + kDataLength);
}
// A write of what is there already, of the first page; a read where the disk takes no writes.
void DataBehindHeader(Chain& chain) {
  if (chain.disk().read_only()) return;
  Memory().header->type = kBlkWrite;
  const uint64_t both = Memory().data + kDataLength;
  std::memcpy(reinterpret_cast<void*>(both), Memory().header, 16);
  for (const uint64_t copy : {both + 16, Memory().data}) chain.target().CopyFirstPage(copy);
  chain.Put(0, both, 16 + kDataLength, kNext, 2);
}
// As many segments as the device takes.
void LongestChain(Chain& chain) {
  const uint64_t segments =
      std::min<uint64_t>(chain.disk().pci().Config<uint32_t>(blk_config::kSegMax),
                         chain.disk().queue().size() - 2u) /
      8 * 8;
  for (uint64_t i = 1; i <= segments; ++i) {
    const uint64_t offset = std::min<uint64_t>((i - 1) * kSectorSize, kDataLength);
    chain.Put(static_cast<uint16_t>(i), Memory().data + offset, kSectorSize, kNext | kWrite,
              static_cast<uint16_t>(i + 1));
  }
  chain.Put(static_cast<uint16_t>(segments + 1), Chain::status(), 1, kWrite);
}
// Section 2.7.5.3.2: ordinary descriptors may come before the one that refers to a table, whose
// write flag means nothing.
void IndirectAfterHeader(Chain& chain) {
  chain.PutIndirect(0, Memory().data, kDataLength, kNext | kWrite, 1);
  chain.PutIndirect(1, Chain::status(), 1, kWrite);
  chain.Put(1, Chain::table(), 2 * 16, kIndirect | kWrite);
}
void SplitHeaderIndirect(Chain& chain) {
  chain.PutIndirect(0, Chain::header(), 1, kNext, 4);
  chain.PutIndirect(4, Chain::header() + 1, 15, kNext, 1);
  chain.PutIndirect(1, Memory().data, kDataLength, kNext | kWrite, 2);
  chain.PutIndirect(2, Chain::status(), 1, kWrite);
  chain.Put(0, Chain::table(), 5 * 16, kIndirect);
}

constexpr auto kBehaviours = std::to_array<Behaviour>({
    {"loop", Refused<LoopOfOne>},
    {"loop-of-three", Refused<LoopOfThree>},
    {"loop-in-table", Refused<LoopInTable>},
    {"huge-length", Refused<HugeLength>},
    {"huge-sum", Refused<HugeSum>},
    {"beyond-memory", Refused<BeyondMemory>},
    {"hole", Refused<InHole>},
    {"wrap", Refused<Wraps>},
    {"across-end-of-memory", Refused<AcrossEndOfMemory>},
    {"doorbells", Refused<InDoorbells>},
    {"header-in-hole", Refused<HeaderInHole>},
    {"status-in-hole", Refused<StatusInHole>},
    {"status-wraps", Refused<StatusWraps>},
    {"status-not-writable", Refused<StatusNotWritable>},
    {"no-status", Refused<NoStatus>},
    {"only-status", Refused<OnlyStatus>},
    {"short-header", Refused<ShortHeader>},
    {"writable-first", Refused<WritableBeforeReadable>},
    {"empty", Refused<Empty>},
    {"next-beyond-table", Refused<NextBeyondTable>},
    {"loop-of-all", Refused<LoopOfAll>},
    {"indirect-in-indirect", Tolerated<IndirectInIndirect>},
    {"indirect-alone", Refused<IndirectAlone>},
    {"indirect-with-next", Tolerated<IndirectWithNext>},
    {"indirect-odd-length", Refused<IndirectOfOddLength>},
    {"indirect-empty", Refused<IndirectEmpty>},
    {"indirect-huge", Refused<IndirectHuge>},
    {"indirect-in-hole", Refused<IndirectInHole>},
    {"indirect-wraps", Refused<IndirectWraps>},
    {"indirect-next-beyond-table", Refused<IndirectNextBeyondTable>},
    {"indirect-own-table", Refused<IndirectOwnTable>},
    {"indirect-own-table-behind-header", Refused<IndirectOwnTableBehindHeader>},
    {"indirect-not-negotiated", IndirectNotNegotiated},
    {"indirect", Served<Indirect>},
    {"split-header", Served<SplitHeader>},
    {"split-data", Served<SplitData>},
    {"status-behind-data", Served<StatusBehindData>},
    {"data-behind-header", Served<DataBehindHeader>},
    {"longest-chain", Served<LongestChain>},
    {"indirect-after-header", Served<IndirectAfterHeader>},
    {"split-header-indirect", Served<SplitHeaderIndirect>},
});

}  // namespace

std::span<const Behaviour> ChainBehaviours() {
  return kBehaviours;
}

}  // namespace guest
