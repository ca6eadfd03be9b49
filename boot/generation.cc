#include "boot/generation.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/pages.h"
#include "base/random.h"
#include "base/status.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr size_t kGenerationIdSize = 16;

constexpr uint32_t kMagic = 0x4b4c4356;  // "VCLK"
constexpr uint8_t kNoCounter = 0xff;     // the page tells no time
constexpr uint64_t kHasGenerationCounter = uint64_t{1} << 8;
constexpr uint64_t kHasNotification = uint64_t{1} << 9;

struct VmClock {
  uint32_t magic;
  uint32_t size;  // of the page
  uint16_t version;
  uint8_t counter_id;
  uint8_t time_type;
  uint32_t sequence;  // odd while it is being changed
  uint64_t disruption_marker;
  uint64_t flags;
  uint8_t of_time[72];  // without a counter none of it is looked at
  uint64_t generation_counter;
};
static_assert(sizeof(VmClock) == 112);
static_assert(offsetof(VmClock, generation_counter) == 104);

// Low memory, which every machine has.
VmClock* ClockIn(const GuestMemory& memory) {
  return reinterpret_cast<VmClock*>(memory.At(kVmClock, sizeof(VmClock)));
}

absl::Status WriteId(const GuestMemory& memory) {
  return FillRandom({memory.At(kGenerationId, kGenerationIdSize), kGenerationIdSize});
}

}  // namespace

absl::Status WriteGeneration(const GuestMemory& memory) {
  const VmClock clock = {.magic = kMagic,
                         .size = kPageSize,
                         .version = 1,
                         .counter_id = kNoCounter,
                         .time_type = 0,
                         .sequence = 0,
                         .disruption_marker = 0,
                         .flags = kHasGenerationCounter | kHasNotification,
                         .of_time = {},
                         .generation_counter = 0};
  std::memcpy(ClockIn(memory), &clock, sizeof clock);
  return WriteId(memory);
}

absl::Status RenewGeneration(const GuestMemory& memory) {
  VmClock& clock = *ClockIn(memory);
  ++clock.disruption_marker;
  ++clock.generation_counter;
  // Who was in the middle of reading begins again, and whoever waits for an even one never waits.
  clock.sequence = (clock.sequence | 1) + 1;
  return WriteId(memory);
}

}  // namespace ringside
