// The time of a job that is measured: from after its warm-up to its end, with the kicks and
// interrupts of that time. Any Port with kicks() and interrupts() will do.

#ifndef RINGSIDE_TESTS_GUEST_MEASURED_SPAN_H_
#define RINGSIDE_TESTS_GUEST_MEASURED_SPAN_H_

#include <cstdint>

#include "clock.h"

namespace guest {

class MeasuredSpan {
 public:
  MeasuredSpan(uint64_t warmup_ns, uint64_t runtime_ns)
      : warmup_ns_(warmup_ns), runtime_ns_(runtime_ns) {}

  void Begin(uint64_t now) {
    from_ = now + NsToTicks(warmup_ns_);
    end_ = from_ + NsToTicks(runtime_ns_);
  }
  // At the end of each turn of a loop; false when the job is over.
  template <typename Port>
  bool Goes(uint64_t now, const Port& port) {
    if (now >= from_ && !counting_) {
      counting_ = true;
      from_ = now;
      end_ = now + NsToTicks(runtime_ns_);  // however late this is
      kicks_ = port.kicks();
      interrupts_ = port.interrupts();
    }
    if (now < end_) return true;
    ticks_ = now - from_;
    kicks_ = port.kicks() - kicks_;
    interrupts_ = port.interrupts() - interrupts_;
    counting_ = false;
    return false;
  }

  bool counting() const { return counting_; }
  uint64_t end() const { return end_; }
  // When it is over.
  uint64_t ticks() const { return ticks_; }
  uint64_t kicks() const { return kicks_; }
  uint64_t interrupts() const { return interrupts_; }

 private:
  const uint64_t warmup_ns_, runtime_ns_;
  uint64_t from_ = 0, end_ = 0;
  bool counting_ = false;
  uint64_t ticks_ = 0, kicks_ = 0, interrupts_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MEASURED_SPAN_H_
