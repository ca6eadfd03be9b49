// What a kernel is told at its entry: the memory map, where initrd, command line and ACPI tables
// are; as Linux's zero page or as PVH's start info.
#pragma once

#include <asm/bootparam.h>
#include <cstdint>
#include <optional>
#include <vector>

#include "devices/guest_memory.h"

namespace ringside {

// boot.rst: boot_flag and header of a setup_header.
inline constexpr uint16_t kBootFlag = 0xaa55;
inline constexpr uint32_t kHeaderMagic = 0x53726448;  // "HdrS"

struct MemoryMapEntry {
  uint64_t address;
  uint64_t size;
  uint32_t type;  // e820: 1 is memory, 2 reserved
};
std::vector<MemoryMapEntry> MemoryMap(const GuestMemory& memory);

struct BootModule {
  uint64_t address;
  uint64_t size;
};

struct BootInfo {
  uint64_t acpi_rsdp;
  std::optional<BootModule> initrd;
  setup_header setup;  // from a bzImage, else zero
};

// At kZeroPage and kPvhStartInfo; the command line is at kCommandLine.
void WriteZeroPage(const BootInfo& info, const GuestMemory& memory);
void WriteStartInfo(const BootInfo& info, const GuestMemory& memory);

}  // namespace ringside
