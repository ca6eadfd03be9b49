// Where on the guest's bus which kind of device has its place, so that one more of another kind moves
// none: guests name their network interfaces after it, and a saved machine is made anew by it. The
// n-th of a kind has the n-th number from its first on. Who finds that taken, being one of too many
// of its kind, gets the next that is free.
#pragma once

#include <cstdint>

namespace ringside {

inline constexpr uint32_t kDiskSlot = 1;
inline constexpr uint32_t kNetworkSlot = 17;
inline constexpr uint32_t kVsockSlot = 21;
inline constexpr uint32_t kOwnSlot = 22;
inline constexpr uint32_t kAssignedSlot = 26;
inline constexpr uint32_t kRngSlot = 31;

}  // namespace ringside
