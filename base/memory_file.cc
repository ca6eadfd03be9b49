#include "base/memory_file.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {

absl::StatusOr<UniqueFd> CreateMemoryFile(const char* name, uint64_t size, MemoryFileUse use,
                                          MemoryFilePages pages) {
  const bool is_huge = pages == MemoryFilePages::k2M;
  UniqueFd fd(memfd_create(
      name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (is_huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U)));
  if (!fd.valid()) {
    return ErrnoError(errno, absl::StrFormat("cannot create %s", name),
                      is_huge ? "this host's kernel may have no huge pages of 2M" : "");
  }
  if (ftruncate(fd.get(), static_cast<off_t>(size)) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot size %s to %d bytes", name, size),
                      "ask for less memory or raise 'ulimit -f'");
  }
  const int no_more = use == MemoryFileUse::kStaysWritable ? F_SEAL_SEAL : 0;
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | no_more) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot seal %s", name));
  }
  return fd;
}

}  // namespace ringside
