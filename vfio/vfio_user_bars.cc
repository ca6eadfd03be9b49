#include "vfio/vfio_user_bars.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/pages.h"
#include "base/status.h"

namespace ringside {
namespace {

// In place of what is at `address`, which others may access meanwhile: they meet the old pages or
// the new. By the system call itself, as ThreadSanitizer takes the library's for a write.
void* MapInstead(std::byte* address, uint64_t size, int flags, int fd, uint64_t offset) {
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, PROT_READ | PROT_WRITE,
                                         flags | MAP_FIXED, fd, static_cast<off_t>(offset)));
}

}  // namespace

VfioUserBars::~VfioUserBars() {
  for (const Mapping& mapping : mappings_) munmap(mapping.address, mapping.size);
}

absl::Status VfioUserBars::Attach(Regions regions) {
  const MutexLock lock(mutex_);
  regions_ = std::move(regions);
  attached_ = true;
  for (Mapping& mapping : mappings_) RINGSIDE_RETURN_IF_ERROR(MapPages(mapping));
  return absl::OkStatus();
}

void VfioUserBars::Detach() {
  const MutexLock lock(mutex_);
  attached_ = false;
  regions_ = {};
  for (const Mapping& mapping : mappings_) {
    // Where that fails the server's pages stay, of which nobody hears.
    MapInstead(mapping.address, mapping.size, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
}

absl::StatusOr<std::byte*> VfioUserBars::Map(size_t bar, uint64_t offset, uint64_t size) {
  const MutexLock lock(mutex_);
  if (!attached_) {
    return absl::UnavailableError(absl::StrFormat("vfio-user device '%s' is gone", device_));
  }
  const uint64_t bar_size = regions_[bar].layout.size;
  if (offset > bar_size || size > bar_size - offset) {
    return absl::OutOfRangeError(
        absl::StrFormat("there are no %d bytes at offset %#x of BAR %d of vfio-user device '%s': "
                        "it has %d",
                        size, offset, bar, device_, bar_size));
  }
  const uint64_t first = PageDown(offset);
  Mapping mapping = {
      .bar = bar, .offset = first, .size = PageUp(offset + size) - first, .address = nullptr};
  RINGSIDE_RETURN_IF_ERROR(MapPages(mapping));
  mappings_.push_back(mapping);
  return mapping.address + (offset - first);
}

absl::Status VfioUserBars::MapPages(Mapping& mapping) {
  const VfioUserRegion& region = regions_[mapping.bar];
  const std::string what =
      absl::StrFormat("%d bytes at offset %#x of BAR %d of vfio-user device '%s'", mapping.size,
                      mapping.offset, mapping.bar, device_);
  const bool allowed = std::ranges::any_of(region.layout.areas, [&](const MappableArea& area) {
    const uint64_t whole = PageUp(area.size);
    return mapping.offset >= area.offset && mapping.offset - area.offset <= whole &&
           mapping.size <= whole - (mapping.offset - area.offset);
  });
  if (!allowed) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "its server does not let clients map %s: start it so that doorbells are memory", what));
  }
  // Behind the end of the file an access ends the process. Sealed first, measured then; what takes
  // no seal is trusted, see the header.
  fcntl(region.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  struct stat file;
  const uint64_t offset = region.layout.offset + mapping.offset;
  if (fstat(region.fd.get(), &file) != 0) return ErrnoError(errno, "cannot map " + what);
  if (S_ISREG(file.st_mode) && (static_cast<uint64_t>(file.st_size) < offset ||
                                static_cast<uint64_t>(file.st_size) - offset < mapping.size)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("cannot map %s: its server's file ends before", what));
  }
  void* pages =
      mapping.address == nullptr
          ? mmap(nullptr, mapping.size, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd.get(),
                 static_cast<off_t>(offset))
          : MapInstead(mapping.address, mapping.size, MAP_SHARED, region.fd.get(), offset);
  if (pages == MAP_FAILED) return ErrnoError(errno, "cannot map " + what);
  // And so does one to a page that the file has no room for: now it is an error. Linux before 5.14
  // knows no such advice.
  if (madvise(pages, mapping.size, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    const absl::Status status = ErrnoError(errno, "cannot map the pages of " + what);
    if (mapping.address == nullptr) munmap(pages, mapping.size);
    return status;
  }
  mapping.address = static_cast<std::byte*>(pages);
  return absl::OkStatus();
}

}  // namespace ringside
