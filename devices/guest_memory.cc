#include "devices/guest_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
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
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd,
                            CreateMemoryFile("guest-memory", total, MemoryFileUse::kMayBeFrozen));
  std::unique_ptr<GuestMemory> memory(new GuestMemory(true, nodes));
  memory->fd_ = std::move(fd);
  RINGSIDE_RETURN_IF_ERROR(memory->Map(memory->fd_, ranges));
  return memory;
}

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::CopyOnWrite(const UniqueFd& file,
                                                                      std::span<const Range> ranges,
                                                                      std::span<const int> nodes) {
  std::unique_ptr<GuestMemory> memory(new GuestMemory(false, nodes));
  RINGSIDE_RETURN_IF_ERROR(memory->Map(file, ranges));
  return memory;
}

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::OnDemand(std::span<const Range> ranges,
                                                                   std::span<const int> nodes) {
  std::unique_ptr<GuestMemory> memory(new GuestMemory(false, nodes));
  RINGSIDE_ASSIGN_OR_RETURN(memory->userfault_, Userfault::Create());
  RINGSIDE_RETURN_IF_ERROR(memory->Map(UniqueFd(), ranges));
  for (const MemoryRegion& region : memory->regions_) {
    RINGSIDE_RETURN_IF_ERROR(memory->userfault_->Register({region.host, region.size}));
  }
  return memory;
}

absl::Status GuestMemory::Map(const UniqueFd& file, std::span<const Range> ranges) {
  uint64_t offset = 0;
  for (const Range& range : ranges) {
    RINGSIDE_ASSIGN_OR_RETURN(void* const host, Map(file.get(), offset, range.size, nullptr));
    regions_.push_back({.guest_address = range.guest_address,
                        .size = range.size,
                        .host = static_cast<std::byte*>(host),
                        .fd = file.get(),
                        .fd_offset = offset,
                        .index = static_cast<uint16_t>(regions_.size())});
    offset += range.size;
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> GuestMemory::Map(int fd, uint64_t offset, uint64_t size, void* where) const {
  const int flags = (is_shared() ? MAP_SHARED : MAP_PRIVATE) | MAP_NORESERVE |
                    (fd < 0 ? MAP_ANONYMOUS : 0) | (where == nullptr ? 0 : MAP_FIXED);
  void* host = mmap(where, size, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (host == MAP_FAILED) {
    return ErrnoError(errno, absl::StrFormat("cannot map %d bytes of guest memory", size),
                      "ask for less memory or raise 'ulimit -v'");
  }
  if (absl::Status bound = BindMemory(host, size, nodes_); !bound.ok()) {
    if (where == nullptr) munmap(host, size);
    return bound;
  }
  madvise(host, size, MADV_DONTDUMP);  // a core dump is about the machine, not the guest
  return host;
}

absl::Status GuestMemory::MapAgain(bool is_shared) {
  is_shared_.store(is_shared, std::memory_order_relaxed);
  for (const MemoryRegion& region : regions_) {
    RINGSIDE_RETURN_IF_ERROR(Map(region.fd, region.fd_offset, region.size, region.host).status());
  }
  return absl::OkStatus();
}

absl::Status GuestMemory::Freeze() {
  absl::Status status = MapAgain(false);
  // No mapping that could write is left but of those who were given the descriptor: then EBUSY.
  if (status.ok() && fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_WRITE) != 0) {
    status = ErrnoError(errno, "cannot seal the guest's memory",
                        "whoever shares it, such as a vfio-user server, has to leave it");
  }
  if (!status.ok()) RINGSIDE_RETURN_IF_ERROR(MapAgain(true));
  return status;
}

void GuestMemory::NoteWrites(bool on) {
  if (on && writes_ == nullptr) writes_ = std::make_unique<WriteLog>(regions_);
  if (on) writes_->Clear();
  write_log_.store(on ? writes_.get() : nullptr, std::memory_order_relaxed);
}

bool GuestMemory::Drop() const {
  return std::ranges::all_of(regions_, [this](const MemoryRegion& region) {
    return userfault_->Drop({region.host, region.size});
  });
}

GuestMemory::~GuestMemory() {
  for (const MemoryRegion& region : regions_) munmap(region.host, region.size);
}

}  // namespace ringside
