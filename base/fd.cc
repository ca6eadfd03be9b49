#include "base/fd.h"

#include <cerrno>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

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

uint64_t EventFd::Clear() const {
  uint64_t count = 0;
  return read(fd_.get(), &count, sizeof count) == sizeof count ? count : 0;
}

}  // namespace ringside
