#include "devices/guest_memory.h"

#include <cerrno>
#include <sys/mman.h>

#include "base/host_nodes.h"
#include "base/memory_file.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::Create(std::span<const Range> ranges,
                                                                 std::span<const int> nodes) {
  uint64_t total = 0;
  for (const Range& range : ranges) total += range.size;
  // Sealed: a vfio-user server is given the descriptor.
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, CreateMemoryFile("guest-memory", total));
  std::unique_ptr<GuestMemory> memory(new GuestMemory(std::move(fd), true));
  RINGSIDE_RETURN_IF_ERROR(memory->Map(ranges, nodes));
  return memory;
}

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::CopyOnWrite(UniqueFd file,
                                                                      std::span<const Range> ranges,
                                                                      std::span<const int> nodes) {
  std::unique_ptr<GuestMemory> memory(new GuestMemory(std::move(file), false));
  RINGSIDE_RETURN_IF_ERROR(memory->Map(ranges, nodes));
  return memory;
}

absl::Status GuestMemory::Map(std::span<const Range> ranges, std::span<const int> nodes) {
  const int flags = (is_shared_ ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE;
  uint64_t offset = 0;
  for (const Range& range : ranges) {
    void* host = mmap(nullptr, range.size, PROT_READ | PROT_WRITE, flags, fd_.get(),
                      static_cast<off_t>(offset));
    if (host == MAP_FAILED) {
      return ErrnoError(errno, absl::StrFormat("cannot map %d bytes of guest memory", range.size),
                        "ask for less memory or raise 'ulimit -v'");
    }
    if (absl::Status bound = BindMemory(host, range.size, nodes); !bound.ok()) {
      munmap(host, range.size);
      return bound;
    }
    madvise(host, range.size, MADV_DONTDUMP);  // a core dump is about the machine, not the guest
    regions_.push_back({.guest_address = range.guest_address,
                        .size = range.size,
                        .host = static_cast<std::byte*>(host),
                        .fd = fd_.get(),
                        .fd_offset = offset,
                        .index = static_cast<uint16_t>(regions_.size())});
    offset += range.size;
  }
  return absl::OkStatus();
}

GuestMemory::~GuestMemory() {
  for (const MemoryRegion& region : regions_) munmap(region.host, region.size);
}

}  // namespace ringside
