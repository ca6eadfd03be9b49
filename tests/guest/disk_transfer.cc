// See disk_transfer.h.

#include "disk_transfer.h"

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "pattern.h"
#include "random.h"

namespace guest {
namespace {

constexpr uint64_t kMaxBytes = 65536;                     // of a request
constexpr uint64_t kSpread = kMaxBytes + 32 * kPageSize;  // with the gaps between its pieces

uint64_t completed;

// How a request's data lies in memory.
enum class Layout {
  kOnePiece,   // aligned to a page
  kPieces,     // several, of whole sectors, aligned to a sector, with gaps
  kUnaligned,  // several, of any length at any address
  kCount,
};

struct Slot {
  BlkRequest request;
  uint64_t memory = 0;  // kSpread bytes
  uint64_t bytes = 0;
};

Slot slots[kMaxDepth];
uint8_t* linear;  // a request's data in one piece, kMaxBytes

void AllocateSlots() {
  if (linear != nullptr) return;
  linear = AllocateArray<uint8_t>(kMaxBytes);
  for (Slot& slot : slots) slot.memory = AllocatePages(kSpread);
}

void FillLinear(uint64_t seed, uint64_t sector, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / 8; ++i) {
    reinterpret_cast<uint64_t*>(linear)[i] = PatternWord(seed, sector + i / 64, i % 64);
  }
}

template <typename Visit>
void ForEachPiece(const BlkRequest& request, Visit visit) {
  uint64_t offset = 0;
  for (size_t i = 0; i < request.data_count; ++i) {
    const Buffer& piece = request.data[i];
    visit(reinterpret_cast<uint8_t*>(piece.address), linear + offset, piece.length);
    offset += piece.length;
  }
}

void LayOut(Slot& slot, Layout layout, Random& random) {
  const bool unaligned = layout == Layout::kUnaligned;
  uint64_t address = slot.memory + (unaligned ? 24 : 0);
  uint64_t left = slot.bytes;
  while (left > 0) {
    const bool last = slot.request.data_count == 7 || layout == Layout::kOnePiece;
    const uint64_t wanted = unaligned ? 1 + random.Below(9000) : 512 * (1 + random.Below(20));
    const uint64_t length = last ? left : std::min(wanted, left);
    slot.request.AddData(address, static_cast<uint32_t>(length));
    address += length + (unaligned ? random.Below(100) : 512 * random.Below(3));
    left -= length;
  }
}

class Runner {
 public:
  Runner(VirtioBlk& disk, const Transfer& transfer)
      : queue_(disk.queues()[transfer.queue]),
        block_(disk.block_sectors()),
        transfer_(transfer),
        random_(transfer.seed),
        next_(transfer.first_sector) {}

  bool Run() {
    int in_flight = 0;
    for (; in_flight < transfer_.depth && next_ < end(); ++in_flight) {
      if (!Start(slots[in_flight])) return false;
    }
    queue_.Kick();
    while (in_flight > 0) {
      BlkRequest* const request = queue_.Next();
      if (request == nullptr || !Check(*request)) return false;
      ++completed;
      // The request is its slot's first member, so that this finds the slot.
      if (next_ >= end()) {
        --in_flight;
      } else if (!Start(*reinterpret_cast<Slot*>(request))) {
        return false;
      }
      queue_.Kick();
    }
    return true;
  }

 private:
  uint64_t end() const { return transfer_.first_sector + transfer_.sectors; }
  bool reading() const { return transfer_.type == kBlkRead; }

  bool Start(Slot& slot) {
    const uint64_t most = std::min(end() - next_, kMaxBytes / kSectorSize) / block_;
    const uint64_t sectors = block_ * (1 + random_.Below(most));
    slot.bytes = sectors * kSectorSize;
    slot.request.Set(transfer_.type, next_);
    LayOut(slot, ChooseLayout(), random_);
    if (reading()) {
      std::memset(reinterpret_cast<void*>(slot.memory), 0xa5, kSpread);
    } else {
      FillLinear(transfer_.seed, next_, slot.bytes);
      ForEachPiece(slot.request, [](uint8_t* piece, const uint8_t* data, uint32_t length) {
        std::memcpy(piece, data, length);
      });
    }
    next_ += sectors;
    return Expect("disk: room in the ring", 1, queue_.Submit(slot.request));
  }

  Layout ChooseLayout() {
    if (transfer_.shapes == Shapes::kOnePiece) return Layout::kOnePiece;
    return static_cast<Layout>(random_.Below(static_cast<uint64_t>(Layout::kCount)));
  }

  bool Check(const BlkRequest& request) {
    const Slot& slot = reinterpret_cast<const Slot&>(request);
    if (!Expect("disk: status", kBlkOk, request.status)) return false;
    // Section 2.7.8.2: at least what the device wrote, which is the status byte and what was read.
    const uint64_t written = 1 + (reading() ? slot.bytes : 0);
    if (!Expect("disk: used length", written, request.used_length)) return false;
    return !reading() || CheckData(slot);
  }

  bool CheckData(const Slot& slot) {
    const uint64_t sector = slot.request.header.sector;
    FillLinear(transfer_.seed, sector, slot.bytes);
    bool same = true;
    ForEachPiece(slot.request, [&](const uint8_t* piece, const uint8_t* data, uint32_t length) {
      if (std::memcmp(piece, data, length) != 0) same = false;
    });
    if (same) return true;
    Say("FAIL disk: expected the pattern of seed ", Decimal{transfer_.seed}, " at sector ",
        Decimal{sector}, " got other data in ", Decimal{slot.bytes}, " bytes");
    return false;
  }

  BlkQueue& queue_;
  const uint64_t block_;
  const Transfer transfer_;
  Random random_;
  uint64_t next_;
};

}  // namespace

uint64_t PatternRange(const VirtioBlk& disk) {
  const uint64_t sectors = std::min(disk.sectors(), kPatternSectors);
  return sectors - sectors % disk.block_sectors();
}

bool RunTransfer(VirtioBlk& disk, const Transfer& transfer) {
  AllocateSlots();
  return Runner(disk, transfer).Run();
}

uint64_t CompletedRequests() {
  return completed;
}

}  // namespace guest
