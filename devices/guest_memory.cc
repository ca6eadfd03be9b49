#include "devices/guest_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <span>
#include <string>
#include <sys/mman.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_join.h"
#include "base/host_nodes.h"
#include "base/huge_pages.h"
#include "base/memory_file.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::Create(std::span<const Range> ranges,
                                                                 std::span<const int> nodes,
                                                                 HugePages huge_pages) {
  uint64_t total = 0;
  for (const Range& range : ranges) total += range.size;
  // Sealed: a vfio-user server is given the descriptor.
  RINGSIDE_ASSIGN_OR_RETURN(
      UniqueFd fd, CreateMemoryFile("guest-memory", total, MemoryFileUse::kMayBeFrozen,
                                    huge_pages == HugePages::k2M ? MemoryFilePages::k2M
                                                                 : MemoryFilePages::kSmall));
  std::unique_ptr<GuestMemory> memory(new GuestMemory(true, nodes, huge_pages));
  memory->fd_ = std::move(fd);
  RINGSIDE_RETURN_IF_ERROR(memory->Map(memory->fd_, ranges));
  return memory;
}

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::CopyOnWrite(const UniqueFd& file,
                                                                      std::span<const Range> ranges,
                                                                      std::span<const int> nodes) {
  const HugePages huge_pages = IsOfHugePages(file.get()) ? HugePages::k2M : HugePages::kOff;
  std::unique_ptr<GuestMemory> memory(new GuestMemory(false, nodes, huge_pages));
  RINGSIDE_RETURN_IF_ERROR(memory->Map(file, ranges));
  return memory;
}

absl::StatusOr<std::unique_ptr<GuestMemory>> GuestMemory::OnDemand(std::span<const Range> ranges,
                                                                   std::span<const int> nodes) {
  std::unique_ptr<GuestMemory> memory(new GuestMemory(false, nodes, HugePages::kOff));
  RINGSIDE_ASSIGN_OR_RETURN(memory->userfault_, Userfault::Create());
  RINGSIDE_RETURN_IF_ERROR(memory->Map(UniqueFd(), ranges));
  for (const MemoryRegion& region : memory->regions_) {
    RINGSIDE_RETURN_IF_ERROR(memory->userfault_->Register({region.host, region.size}));
  }
  return memory;
}

absl::Status GuestMemory::Map(const UniqueFd& file, std::span<const Range> ranges) {
  for (const Range& range : ranges) size_ += range.size;
  uint64_t offset = 0;
  for (const Range& range : ranges) {
    RINGSIDE_ASSIGN_OR_RETURN(void* const host, Map(file.get(), offset, range.size, is_shared()));
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

absl::StatusOr<void*> GuestMemory::Map(int fd, uint64_t offset, uint64_t size,
                                       bool is_shared) const {
  const bool is_huge = huge_pages_ == HugePages::k2M;
  // Huge pages are reserved: too few of them are an error here, and no SIGBUS later.
  const int flags = (is_shared ? MAP_SHARED : MAP_PRIVATE) | (is_huge ? 0 : MAP_NORESERVE) |
                    (fd < 0 ? MAP_ANONYMOUS : 0);
  void* host = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (host == MAP_FAILED) {
    const int error = errno;
    return ErrnoError(error, absl::StrFormat("cannot map %d bytes of guest memory", size),
                      is_huge && error == ENOMEM
                          ? HugePagesRemedy(size_ - offset)
                          : std::string("ask for less memory or raise 'ulimit -v'"));
  }
  absl::Status status = BindMemory(host, size, nodes_);
  if (status.ok()) status = ChoosePages(host, size);
  if (!status.ok()) {
    munmap(host, size);
    return status;
  }
  madvise(host, size, MADV_DONTDUMP);  // a core dump is about the machine, not the guest
  return host;
}

absl::Status GuestMemory::ChoosePages(void* host, uint64_t size) const {
  // Where that has no effect there are small pages.
  if (huge_pages_ == HugePages::kTransparent) madvise(host, size, MADV_HUGEPAGE);
  // What is reserved may be on any node, and one of another is not used in its place: the lack of
  // one would be a SIGBUS when it is touched. So all are taken now.
  if (huge_pages_ != HugePages::k2M || nodes_.empty()) return absl::OkStatus();
  if (madvise(host, size, MADV_POPULATE_WRITE) == 0) return absl::OkStatus();
  // EFAULT stands for the SIGBUS.
  return ErrnoError(
      errno == EFAULT ? ENOMEM : errno,
      absl::StrFormat("cannot take %d huge pages of 2M from memory-node %s", size / kHugePageSize,
                      absl::StrJoin(nodes_, ",")),
      "set more aside there, in /sys/devices/system/node/nodeN/hugepages/hugepages-2048kB/"
      "nr_hugepages, or leave memory-node out");
}

absl::Status GuestMemory::MapAgain(bool is_shared) {
  // Elsewhere first: what is lacking is known before anything is given up.
  std::vector<std::span<std::byte>> mapped;
  const absl::Cleanup unmap = [&mapped] {
    for (const std::span<std::byte> piece : mapped) munmap(piece.data(), piece.size());
  };
  for (const MemoryRegion& region : regions_) {
    RINGSIDE_ASSIGN_OR_RETURN(void* const host,
                              Map(region.fd, region.fd_offset, region.size, is_shared));
    mapped.emplace_back(static_cast<std::byte*>(host), region.size);
  }
  is_shared_.store(is_shared, std::memory_order_relaxed);
  for (; !mapped.empty(); mapped.pop_back()) {
    const MemoryRegion& region = regions_[mapped.size() - 1];
    if (mremap(mapped.back().data(), region.size, region.size, MREMAP_MAYMOVE | MREMAP_FIXED,
               region.host) == MAP_FAILED) {
      return ErrnoError(errno, absl::StrFormat("cannot move %d bytes of guest memory", region.size),
                        "raise 'sysctl vm.max_map_count'");
    }
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
