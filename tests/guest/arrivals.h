// When the requests of an open loop arrive: at equal intervals, or at random as independent users
// would (a Poisson process: intervals are exponentially distributed). In ticks of the time stamp
// counter, without floating point, which the guest has not switched on.

#ifndef RINGSIDE_TESTS_GUEST_ARRIVALS_H_
#define RINGSIDE_TESTS_GUEST_ARRIVALS_H_

#include <bit>
#include <cstdint>

#include "random.h"

namespace guest {

enum class ArrivalKind : uint8_t { kPeriodic, kPoisson };

class Arrivals {
 public:
  // `interval` is the mean, in units of 1/256 tick so that rates come out right.
  Arrivals(ArrivalKind kind, uint64_t interval_x256, uint64_t start, uint64_t seed)
      : kind_(kind), interval_(interval_x256), start_(start), random_(seed) {}

  // The tick at which the next request arrives.
  uint64_t next() const { return start_ + (after_start_ >> 8); }
  void Advance() {
    after_start_ += kind_ == ArrivalKind::kPeriodic ? interval_ : interval_ * Exponential() >> 16;
  }

  // -ln of a number from ]0, 1], times 65536: ln(u) = log2(u) * ln(2), u = bits / 2^64.
  static constexpr uint64_t MinusLn(uint64_t bits) {
    constexpr uint64_t kLn2 = 45426;  // times 65536
    return ((uint64_t{64} << 16) - Log2(bits)) * kLn2 >> 16;
  }

 private:
  // Of a number above 0, times 65536. The fraction comes bit by bit: squaring a number from 1 to 2
  // doubles its logarithm.
  static constexpr uint64_t Log2(uint64_t value) {
    const int whole = std::bit_width(value) - 1;
    uint64_t mantissa = value << (63 - whole) >> 32;  // from 2^31 to 2^32
    uint64_t result = static_cast<uint64_t>(whole);
    for (int bit = 0; bit < 16; ++bit) {
      mantissa = mantissa * mantissa >> 31;
      const bool carry = mantissa >> 32 != 0;
      if (carry) mantissa >>= 1;
      result = result << 1 | carry;
    }
    return result;
  }

  uint64_t Exponential() { return MinusLn(random_.Next() | 1); }

  const ArrivalKind kind_;
  const uint64_t interval_;
  const uint64_t start_;
  uint64_t after_start_ = 0;
  Random random_;
};

static_assert(Arrivals::MinusLn(uint64_t{1} << 63) / 64 == 45426 / 64);       // ln 2
static_assert(Arrivals::MinusLn(uint64_t{1} << 54) / 64 == 10 * 45426 / 64);  // 10 ln 2
static_assert(Arrivals::MinusLn(0xc000000000000000) / 64 == 18853 / 64);      // ln 4/3

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_ARRIVALS_H_
