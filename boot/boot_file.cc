#include "boot/boot_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "base/whole_io.h"

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
  const ssize_t got = ReadWholeAt(fd_.get(), data, offset);
  if (got < 0) return ErrnoError(static_cast<int>(-got), "cannot read " + name_);
  if (static_cast<size_t>(got) < data.size()) {
    return BadInput("%s is truncated: it ends at byte %d", name_,
                    offset + static_cast<uint64_t>(got));
  }
  return absl::OkStatus();
}

}  // namespace ringside
