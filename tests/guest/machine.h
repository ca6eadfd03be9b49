// The machine as the guest touches it: port I/O, memory-mapped registers, CPUID, the time stamp
// counter. Ring 3 may do all of this (boot.S sees to it). No state, no policy.

#ifndef RINGSIDE_TESTS_GUEST_MACHINE_H_
#define RINGSIDE_TESTS_GUEST_MACHINE_H_

#include <cstdint>

namespace guest {

constexpr uint64_t kPageSize = 4096;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMappedEnd = 8 * kGiB;     // boot.S maps physical 0 up to here
constexpr uint64_t kHighWindow = 256 * kGiB;  // and 1 GiB here, where Firecracker has its BARs

// Whether the guest can reach all of it.
constexpr bool IsMapped(uint64_t start, uint64_t size) {
  const auto within = [=](uint64_t low, uint64_t high) {
    return start >= low && start < high && size <= high - start;
  };
  return within(0, kMappedEnd) || within(kHighWindow, kHighWindow + kGiB);
}

inline void Out8(uint16_t port, uint8_t value) {
  asm volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}
inline void Out16(uint16_t port, uint16_t value) {
  asm volatile("outw %0, %1" : : "a"(value), "Nd"(port));
}
inline void Out32(uint16_t port, uint32_t value) {
  asm volatile("outl %0, %1" : : "a"(value), "Nd"(port));
}

inline uint8_t In8(uint16_t port) {
  uint8_t value;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
inline uint16_t In16(uint16_t port) {
  uint16_t value;
  asm volatile("inw %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}
inline uint32_t In32(uint16_t port) {
  uint32_t value;
  asm volatile("inl %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

// Device registers and guest RAM by physical address, one access of exactly T's width.
template <typename T>
T Load(uint64_t address) {
  return *reinterpret_cast<volatile T*>(address);
}
template <typename T>
void Store(uint64_t address, T value) {
  *reinterpret_cast<volatile T*>(address) = value;
}

struct CpuidResult {
  uint32_t eax, ebx, ecx, edx;
};
inline CpuidResult Cpuid(uint32_t leaf, uint32_t subleaf) {
  CpuidResult r;
  asm volatile("cpuid"
               : "=a"(r.eax), "=b"(r.ebx), "=c"(r.ecx), "=d"(r.edx)
               : "a"(leaf), "c"(subleaf));
  return r;
}

inline uint64_t TimeStamp() {
  uint32_t low, high;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return uint64_t{high} << 32 | low;
}

inline void Pause() {
  asm volatile("pause" : : : "memory");
}

inline unsigned CurrentPrivilegeLevel() {
  uint16_t code_selector;
  asm volatile("mov %%cs, %0" : "=r"(code_selector));
  return code_selector & 3;
}

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_MACHINE_H_
