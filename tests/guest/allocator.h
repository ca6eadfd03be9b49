// Memory for rings and buffers: from the end of the guest's image to the end of that RAM range,
// handed out upwards and taken back only from the top. What the loader left there (BootInfo has
// copied all but the initrd) may be overwritten.

#ifndef RINGSIDE_TESTS_GUEST_ALLOCATOR_H_
#define RINGSIDE_TESTS_GUEST_ALLOCATOR_H_

#include <cstdint>

#include "boot_info.h"

namespace guest {

void InitAllocator(const BootInfo& info);

// Physical address of `size` bytes, filled with zeroes and aligned to a page. Ends the guest with a
// FAIL line if there is no room.
uint64_t AllocatePages(uint64_t size);

template <typename T>
T* AllocateArray(uint64_t count) {
  return reinterpret_cast<T*>(AllocatePages(count * sizeof(T)));
}

// A place to come back to: ReleaseMemory takes back all that was allocated since.
uint64_t AllocatorMark();
void ReleaseMemory(uint64_t mark);

// First address behind the RAM that AllocatePages hands out.
uint64_t AllocatorEnd();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_ALLOCATOR_H_
