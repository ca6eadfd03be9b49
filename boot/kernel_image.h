// What a kernel file holds: where its bytes go in guest memory, and where to enter it.
//
// bzImage: Linux Documentation/arch/x86/boot.rst, 64-bit boot protocol. ELF: System V gABI chapter
// 4 and 5; its 64-bit entry takes the same protocol, and a Xen note (xen/include/public/elfnote.h,
// XEN_ELFNOTE_PHYS32_ENTRY) gives the PVH entry.
//
// The file is hostile input: every offset and size is checked here, without overflow. What depends
// on the machine's memory is checked when it is loaded (boot/boot.h).
#pragma once

#include <asm/bootparam.h>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "boot/boot_file.h"

namespace ringside {

struct KernelSegment {
  uint64_t file_offset;
  uint64_t file_size;  // at most memory_size; the rest is zero
  uint64_t guest_address;
  uint64_t memory_size;
};

struct KernelImage {
  const char* format;                   // "bzImage" or "ELF"
  std::vector<KernelSegment> segments;  // ascending, disjoint, from 1 MiB to 3 GiB
  std::optional<uint64_t> linux_entry;  // 64-bit mode, boot_params in rsi
  std::optional<uint32_t> pvh_entry;    // 32-bit mode, start_info in ebx
  setup_header setup = {};              // for boot_params
  uint64_t initrd_address_max;          // last byte an initrd may use
  uint32_t command_line_max;            // bytes, without the zero at its end
};

// InvalidArgument in one line for whatever is not a kernel this machine can start.
absl::StatusOr<KernelImage> ParseKernelImage(const BootFile& file);

// The two formats; ParseKernelImage chooses by magic number.
absl::StatusOr<KernelImage> ParseBzImage(const BootFile& file);
absl::StatusOr<KernelImage> ParseElf(const BootFile& file);

}  // namespace ringside
