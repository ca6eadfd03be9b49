#include "boot/boot.h"

#include <algorithm>
#include <cstring>

#include "base/pages.h"
#include "base/size.h"
#include "base/status.h"
#include "boot/boot_info.h"
#include "kvm/memory_layout.h"

namespace ringside {
namespace {

uint64_t LowMemoryEnd(const GuestMemory& memory) {
  return memory.regions().front().size;
}

absl::StatusOr<BootEntry> ChooseEntry(const BootFile& kernel, const KernelImage& image,
                                      BootProtocol protocol) {
  const bool has_pvh = image.pvh_entry.has_value();
  if (protocol == BootProtocol::kPvh && !has_pvh) {
    return BadInput("%s has no PVH entry (%s without a Xen note); boot it as 'linux'",
                    kernel.name(), image.format);
  }
  if (protocol == BootProtocol::kLinux && !image.linux_entry.has_value()) {
    return BadInput("%s has no 64-bit entry; boot it as 'pvh'", kernel.name());
  }
  if (protocol == BootProtocol::kPvh || (protocol == BootProtocol::kAuto && has_pvh)) {
    return BootEntry{BootProtocol::kPvh, *image.pvh_entry, kPvhStartInfo};
  }
  return BootEntry{BootProtocol::kLinux, *image.linux_entry, kZeroPage};
}

absl::Status LoadSegments(const BootFile& kernel, const KernelImage& image,
                          const GuestMemory& memory) {
  for (const KernelSegment& segment : image.segments) {
    std::byte* host = memory.At(segment.guest_address, segment.memory_size);
    if (host == nullptr) {
      return BadInput(
          "%s needs memory from %#x to %#x, and the machine's low memory ends at %#x; "
          "give it at least %s",
          kernel.name(), segment.guest_address, segment.guest_address + segment.memory_size,
          LowMemoryEnd(memory), FormatSize(PageUp(segment.guest_address + segment.memory_size)));
    }
    RINGSIDE_RETURN_IF_ERROR(kernel.ReadAt(segment.file_offset, {host, segment.file_size}));
  }
  return absl::OkStatus();
}

// As high as the kernel allows, so that the kernel's own memory below stays in one piece.
absl::StatusOr<BootModule> LoadInitrd(const BootFile& initrd, const KernelImage& image,
                                      const GuestMemory& memory) {
  const KernelSegment& highest = image.segments.back();
  const uint64_t kernel_end = highest.guest_address + highest.memory_size;
  const uint64_t limit = std::min(kLowMemoryEnd, image.initrd_address_max + 1);
  const uint64_t top = std::min(LowMemoryEnd(memory), limit);
  const uint64_t room = top > kernel_end ? top - kernel_end : 0;
  if (initrd.size() > room || PageDown(top - initrd.size()) < kernel_end) {
    const uint64_t enough = PageUp(kernel_end + initrd.size() + kPageSize);
    return BadInput("%s of %d bytes does not fit between the kernel's end at %#x and %#x; give %s",
                    initrd.name(), initrd.size(), kernel_end, top,
                    enough <= limit ? "the machine at least " + FormatSize(enough)
                                    : "a smaller one: this kernel takes none above");
  }
  const BootModule module = {PageDown(top - initrd.size()), initrd.size()};
  std::byte* host = memory.At(module.address, module.size);
  RINGSIDE_RETURN_IF_ERROR(initrd.ReadAt(0, {host, module.size}));
  return module;
}

absl::Status WriteCommandLine(const BootRequest& request, const KernelImage& image,
                              const GuestMemory& memory) {
  const std::string& text = request.command_line;
  const uint64_t room =
      std::min<uint64_t>(image.command_line_max, kConventionalEnd - kCommandLine - 1);
  if (text.size() > room) {
    return BadInput("the command line has %d bytes, and %s takes at most %d", text.size(),
                    request.kernel.name(), room);
  }
  std::memcpy(memory.At(kCommandLine, text.size() + 1), text.c_str(), text.size() + 1);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BootEntry> LoadKernel(const BootRequest& request, const GuestMemory& memory) {
  RINGSIDE_ASSIGN_OR_RETURN(const KernelImage image, ParseKernelImage(request.kernel));
  RINGSIDE_ASSIGN_OR_RETURN(const BootEntry entry,
                            ChooseEntry(request.kernel, image, request.protocol));
  BootInfo info = {.acpi_rsdp = request.acpi_rsdp, .setup = image.setup};
  RINGSIDE_RETURN_IF_ERROR(LoadSegments(request.kernel, image, memory));
  RINGSIDE_RETURN_IF_ERROR(WriteCommandLine(request, image, memory));
  if (request.initrd != nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(info.initrd, LoadInitrd(*request.initrd, image, memory));
  }
  if (entry.protocol == BootProtocol::kPvh) {
    WriteStartInfo(info, memory);
  } else {
    WriteZeroPage(info, memory);
  }
  return entry;
}

}  // namespace ringside
