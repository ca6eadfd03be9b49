// One queue of a disk under load, as lean as a driver can be: each slot's descriptor chain is
// written once and used again and again, so that a request costs its sector, an entry of the
// available ring and the index. What is measured is the device, not this driver.
//
// With verify, the content of every block follows from the seed and the number of times it was
// written, so that lost, torn and misplaced writes show, as does a read from elsewhere.

#ifndef RINGSIDE_TESTS_GUEST_MEASURED_QUEUE_H_
#define RINGSIDE_TESTS_GUEST_MEASURED_QUEUE_H_

#include <cstdint>

#include "arrivals.h"
#include "blk_queue.h"
#include "histogram.h"
#include "job.h"
#include "random.h"

namespace guest {

// Errors and mismatches are those of everything; the rest is of the measured time.
struct QueueResult {
  uint64_t reads = 0;
  uint64_t writes = 0;
  uint64_t errors = 0;
  uint64_t mismatches = 0;
  uint64_t late = 0;  // arrivals that found as many in flight as there may be
  uint64_t kicks = 0;
  uint64_t interrupts = 0;
  uint64_t ticks = 0;  // that were measured
  Histogram latency;   // ticks
  Histogram depth1;    // of the job beside, whose requests are not in what is above
};

class MeasuredQueue {
 public:
  // The blocks this queue uses, which are no other's.
  struct Range {
    uint64_t first_sector;
    uint64_t blocks;
  };

  // Takes memory for slots and, to verify, for the blocks' generations. The queue has been started
  // and has nothing in flight. False if the ring or the range has no room for the depth.
  bool Prepare(BlkQueue& queue, const Job& job, const Range& range, uint64_t seed);
  // One request, for devices that are only getting ready when they say they are.
  bool Rehearse();
  // Writes every block, or reads and checks every block; false if anything was wrong.
  bool WriteAll();
  bool CheckAll();
  // `start` is the tick at which the warm-up begins.
  void Run(uint64_t start);

  const QueueResult& result() const { return result_; }

 private:
  struct Slot {
    // The device's part, a cache line of its own.
    alignas(64) BlkRequest::Header header;
    volatile uint8_t status;
    // Ours.
    alignas(64) uint64_t start;  // tick at which its latency begins
    uint64_t block;
    uint64_t buffer;
    volatile Descriptor* data;  // the descriptor of its data
    uint64_t due;               // tick from which it may go on, while it waits for that
    uint16_t head;
    bool writes;
    bool alone;  // of the depth-1 job beside the others
  };
  enum class Order : uint8_t { kAscending, kRandom };

  void LayOut(Slot& slot, uint16_t index);
  bool Sweep(BlkType type);
  void Issue(Slot& slot, uint64_t start);
  void IssueDue(uint64_t now);
  void Flush();
  bool Harvest(uint64_t now, uint64_t end);
  void Complete(Slot& slot, uint64_t now);
  void GoOn(Slot& slot, uint64_t now, uint64_t end);
  void WaitForWork();
  void RunLoop(uint64_t measure_from, uint64_t end);
  // The loop of users and programs that think, in measured_queue_thinking.cc.
  void RunThinking(uint64_t measure_from, uint64_t end);
  bool ToldOfCompletions() const;
  void TakeCompletions(uint64_t end);
  void IssueThoughtOf(uint64_t now, uint64_t end);
  void Work(uint64_t end);
  void AwaitLastInterrupt();
  void StartWaiting(Slot& slot, uint64_t now);
  Slot& TakeFirstWaiting();
  void Drain();
  void BeginCounting(uint64_t now);
  void EndCounting(uint64_t now);
  uint64_t PickBlock();
  uint64_t PatternSeed(uint64_t block) const;
  uint64_t SectorOf(uint64_t block) const;
  void Fill(const Slot& slot) const;
  bool Matches(const Slot& slot) const;

  BlkQueue* queue_ = nullptr;
  Virtqueue* rings_ = nullptr;  // queue_'s
  Job job_;
  Range range_ = {};
  uint64_t block_sectors_ = 0;
  Slot* slots_ = nullptr;
  uint64_t slot_count_ = 0;
  Slot** by_head_ = nullptr;
  uint16_t* free_slots_ = nullptr;
  size_t free_count_ = 0;
  // By block, only to verify.
  uint8_t* generations_ = nullptr;  // times written
  uint8_t* busy_ = nullptr;         // whether a request is in flight
  Random random_{0};
  Order order_ = Order::kRandom;
  uint64_t next_block_ = 0;
  uint64_t added_ = 0;  // since the last Flush
  Arrivals* arrivals_ = nullptr;
  bool was_full_ = false;
  // Slots whose requests have completed, in the order in which they may go on: a ring of
  // slot_count_.
  uint16_t* waiting_ = nullptr;
  size_t first_waiting_ = 0;
  size_t waiting_count_ = 0;
  uint32_t interrupts_seen_ = 0;
  bool counting_ = false;
  uint64_t counting_from_ = 0;
  QueueResult result_;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MEASURED_QUEUE_H_
