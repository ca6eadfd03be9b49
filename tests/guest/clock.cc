// See clock.h.

#include "clock.h"

#include "console.h"
#include "interrupts.h"
#include "machine.h"

namespace guest {
namespace {

constexpr uint32_t kSignatureLeaf = 0x40000000;
constexpr uint32_t kFeatureLeaf = 0x40000001;
constexpr uint32_t kSignatureKvm = 0x4b4d564b;   // "KVMK", the first third
constexpr uint32_t kFeatureClock2 = 1u << 3;     // the MSR below is there
constexpr uint32_t kMsrSystemTime = 0x4b564d01;  // MSR_KVM_SYSTEM_TIME_NEW
constexpr uint32_t kEnable = 1;

// pvclock_vcpu_time_info. KVM fills it before it runs this processor next.
struct alignas(32) SystemTime {
  uint32_t version;  // odd while it is being written
  uint32_t pad;
  uint64_t tsc_timestamp;
  uint64_t system_time;
  uint32_t multiplier;  // (ticks << shift) * multiplier >> 32 is nanoseconds
  int8_t shift;
  uint8_t flags;
  uint8_t pad2[2];
};
static_assert(sizeof(SystemTime) == 32);

constexpr uint64_t kNsPerMs = 1'000'000;

volatile SystemTime system_time;
uint64_t ticks_per_ms;

void WriteSystemTimeMsr(uint32_t low) {
  asm volatile("wrmsr" : : "c"(kMsrSystemTime), "a"(low), "d"(0) : "memory");
}

// With ticks = ns << 32 / multiplier, shifted the other way.
uint64_t RateFrom(uint32_t multiplier, int shift) {
  const uint64_t unshifted = (kNsPerMs << 32) / multiplier;
  return shift >= 0 ? unshifted >> shift : unshifted << -shift;
}

}  // namespace

bool InitClock() {
  if (ticks_per_ms != 0) return true;
  if (!Expect("clock: KVM's signature", kSignatureKvm, Cpuid(kSignatureLeaf, 0).ebx) ||
      !Expect("clock: KVM's clock", kFeatureClock2, Cpuid(kFeatureLeaf, 0).eax & kFeatureClock2)) {
    return false;
  }
  RunInRing0([] {
    WriteSystemTimeMsr(static_cast<uint32_t>(reinterpret_cast<uint64_t>(&system_time)) | kEnable);
  });
  const uint32_t multiplier = system_time.multiplier;
  if (multiplier == 0) return Expect("clock: KVM has filled it in", 1, 0);
  ticks_per_ms = RateFrom(multiplier, system_time.shift);
  RunInRing0([] { WriteSystemTimeMsr(0); });  // one reading will do
  return true;
}

uint64_t TicksPerMs() {
  return ticks_per_ms;
}

}  // namespace guest
