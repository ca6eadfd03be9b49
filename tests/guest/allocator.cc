// See allocator.h.

#include "allocator.h"

#include <cstring>

#include "console.h"
#include "end.h"
#include "machine.h"

namespace guest {

extern "C" const char guest_image_end[];  // guest.ld

namespace {

uint64_t next;
uint64_t end;

}  // namespace

void InitAllocator(const BootInfo& info) {
  const auto image_end = reinterpret_cast<uint64_t>(guest_image_end);
  next = (image_end + kPageSize - 1) & ~(kPageSize - 1);
  end = next;
  for (const MemoryRange& range : info.memory_map()) {
    if (range.type != kMemoryTypeRam || range.start > image_end) continue;
    if (range.start + range.size > end) end = range.start + range.size;
  }
}

uint64_t AllocatePages(uint64_t size) {
  const uint64_t rounded = (size + kPageSize - 1) & ~(kPageSize - 1);
  if (rounded > end - next) {
    Say("FAIL memory: expected room for ", Decimal{rounded}, " bytes got ", Decimal{end - next});
    End();
  }
  const uint64_t address = next;
  next += rounded;
  std::memset(reinterpret_cast<void*>(address), 0, rounded);
  return address;
}

uint64_t AllocatorMark() {
  return next;
}

void ReleaseMemory(uint64_t mark) {
  next = mark;
}

uint64_t AllocatorEnd() {
  return end;
}

}  // namespace guest
