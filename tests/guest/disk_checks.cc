// disk=1 and verify-disk=SEED: what a well-behaved driver may expect of every disk.

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "checks.h"
#include "console.h"
#include "disk_transfer.h"
#include "disks.h"

namespace guest {
namespace {

using Options = VirtioBlk::Options;

// A page for the small requests below.
uint64_t Page() {
  static constinit uint64_t page = 0;
  if (page == 0) page = AllocatePages(2 * kPageSize);
  return page;
}

BlkStatus DoData(VirtioBlk& disk, BlkType type, uint64_t sector, uint32_t bytes) {
  static constinit BlkRequest request;
  request.Set(type, sector);
  if (bytes > 0) request.AddData(Page(), bytes);
  return disk.Do(request);
}

BlkStatus DoRange(VirtioBlk& disk, BlkType type, BlkRange range) {
  *reinterpret_cast<BlkRange*>(Page()) = range;
  return DoData(disk, type, 0, sizeof range);
}

void PrintSerial(VirtioBlk& disk) {
  std::memset(reinterpret_cast<void*>(Page()), 0, 21);
  if (DoData(disk, kBlkGetId, 0, 20) != kBlkOk) return Print("?");
  Print(reinterpret_cast<const char*>(Page()));
}

void SayDisk(VirtioBlk& disk) {
  Print("guest: disk ");
  Print(Decimal{static_cast<uint64_t>(disk.index())});
  Print(" sectors=");
  Print(Decimal{disk.sectors()});
  Print(" ro=");
  Print(Decimal{disk.read_only()});
  Print(" block=");
  Print(Decimal{disk.block_sectors() * kSectorSize});
  Print(" transport=");
  Print(disk.transport().name());
  Print(" queues=");
  Print(Decimal{disk.queue_count()});
  Print(" writeback=");
  Print(Decimal{disk.write_back()});
  Print(" serial=");
  PrintSerial(disk);
  Print('\n');
}

// ---- Requests that must fail, and alone ----

bool CheckRefusals(VirtioBlk& disk) {
  const auto block = static_cast<uint32_t>(disk.block_sectors() * kSectorSize);
  const uint64_t last = disk.sectors() - disk.block_sectors();
  const BlkType write = disk.read_only() ? kBlkRead : kBlkWrite;
  bool ok =
      Expect("disk: read at the end", kBlkIoError, DoData(disk, kBlkRead, disk.sectors(), block));
  ok &= Expect("disk: read across the end", kBlkIoError, DoData(disk, kBlkRead, last, 2 * block));
  ok &= Expect("disk: read of the last block", kBlkOk, DoData(disk, kBlkRead, last, block));
  ok &= Expect("disk: write at the end", kBlkIoError, DoData(disk, write, disk.sectors(), block));
  ok &= Expect("disk: read at the last sector there can be", kBlkIoError,
               DoData(disk, kBlkRead, ~uint64_t{0}, block));
  // 2^55 sectors are 2^64 bytes.
  ok &= Expect("disk: read at a byte offset that wraps", kBlkIoError,
               DoData(disk, kBlkRead, uint64_t{1} << 55, block));
  ok &= Expect("disk: read of no whole sectors", kBlkIoError, DoData(disk, kBlkRead, 0, 1000));
  ok &= Expect("disk: unknown request", kBlkUnsupported,
               DoData(disk, static_cast<BlkType>(0x7777), 0, 0));
  return ok;
}

bool CheckReadOnly(VirtioBlk& disk) {
  const auto block = static_cast<uint32_t>(disk.block_sectors() * kSectorSize);
  auto* const page = reinterpret_cast<uint8_t*>(Page());
  static constinit std::array<uint8_t, kPageSize> before;
  bool ok = Expect("read-only disk: read", kBlkOk, DoData(disk, kBlkRead, 0, block));
  std::copy_n(page, block, before.begin());
  std::memset(page, 0x5a, block);
  ok &= Expect("read-only disk: write", kBlkIoError, DoData(disk, kBlkWrite, 0, block));
  if (disk.Offers(kBlkFeatureFlush)) {
    ok &= Expect("read-only disk: flush", kBlkOk, DoData(disk, kBlkFlush, 0, 0));
  }
  const BlkRange range = {.sector = 0, .sectors = block / 512, .flags = 0};
  ok &= Expect("read-only disk: zeroes", 1, DoRange(disk, kBlkWriteZeroes, range) != kBlkOk);
  DoRange(disk, kBlkDiscard, range);  // QEMU answers OK, and does nothing
  ok &= Expect("read-only disk: read again", kBlkOk, DoData(disk, kBlkRead, 0, block));
  return ok & Expect("read-only disk: unchanged", 0, std::memcmp(page, before.data(), block) != 0);
}

// ---- Discard, zeroes, cache mode ----

bool IsZero(uint64_t address, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (Load<uint8_t>(address + i) != 0) return false;
  }
  return true;
}

// In the range that is overwritten afterwards.
bool CheckZeroes(VirtioBlk& disk) {
  const auto block = static_cast<uint32_t>(disk.block_sectors());
  const auto bytes = static_cast<uint32_t>(block * kSectorSize);
  bool ok = true;
  if (disk.Offers(kBlkFeatureWriteZeroes)) {
    for (const uint32_t flags : {0u, 1u}) {  // 1: unmap
      std::memset(reinterpret_cast<void*>(Page()), 0x33, bytes);
      ok &= Expect("zeroes: write before", kBlkOk, DoData(disk, kBlkWrite, block, bytes));
      ok &= Expect("zeroes: status", kBlkOk, DoRange(disk, kBlkWriteZeroes, {block, block, flags}));
      ok &= Expect("zeroes: read after", kBlkOk, DoData(disk, kBlkRead, block, bytes));
      ok &= Expect("zeroes: are there", 1, IsZero(Page(), bytes));
    }
    ok &= Expect("zeroes: beyond the end", 1,
                 DoRange(disk, kBlkWriteZeroes, {disk.sectors(), block, 0}) != kBlkOk);
    ok &= Expect("zeroes: sector that wraps", 1,
                 DoRange(disk, kBlkWriteZeroes, {~uint64_t{0}, block, 0}) != kBlkOk);
    ok &= Expect("zeroes: unknown flag", kBlkUnsupported,
                 DoRange(disk, kBlkWriteZeroes, {0, block, 0x80}));
  }
  if (disk.Offers(kBlkFeatureDiscard)) {
    ok &= Expect("discard: status", kBlkOk, DoRange(disk, kBlkDiscard, {block, block, 0}));
    ok &= Expect("discard: across the end", 1,
                 DoRange(disk, kBlkDiscard, {disk.sectors() - block, 2 * block, 0}) != kBlkOk);
    ok &=
        Expect("discard: unknown flag", kBlkUnsupported, DoRange(disk, kBlkDiscard, {0, block, 1}));
  }
  return ok;
}

bool CheckCacheMode(VirtioBlk& disk) {
  if (!disk.Offers(kBlkFeatureConfigWce)) return true;
  const bool write_back = disk.write_back();
  bool ok = true;
  for (const bool wanted : {!write_back, write_back}) {
    disk.transport().SetConfig<uint8_t>(blk_config::kWriteBack, wanted);
    ok &= Expect("disk: cache mode reads back", wanted, disk.write_back());
    if (disk.read_only()) continue;
    std::memset(reinterpret_cast<void*>(Page()), 0x44, kPageSize);
    ok &= Expect("disk: write in either cache mode", kBlkOk, DoData(disk, kBlkWrite, 0, kPageSize));
  }
  return ok;
}

// ---- The pattern, in every way ----

struct Phase {
  bool event_idx;
  bool indirect;
  Wait wait;
  int depth;
};
constexpr std::array<Phase, 6> kPhases = {{
    {true, true, Wait::kPolled, 1},
    {true, true, Wait::kInterrupt, 1},
    {false, false, Wait::kPolled, kMaxDepth},
    {false, false, Wait::kInterrupt, kMaxDepth},
    {true, true, Wait::kPolled, kMaxDepth},
    {true, true, Wait::kInterrupt, kMaxDepth},
}};

struct Counts {
  uint64_t polled = 0;
  uint64_t interrupts = 0;
  uint64_t unwanted = 0;  // interrupts while polling
};

// Each phase writes data of its own, the last one that of `seed` itself.
bool RunPhase(VirtioBlk& disk, size_t i, uint64_t seed, Counts& counts) {
  const Phase& phase = kPhases[i];
  if (!disk.Start({phase.event_idx, phase.indirect, phase.wait})) return false;
  const uint64_t requests = CompletedRequests();
  const uint32_t interrupts = disk.interrupts();
  const uint64_t generation = kPhases.size() - 1 - i;
  Transfer transfer = {.type = kBlkWrite,
                       .seed = seed + (generation << 32),
                       .first_sector = 0,
                       .sectors = PatternRange(disk),
                       .depth = phase.depth};
  const bool polled = phase.wait == Wait::kPolled;
  bool ok = RunTransfer(disk, transfer);
  transfer.type = kBlkRead;
  ok = ok && RunTransfer(disk, transfer);
  if (ok && disk.Offers(kBlkFeatureFlush)) {
    ok = Expect("disk: flush", kBlkOk, DoData(disk, kBlkFlush, 0, 0));
  }
  if (polled) counts.polled += CompletedRequests() - requests;
  (polled ? counts.unwanted : counts.interrupts) += disk.interrupts() - interrupts;
  return ok;
}

void CheckDisk(VirtioBlk& disk, uint64_t seed) {
  if (!disk.Start({})) return;
  SayDisk(disk);
  if (disk.sectors() == 0) return;
  bool ok = CheckRefusals(disk) & CheckCacheMode(disk);
  if (disk.read_only()) {
    if (CheckReadOnly(disk) && ok) Say("disk ", Decimal{uint64_t(disk.index())}, " ok read-only");
    return;
  }
  ok &= CheckZeroes(disk);
  Counts counts;
  for (size_t i = 0; ok && i < kPhases.size(); ++i) ok = RunPhase(disk, i, seed, counts);
  if (!ok) return;
  Say("disk ", Decimal{uint64_t(disk.index())}, " ok polled=", Decimal{counts.polled},
      " interrupts=", Decimal{counts.interrupts}, " unwanted=", Decimal{counts.unwanted},
      " kicks=", Decimal{disk.kicks()});
}

}  // namespace

void CheckDisks(uint64_t seed) {
  for (VirtioBlk& disk : Disks()) CheckDisk(disk, seed);
  Say("disks=", Decimal{Disks().size()});
}

void CheckErrors(uint64_t reads) {
  for (VirtioBlk& disk : Disks()) {
    if (!disk.Start({})) continue;
    uint64_t errors = 0;
    for (uint64_t i = 0; i < reads; ++i) errors += DoData(disk, kBlkRead, 0, 512) == kBlkIoError;
    Expect("disk: errors", reads, errors);
  }
}

void VerifyDisks(uint64_t seed) {
  for (VirtioBlk& disk : Disks()) {
    if (!disk.Start({})) continue;
    if (RunTransfer(disk, {.type = kBlkRead,
                           .seed = seed,
                           .first_sector = 0,
                           .sectors = PatternRange(disk),
                           .depth = kMaxDepth})) {
      Say("disk ", Decimal{uint64_t(disk.index())},
          " verified sectors=", Decimal{PatternRange(disk)});
    }
  }
}

}  // namespace guest
