// A bzImage: boot sector and set-up code in sectors of 512 bytes, then the protected-mode kernel,
// which decompresses itself. Field names are those of boot.rst.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "base/status.h"
#include "boot/boot_info.h"
#include "boot/kernel_image.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

constexpr uint64_t kSectorSize = 512;
constexpr uint64_t kSetupHeaderOffset = 0x1f1;
constexpr uint16_t kMinVersion = 0x020c;    // 2.12 (Linux 3.8): xloadflags
constexpr uint64_t kEntry64Offset = 0x200;  // of startup_64 in the protected-mode kernel
constexpr uint32_t kSetupSectorsDefault = 4;
constexpr uint64_t kParagraph = 16;
// Where the header's length is written: the operand of the jump at 0x200, counted from 0x202.
constexpr uint64_t kHeaderLengthOffset = 0x201 - kSetupHeaderOffset;

absl::Status CheckHeader(const BootFile& file, const setup_header& setup) {
  if (setup.boot_flag != kBootFlag || setup.header != kHeaderMagic) {
    return BadInput("%s is neither a bzImage nor an ELF file; give a Linux kernel for x86-64",
                    file.name());
  }
  if (setup.version < kMinVersion) {
    return BadInput("%s speaks boot protocol %d.%02d; 2.12 (Linux 3.8) or later is needed",
                    file.name(), setup.version >> 8, setup.version & 0xff);
  }
  if ((setup.loadflags & LOADED_HIGH) == 0) {
    return BadInput("%s is a zImage; build it as bzImage", file.name());
  }
  if ((setup.xloadflags & XLF_KERNEL_64) == 0) {
    return BadInput("%s is a 32-bit kernel; a 64-bit one is needed", file.name());
  }
  return absl::OkStatus();
}

// Only what the file says is header: bytes behind it are code, and boot_params wants zeroes there.
void ClearBehindHeader(setup_header& setup) {
  auto* bytes = reinterpret_cast<uint8_t*>(&setup);
  const uint64_t end = 0x202 - kSetupHeaderOffset + bytes[kHeaderLengthOffset];
  if (end < sizeof setup) std::memset(bytes + end, 0, sizeof setup - end);
}

}  // namespace

absl::StatusOr<KernelImage> ParseBzImage(const BootFile& file) {
  setup_header setup = {};
  const uint64_t header_end = kSetupHeaderOffset + sizeof setup;
  if (file.size() < header_end) {
    return BadInput("%s has only %d bytes: not a kernel, or truncated", file.name(), file.size());
  }
  RINGSIDE_RETURN_IF_ERROR(
      file.ReadAt(kSetupHeaderOffset, std::as_writable_bytes(std::span(&setup, 1))));
  RINGSIDE_RETURN_IF_ERROR(CheckHeader(file, setup));
  ClearBehindHeader(setup);

  const uint32_t setup_sectors = setup.setup_sects != 0 ? setup.setup_sects : kSetupSectorsDefault;
  const uint64_t offset = (setup_sectors + 1) * kSectorSize;
  const uint64_t size = setup.syssize * kParagraph;
  // The header counts whole paragraphs, and some linkers leave the last one unfilled.
  if (file.size() + kParagraph <= offset + size) {
    return BadInput("%s is truncated: it has %d bytes, its header says %d", file.name(),
                    file.size(), offset + size);
  }
  if (size <= kEntry64Offset) return BadInput("%s holds no kernel code", file.name());
  const uint64_t memory_size = std::max<uint64_t>(size, setup.init_size);
  if (setup.pref_address < kHighMemoryStart || setup.pref_address > kLowMemoryEnd ||
      memory_size > kLowMemoryEnd - setup.pref_address) {
    return BadInput("%s wants its %d bytes loaded at %#x, outside 1 MiB to 3 GiB", file.name(),
                    memory_size, static_cast<uint64_t>(setup.pref_address));
  }

  KernelImage image = {.format = "bzImage"};
  image.segments.push_back({.file_offset = offset,
                            .file_size = std::min(size, file.size() - offset),
                            .guest_address = setup.pref_address,
                            .memory_size = memory_size});
  image.linux_entry = setup.pref_address + kEntry64Offset;
  image.setup = setup;
  image.initrd_address_max = setup.initrd_addr_max;
  image.command_line_max = setup.cmdline_size;
  return image;
}

}  // namespace ringside
