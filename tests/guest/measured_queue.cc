// See measured_queue.h.

#include "measured_queue.h"

#include <algorithm>
#include <new>

#include "allocator.h"
#include "clock.h"
#include "console.h"
#include "deadline.h"
#include "pattern.h"

namespace guest {
namespace {

constexpr uint64_t kSeedStep = uint64_t{1} << 32;  // between the generations of a block

template <typename T>
uint64_t AddressOf(T* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

bool MeasuredQueue::Prepare(BlkQueue& queue, const Job& job, const Range& range, uint64_t seed) {
  queue_ = &queue;
  rings_ = &queue.rings();
  job_ = job;
  range_ = range;
  random_ = Random(seed);
  order_ = job.random ? Order::kRandom : Order::kAscending;
  block_sectors_ = job.block_bytes / kSectorSize;
  // An indirect chain takes one descriptor of the ring's, a direct one three.
  const uint64_t room = rings_->indirect() ? rings_->size() : rings_->size() / 3;
  slot_count_ = job.depth + (job.depth1 ? 1 : 0);
  if (slot_count_ > room || range.blocks < slot_count_) return false;
  slots_ = AllocateArray<Slot>(slot_count_);
  by_head_ = AllocateArray<Slot*>(rings_->size());
  free_slots_ = AllocateArray<uint16_t>(slot_count_);
  waiting_ = AllocateArray<uint16_t>(slot_count_);
  for (uint16_t i = 0; i < slot_count_; ++i) {
    LayOut(slots_[i], i);
    slots_[i].alone = i == job.depth;
    free_slots_[free_count_++] = i;
  }
  if (job.verify) {
    generations_ = AllocateArray<uint8_t>(range.blocks);
    busy_ = AllocateArray<uint8_t>(range.blocks);
  }
  return true;
}

void MeasuredQueue::LayOut(Slot& slot, uint16_t index) {
  slot.buffer = AllocatePages(job_.block_bytes);
  volatile Descriptor* table = nullptr;
  uint16_t first = 0;
  if (rings_->indirect()) {
    slot.head = index;
    auto* const indirect = AllocateArray<Descriptor>(3);
    rings_->WriteDescriptor(index, {.address = AddressOf(indirect),
                                    .length = 3 * sizeof(Descriptor),
                                    .flags = kDescriptorIndirect,
                                    .next = 0});
    table = indirect;
  } else {
    first = slot.head = static_cast<uint16_t>(3 * index);
    table = &rings_->descriptor(first);
  }
  const auto write = [&](uint16_t i, uint64_t address, uint64_t length, uint16_t flags) {
    table[i].address = address;
    table[i].length = static_cast<uint32_t>(length);
    table[i].flags = flags;
    table[i].next = static_cast<uint16_t>(first + i + 1);
  };
  write(0, AddressOf(&slot.header), sizeof slot.header, kDescriptorNext);
  write(1, slot.buffer, job_.block_bytes, kDescriptorNext | kDescriptorWrite);
  write(2, AddressOf(&slot.status), 1, kDescriptorWrite);
  slot.data = &table[1];
  slot.header = {.type = kBlkRead, .reserved = 0, .sector = 0};
  slot.writes = false;
  by_head_[slot.head] = &slot;
}

uint64_t MeasuredQueue::SectorOf(uint64_t block) const {
  return range_.first_sector + block * block_sectors_;
}

uint64_t MeasuredQueue::PatternSeed(uint64_t block) const {
  return job_.seed + generations_[block] * kSeedStep;
}

void MeasuredQueue::Fill(const Slot& slot) const {
  const uint64_t seed = PatternSeed(slot.block);
  auto* const words = reinterpret_cast<uint64_t*>(slot.buffer);
  for (uint64_t i = 0; i < job_.block_bytes / 8; ++i) {
    words[i] = PatternWord(seed, SectorOf(slot.block) + i / 64, i % 64);
  }
}

bool MeasuredQueue::Matches(const Slot& slot) const {
  const uint64_t seed = PatternSeed(slot.block);
  const auto* const words = reinterpret_cast<const uint64_t*>(slot.buffer);
  for (uint64_t i = 0; i < job_.block_bytes / 8; ++i) {
    if (words[i] != PatternWord(seed, SectorOf(slot.block) + i / 64, i % 64)) return false;
  }
  return true;
}

uint64_t MeasuredQueue::PickBlock() {
  uint64_t block;
  if (order_ == Order::kRandom) {
    block = (random_.Next() >> 32) * range_.blocks >> 32;
  } else {
    block = next_block_;
    next_block_ = next_block_ + 1 == range_.blocks ? 0 : next_block_ + 1;
  }
  // What two requests on one block leave there is nobody's to say. There are more blocks than
  // requests.
  while (busy_ != nullptr && busy_[block] != 0) block = block + 1 == range_.blocks ? 0 : block + 1;
  return block;
}

void MeasuredQueue::Issue(Slot& slot, uint64_t start) {
  const bool writes = job_.read_percent == 0 ||
                      (job_.read_percent < 100 && random_.Below(100) >= job_.read_percent);
  slot.block = PickBlock();
  slot.start = start;
  if (writes != slot.writes) {
    slot.writes = writes;
    slot.header.type = writes ? kBlkWrite : kBlkRead;
    slot.data->flags = writes ? kDescriptorNext : kDescriptorNext | kDescriptorWrite;
  }
  slot.header.sector = SectorOf(slot.block);
  slot.status = kBlkNone;
  if (job_.verify) {
    busy_[slot.block] = 1;
    if (writes) {
      ++generations_[slot.block];
      Fill(slot);
    } else {
      *reinterpret_cast<uint64_t*>(slot.buffer) = 0;  // what an untouched buffer would still hold
    }
  }
  rings_->AddHead(slot.head);
  ++added_;
}

void MeasuredQueue::Flush() {
  if (added_ == 0) return;
  added_ = 0;
  rings_->Publish();
  queue_->Kick();
}

void MeasuredQueue::Complete(Slot& slot, uint64_t now) {
  if (counting_ && slot.alone) {
    result_.depth1.Add(now - slot.start);
  } else if (counting_) {
    result_.latency.Add(now - slot.start);
    ++(slot.writes ? result_.writes : result_.reads);
  }
  if (slot.status != kBlkOk) ++result_.errors;
  if (!job_.verify) return;
  busy_[slot.block] = 0;
  if (!slot.writes && !Matches(slot)) ++result_.mismatches;
}

// What follows a completion: in a closed loop the next request until `end`, perhaps after a time.
void MeasuredQueue::GoOn(Slot& slot, uint64_t now, uint64_t end) {
  if (arrivals_ != nullptr || now >= end) {
    free_slots_[free_count_++] = static_cast<uint16_t>(&slot - slots_);
  } else if (job_.thinks && !slot.alone) {
    StartWaiting(slot, now);
  } else {
    Issue(slot, now);
  }
}

// Takes what has completed.
bool MeasuredQueue::Harvest(uint64_t now, uint64_t end) {
  bool any = false;
  Virtqueue::Used used;
  while (rings_->ReadUsed(used)) {
    any = true;
    Slot* const slot = used.head < rings_->size() ? by_head_[used.head] : nullptr;
    if (slot == nullptr) {
      ++result_.errors;
      continue;
    }
    Complete(*slot, now);
    GoOn(*slot, now, end);
  }
  return any;
}

void MeasuredQueue::IssueDue(uint64_t now) {
  while (arrivals_->next() <= now) {
    if (free_count_ == 0) {
      if (!was_full_) ++result_.late;
      was_full_ = true;
      return;
    }
    was_full_ = false;
    Issue(slots_[free_slots_[--free_count_]], arrivals_->next());
    arrivals_->Advance();
  }
}

// By interrupt the ring is looked at after one only, so that a lost one shows. An open loop's next
// arrival ends the wait too.
void MeasuredQueue::WaitForWork() {
  if (job_.wait == Wait::kPolled) return Pause();
  const uint32_t seen = queue_->interrupts();
  rings_->RequestInterrupt();
  if (rings_->HasUsed()) return rings_->SuppressInterrupts();
  const bool came = SpinUntil([&] {
    return queue_->interrupts() != seen ||
           (arrivals_ != nullptr && free_count_ > 0 && arrivals_->next() <= TimeStamp());
  });
  if (!came && !Expect("measure: an interrupt came", 1, 0)) ++result_.errors;
  rings_->SuppressInterrupts();
}

void MeasuredQueue::BeginCounting(uint64_t now) {
  counting_ = true;
  counting_from_ = now;
  result_.kicks = queue_->kicks();
  result_.interrupts = queue_->interrupts();
}

void MeasuredQueue::EndCounting(uint64_t now) {
  if (!counting_) BeginCounting(now);  // nothing has happened
  counting_ = false;
  result_.ticks = now - counting_from_;
  result_.kicks = queue_->kicks() - result_.kicks;
  result_.interrupts = queue_->interrupts() - result_.interrupts;
}

void MeasuredQueue::Drain() {
  Flush();
  const Deadline deadline(kAllPatience);
  while (free_count_ < slot_count_) {
    Harvest(TimeStamp(), 0);
    if (deadline.Passed()) {
      Expect("measure: requests that never completed", 0, slot_count_ - free_count_);
      ++result_.errors;
      return;
    }
    Pause();
  }
}

void MeasuredQueue::Run(uint64_t start) {
  const uint64_t measure_from = start + NsToTicks(job_.warmup_ns);
  const uint64_t end = measure_from + NsToTicks(job_.runtime_ns);
  alignas(Arrivals) std::byte arrivals_memory[sizeof(Arrivals)];
  if (job_.rate != 0) {
    const uint64_t interval = 256 * job_.queues * (TicksPerMs() * 1000) / job_.rate;
    arrivals_ = new (arrivals_memory) Arrivals(job_.arrival, interval, start, random_.Next());
  }
  SpinUntil([start] { return TimeStamp() >= start; });
  while (arrivals_ == nullptr && free_count_ > 0) Issue(slots_[free_slots_[--free_count_]], start);
  Flush();
  if (job_.thinks) {
    RunThinking(measure_from, end);
  } else {
    RunLoop(measure_from, end);
  }
  arrivals_ = nullptr;
  Drain();
}

void MeasuredQueue::RunLoop(uint64_t measure_from, uint64_t end) {
  for (;;) {
    if (!rings_->HasUsed()) WaitForWork();
    const uint64_t now = TimeStamp();
    if (now >= end) return EndCounting(now);
    if (!counting_ && now >= measure_from) BeginCounting(now);
    Harvest(now, end);
    if (arrivals_ != nullptr) IssueDue(now);
    Flush();
  }
}

bool MeasuredQueue::Rehearse() {
  Issue(slots_[free_slots_[--free_count_]], TimeStamp());
  Drain();
  return result_.errors == 0;
}

// Every block once, in order, by requests of this type.
bool MeasuredQueue::Sweep(BlkType type) {
  const Job job = job_;
  job_.read_percent = type == kBlkRead ? 100 : 0;
  order_ = Order::kAscending;
  next_block_ = 0;
  uint64_t left = range_.blocks;
  while (left > 0 && result_.errors == 0) {
    while (left > 0 && free_count_ > 0) {
      Issue(slots_[free_slots_[--free_count_]], TimeStamp());
      --left;
    }
    Flush();
    Harvest(TimeStamp(), 0);
  }
  Drain();
  job_ = job;
  order_ = job.random ? Order::kRandom : Order::kAscending;
  next_block_ = 0;
  return result_.errors == 0 && result_.mismatches == 0;
}

bool MeasuredQueue::WriteAll() {
  return Sweep(kBlkWrite);
}

bool MeasuredQueue::CheckAll() {
  return Sweep(kBlkRead);
}

}  // namespace guest
