// How the guest learns of completions.

#ifndef RINGSIDE_TESTS_GUEST_WAIT_H_
#define RINGSIDE_TESTS_GUEST_WAIT_H_

#include <cstdint>

namespace guest {

enum class Wait : uint8_t { kPolled, kInterrupt };

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_WAIT_H_
