// Reads and writes of a file that go on where a signal or the kernel has ended them. A read of
// Linux moves at most 2 GiB at once (read(2)).
//
// Threads: any.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unistd.h>

namespace ringside {

// How many bytes there were, fewer than asked for only at the file's end; or -errno.
inline ssize_t ReadWholeAt(int fd, std::span<std::byte> bytes, uint64_t offset) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -errno;
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<ssize_t>(done);
}

// 0 or -errno; -ENOSPC where the kernel takes none.
inline int WriteWholeAt(int fd, std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return put == 0 ? -ENOSPC : -errno;
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return 0;
}

}  // namespace ringside
