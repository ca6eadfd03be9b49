// How the guest learns of completions, and which it waits for.

#ifndef RINGSIDE_TESTS_GUEST_WAIT_H_
#define RINGSIDE_TESTS_GUEST_WAIT_H_

#include <cstdint>

namespace guest {

enum class Wait : uint8_t { kPolled, kInterrupt };

// What a wait is for.
struct Wake {
  bool receive;
  bool transmit;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_WAIT_H_
