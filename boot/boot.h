// Puts a kernel, its initrd, its command line and what it must be told into guest memory, and says
// in which state the first vCPU is to enter it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "boot/boot_file.h"
#include "boot/kernel_image.h"
#include "devices/guest_memory.h"
#include "ringside/config.h"

namespace ringside {

// The first vCPU's state at its first instruction.
struct BootEntry {
  BootProtocol protocol;  // kLinux: 64-bit mode; kPvh: 32-bit flat mode, paging off
  uint64_t address;
  uint64_t info;  // guest address of boot_params (rsi) or start_info (ebx)
};

struct BootRequest {
  const BootFile& kernel;
  const BootFile* initrd;  // may be null
  const std::string& command_line;
  BootProtocol protocol;
  uint64_t acpi_rsdp;
};

// InvalidArgument names what does not fit and how much it would take. Every byte is read from the
// files straight into guest memory.
absl::StatusOr<BootEntry> LoadKernel(const BootRequest& request, const GuestMemory& memory);

}  // namespace ringside
