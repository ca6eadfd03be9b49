// Pseudo-random numbers, the same for the same seed (splitmix64).

#ifndef RINGSIDE_TESTS_GUEST_RANDOM_H_
#define RINGSIDE_TESTS_GUEST_RANDOM_H_

#include <cstdint>

namespace guest {

class Random {
 public:
  constexpr explicit Random(uint64_t seed) : state_(seed) {}

  constexpr uint64_t Next() {
    uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
  }
  // From 0 to `limit` - 1.
  constexpr uint64_t Below(uint64_t limit) { return Next() % limit; }

 private:
  uint64_t state_;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_RANDOM_H_
