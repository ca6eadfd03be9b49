#include "boot/boot_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {

absl::StatusOr<BootFile> BootFile::Open(const std::string& kind, const std::string& path) {
  // O_NONBLOCK: a FIFO must not stall the open before it can be refused.
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) return ErrnoError(errno, absl::StrFormat("cannot open %s '%s'", kind, path));
  return FromFd(kind, path, std::move(fd));
}

absl::StatusOr<BootFile> BootFile::FromFd(const std::string& kind, const std::string& path,
                                          UniqueFd fd) {
  std::string name = absl::StrFormat("%s '%s'", kind, path);
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, "cannot stat " + name);
  if (S_ISDIR(info.st_mode)) return BadInput("%s is a directory; name a file", name);
  if (!S_ISREG(info.st_mode)) return BadInput("%s is not a regular file", name);
  if (info.st_size == 0) return BadInput("%s is empty", name);
  return BootFile(std::move(name), std::move(fd), static_cast<uint64_t>(info.st_size));
}

absl::Status BootFile::ReadAt(uint64_t offset, std::span<std::byte> data) const {
  while (!data.empty()) {
    const ssize_t got = pread(fd_.get(), data.data(), data.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "cannot read " + name_);
    if (got == 0) return BadInput("%s is truncated: it ends at byte %d", name_, offset);
    offset += static_cast<uint64_t>(got);
    data = data.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

}  // namespace ringside
