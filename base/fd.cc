#include "base/fd.h"

#include <cerrno>
#include <fstream>
#include <string>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ringside {

absl::StatusOr<EventFd> EventFd::Create() {
  UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return ErrnoError(errno, "cannot create an eventfd", "raise 'ulimit -n'");
  return EventFd(std::move(fd));
}

void EventFd::Signal() const {
  const uint64_t one = 1;
  // Fails only with EAGAIN at 2^64 - 2 signals nobody has cleared: still readable, nothing lost.
  [[maybe_unused]] const ssize_t written = write(fd_.get(), &one, sizeof one);
}

// RWF_NOWAIT, whatever O_NONBLOCK says: that belongs to all who have the eventfd, and a vfio-user
// server that has been given it can take it away.
uint64_t EventFd::Clear() const {
  uint64_t count = 0;
  const iovec vector = {.iov_base = &count, .iov_len = sizeof count};
  return preadv2(fd_.get(), &vector, 1, -1, RWF_NOWAIT) == sizeof count ? count : 0;
}

uint64_t EventFd::count() const {
  std::ifstream info(absl::StrFormat("/proc/self/fdinfo/%d", fd_.get()));
  for (std::string key; info >> key;) {
    uint64_t count = 0;
    if (key == "eventfd-count:" && info >> std::hex >> count) return count;
  }
  return 0;
}

}  // namespace ringside
