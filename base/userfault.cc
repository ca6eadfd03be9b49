#include "base/userfault.h"

#include <cerrno>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "base/memory_file.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr char kDevice[] = "/dev/userfaultfd";

// The device first, which a user may be given: without it the pages that KVM waits for are only for
// those who may trace others' processes.
absl::StatusOr<UniqueFd> Open() {
  constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
  const UniqueFd device(open(kDevice, O_RDWR | O_CLOEXEC));
  const int device_error = errno;
  if (device.valid()) {
    UniqueFd fd(ioctl(device.get(), USERFAULTFD_IOC_NEW, kFlags));
    if (fd.valid()) return fd;
    return ErrnoError(errno, absl::StrFormat("cannot make a userfaultfd of %s", kDevice));
  }
  UniqueFd fd(static_cast<int>(syscall(SYS_userfaultfd, kFlags)));
  if (fd.valid()) return fd;
  if (errno == EPERM) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "cannot make a userfaultfd (%s): let this user open %s for reading and writing, or set "
        "vm.unprivileged_userfaultfd=1",
        Message(ErrnoError(device_error, kDevice)), kDevice));
  }
  return ErrnoError(errno, "cannot make a userfaultfd", "the kernel needs CONFIG_USERFAULTFD");
}

}  // namespace

absl::StatusOr<Userfault> Userfault::Create() {
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd fd, Open());
  uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_EVENT_REMOVE, .ioctls = 0};
  if (ioctl(fd.get(), UFFDIO_API, &api) != 0) {
    return ErrnoError(errno, "this kernel's userfaultfd does not tell of discarded pages");
  }
  RINGSIDE_ASSIGN_OR_RETURN(UniqueFd nothing, CreateMemoryFile("dropped-memory", 0));
  return Userfault(std::move(fd), std::move(nothing));
}

absl::Status Userfault::Register(std::span<std::byte> mapping) const {
  uffdio_register registration = {
      .range = {.start = reinterpret_cast<uintptr_t>(mapping.data()), .len = mapping.size()},
      .mode = UFFDIO_REGISTER_MODE_MISSING,
      .ioctls = 0};
  if (ioctl(fd_.get(), UFFDIO_REGISTER, &registration) == 0) return absl::OkStatus();
  return ErrnoError(errno, absl::StrFormat("cannot register %d bytes of memory with a userfaultfd",
                                           mapping.size()));
}

bool Userfault::Drop(std::span<std::byte> mapping) const {
  // Shared, as such a mapping is not counted as memory that the process may need.
  if (mmap(mapping.data(), mapping.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
           nothing_.get(), 0) == MAP_FAILED) {
    return false;
  }
  // Whoever came upon a missing page before that is in the queue by now, and looks again.
  uffdio_range range = {.start = reinterpret_cast<uintptr_t>(mapping.data()),
                        .len = mapping.size()};
  return ioctl(fd_.get(), UFFDIO_WAKE, &range) == 0;
}

}  // namespace ringside
