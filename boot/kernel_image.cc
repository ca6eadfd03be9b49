#include "boot/kernel_image.h"

#include <array>
#include <cstring>
#include <elf.h>

#include "base/status.h"

namespace ringside {

absl::StatusOr<KernelImage> ParseKernelImage(const BootFile& file) {
  std::array<std::byte, SELFMAG> magic;
  if (file.size() >= magic.size()) {
    RINGSIDE_RETURN_IF_ERROR(file.ReadAt(0, magic));
    if (std::memcmp(magic.data(), ELFMAG, SELFMAG) == 0) return ParseElf(file);
  }
  return ParseBzImage(file);
}

}  // namespace ringside
