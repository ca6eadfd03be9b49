// The loop of MeasuredQueue for users who think and programs that work between their requests. By
// interrupt it looks at the ring after one only and then asks for the next at once, as Linux's
// driver does, so that it tells what interrupts cost that come during work, and what late ones
// cost.

#include "clock.h"
#include "console.h"
#include "deadline.h"
#include "measured_queue.h"

namespace guest {

void MeasuredQueue::StartWaiting(Slot& slot, uint64_t now) {
  slot.due = now + (job_.serial ? 0 : NsToTicks(job_.think_ns));
  waiting_[(first_waiting_ + waiting_count_++) % slot_count_] =
      static_cast<uint16_t>(&slot - slots_);
}

MeasuredQueue::Slot& MeasuredQueue::TakeFirstWaiting() {
  Slot& slot = slots_[waiting_[first_waiting_]];
  first_waiting_ = (first_waiting_ + 1) % slot_count_;
  --waiting_count_;
  return slot;
}

bool MeasuredQueue::ToldOfCompletions() const {
  return job_.wait == Wait::kPolled ? rings_->HasUsed() : queue_->interrupts() != interrupts_seen_;
}

void MeasuredQueue::TakeCompletions(uint64_t end) {
  interrupts_seen_ = queue_->interrupts();
  do {
    if (job_.wait == Wait::kInterrupt) rings_->SuppressInterrupts();
    Harvest(TimeStamp(), end);
    if (job_.wait == Wait::kInterrupt) rings_->RequestInterrupt();
  } while (rings_->HasUsed());
  Flush();  // the depth-1 job goes first
}

// For as long as the job says, without what interrupts take of it: a step between two looks at the
// clock that is much longer than others was theirs.
void MeasuredQueue::Work(uint64_t end) {
  constexpr uint64_t kLongestStepNs = 1000;
  const uint64_t longest_step = NsToTicks(kLongestStepNs);
  uint64_t left = NsToTicks(job_.think_ns);
  uint64_t before = TimeStamp();
  while (before < end) {
    const uint64_t now = TimeStamp();
    const uint64_t step = now - before;
    before = now;
    if (step < longest_step) {
      if (step >= left) return;
      left -= step;
    }
    if (job_.wait == Wait::kInterrupt && ToldOfCompletions()) {
      TakeCompletions(end);
      before = TimeStamp();
    }
  }
}

// The next requests of those that have waited long enough; of a program that works, one.
void MeasuredQueue::IssueThoughtOf(uint64_t now, uint64_t end) {
  while (waiting_count_ > 0 && slots_[waiting_[first_waiting_]].due <= now) {
    Slot& slot = TakeFirstWaiting();
    if (job_.serial) Work(end);
    Issue(slot, TimeStamp());
    if (job_.serial) break;
  }
  Flush();
}

void MeasuredQueue::RunThinking(uint64_t measure_from, uint64_t end) {
  TakeCompletions(end);  // to ask for the first interrupt
  for (;;) {
    const uint64_t now = TimeStamp();
    if (now >= end) break;
    if (!counting_ && now >= measure_from) BeginCounting(now);
    if (ToldOfCompletions()) TakeCompletions(end);
    IssueThoughtOf(now, end);
    Pause();
  }
  EndCounting(TimeStamp());
  if (job_.wait == Wait::kInterrupt) AwaitLastInterrupt();
  while (waiting_count_ > 0) {
    free_slots_[free_count_++] = static_cast<uint16_t>(&TakeFirstWaiting() - slots_);
  }
}

// What is in flight has been promised an interrupt. One that was lost would not show otherwise: the
// job ends by the clock.
void MeasuredQueue::AwaitLastInterrupt() {
  if (free_count_ + waiting_count_ < slot_count_ &&
      !SpinUntil([this] { return ToldOfCompletions(); }) &&
      !Expect("measure: an interrupt came", 1, 0)) {
    ++result_.errors;
  }
  rings_->SuppressInterrupts();
}

}  // namespace guest
