// records=1 and check-records=1: what a disk has acknowledged must be there after a crash. The
// writer never waits for all its writes: records are written in order, several in flight, and a
// flush goes out among them, which acknowledges every record completed before it was submitted
// (VIRTIO 1.2 section 5.2.6.2). Without a write-back cache each completed write is acknowledged.

#include <array>

#include "allocator.h"
#include "checks.h"
#include "console.h"
#include "disks.h"
#include "random.h"
#include "record.h"

namespace guest {
namespace {

constexpr uint64_t kDepth = 8;
constexpr uint64_t kMaxGroup = 32;  // records between two flushes

VirtioBlk* FirstWritableDisk() {
  for (VirtioBlk& disk : Disks()) {
    if (disk.Start({}) && !disk.read_only()) return &disk;
  }
  Say("FAIL records: expected a disk to write got none");
  return nullptr;
}

class RecordWriter {
 public:
  RecordWriter(VirtioBlk& disk, uint64_t seed)
      : disk_(disk),
        seed_(seed),
        count_(disk.sectors() / kRecordSectors),
        write_back_(disk.write_back()),
        random_(seed) {
    for (Slot& slot : slots_) slot.record = AllocateArray<Record>(1);
  }

  void Run() {
    flush_at_ = 1 + random_.Below(kMaxGroup);
    for (Slot& slot : slots_) WriteNext(slot);
    while (in_flight_ > 0) {
      disk_.Kick();
      BlkRequest* const request = disk_.Next();
      if (request == nullptr || !Expect("records: status", kBlkOk, request->status)) return;
      --in_flight_;
      if (request == &flush_) {
        OnFlushed();
      } else {
        OnWritten(reinterpret_cast<Slot&>(*request));
      }
      if (write_back_) FlushIfDue();
    }
    Say("records done ", Decimal{count_});
  }

 private:
  struct Slot {
    BlkRequest request;  // first, so that the slot is found by it
    Record* record = nullptr;
    uint64_t number = 0;
    bool busy = false;
  };

  void Submit(BlkRequest& request) {
    if (Expect("records: room in the ring", 1, disk_.Submit(request))) ++in_flight_;
  }

  void WriteNext(Slot& slot) {
    if (next_ == count_) return;
    slot.number = next_++;
    slot.busy = true;
    FillRecord(*slot.record, slot.number, seed_);
    slot.request.Set(kBlkWrite, slot.number * kRecordSectors);
    slot.request.AddData(reinterpret_cast<uint64_t>(slot.record), kRecordSize);
    Submit(slot.request);
  }

  // All records below this one are written.
  uint64_t Written() const {
    uint64_t written = next_;
    for (const Slot& slot : slots_) {
      if (slot.busy && slot.number < written) written = slot.number;
    }
    return written;
  }

  void OnWritten(Slot& slot) {
    slot.busy = false;
    if (!write_back_) Acknowledge(Written());
    WriteNext(slot);
  }

  void FlushIfDue() {
    if (flushing_ || Written() < (next_ == count_ ? durable_ + 1 : flush_at_)) return;
    flushing_ = true;
    flush_covers_ = Written();
    flush_at_ = flush_covers_ + 1 + random_.Below(kMaxGroup);
    flush_.Set(kBlkFlush, 0);
    Submit(flush_);
  }

  void OnFlushed() {
    flushing_ = false;
    Acknowledge(flush_covers_);
  }

  void Acknowledge(uint64_t records) {
    if (records <= durable_) return;
    durable_ = records;
    Say("durable ", Decimal{records - 1});
  }

  VirtioBlk& disk_;
  const uint64_t seed_;
  const uint64_t count_;
  const bool write_back_;
  Random random_;
  std::array<Slot, kDepth> slots_;
  BlkRequest flush_;
  bool flushing_ = false;
  uint64_t next_ = 0;          // first record not yet submitted
  uint64_t flush_at_ = 0;      // flush once all records below are written
  uint64_t flush_covers_ = 0;  // records below this one are written, for the flush in flight
  uint64_t durable_ = 0;       // records below this one are acknowledged
  uint64_t in_flight_ = 0;
};

}  // namespace

void WriteRecords(uint64_t seed) {
  VirtioBlk* const disk = FirstWritableDisk();
  if (disk == nullptr) return;
  Say("records seed=", Decimal{seed}, " writeback=", Decimal{disk->write_back()});
  RecordWriter(*disk, seed).Run();
}

void CheckRecords(uint64_t seed, uint64_t required) {
  VirtioBlk* const disk = FirstWritableDisk();
  if (disk == nullptr) return;
  auto* const record = AllocateArray<Record>(1);
  static constinit BlkRequest request;
  const uint64_t count = disk->sectors() / kRecordSectors;
  uint64_t valid = 0;
  bool ok = Expect("records: the disk holds the required ones", 1, required <= count);
  for (uint64_t k = 0; k < count; ++k) {
    request.Set(kBlkRead, k * kRecordSectors);
    request.AddData(reinterpret_cast<uint64_t>(record), kRecordSize);
    if (!Expect("records: status", kBlkOk, disk->Do(request))) return;
    if (IsRecord(*record, k, seed)) {
      ++valid;
    } else if (k < required) {
      ok = false;
      Say("FAIL records: expected record ", Decimal{k}, " got something else");
    }
  }
  Say("records valid=", Decimal{valid}, " of=", Decimal{count}, ok ? " ok" : "");
}

}  // namespace guest
