// Bounded waiting by the time stamp counter. Its rate is taken to be 1 to 5 GHz: limits only end
// what would hang, they measure nothing.

#ifndef RINGSIDE_TESTS_GUEST_DEADLINE_H_
#define RINGSIDE_TESTS_GUEST_DEADLINE_H_

#include <cstdint>

#include "machine.h"

namespace guest {

// In ticks of the time stamp counter.
constexpr uint64_t kAMoment = 20'000'000;  // 4 to 20 ms
constexpr uint64_t kAllPatience =
    80'000'000'000;  // 16 to 80 s: a flush behind others' writes takes long

class Deadline {
 public:
  explicit Deadline(uint64_t ticks) : start_(TimeStamp()), ticks_(ticks) {}
  bool Passed() const { return TimeStamp() - start_ >= ticks_; }

 private:
  uint64_t start_;
  uint64_t ticks_;
};

// Spins until `condition` holds; false if that takes longer than `ticks`.
template <typename Condition>
bool SpinUntil(Condition condition, uint64_t ticks = kAllPatience) {
  const Deadline deadline(ticks);
  while (!condition()) {
    if (deadline.Passed()) return condition();
    Pause();
  }
  return true;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_DEADLINE_H_
