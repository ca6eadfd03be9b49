// Of linux/virtio_ring.h what is C alone.
#define VIRTIO_RING_NO_LEGACY

#include "tests/support/net/fake_vhost.h"

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <fcntl.h>
#include <linux/vhost.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ringside::testing {
namespace {

// A number of a descriptor goes to one of the ring's.
int SetFile(int FakeVhost::Ring::* which, const void* argument) {
  const auto* file = static_cast<const vhost_vring_file*>(argument);
  FakeVhost& vhost = FakeVhost::Get();
  const std::lock_guard lock(vhost.mutex);
  vhost.rings.at(file->index).*which = file->fd;
  return 0;
}

int Answer(unsigned long request, void* argument) {
  FakeVhost& vhost = FakeVhost::Get();
  switch (request) {
    case VHOST_GET_FEATURES:
      *static_cast<uint64_t*>(argument) = ~uint64_t{0};
      return 0;
    case VHOST_NET_SET_BACKEND:
      return SetFile(&FakeVhost::Ring::backend, argument);
    case VHOST_SET_VRING_KICK:
      return SetFile(&FakeVhost::Ring::kick, argument);
    case VHOST_SET_VRING_CALL:
      return SetFile(&FakeVhost::Ring::call, argument);
    case VHOST_SET_VRING_ERR:
      return SetFile(&FakeVhost::Ring::broken, argument);
    case VHOST_SET_VRING_BASE:
    case VHOST_GET_VRING_BASE: {
      auto* const state = static_cast<vhost_vring_state*>(argument);
      const std::lock_guard lock(vhost.mutex);
      uint32_t& position = vhost.rings.at(state->index).position;
      if (request == VHOST_SET_VRING_BASE) {
        position = state->num;
      } else {
        state->num = position;
      }
      return 0;
    }
    default:
      return 0;  // an owner, memory, sizes, addresses
  }
}

}  // namespace

FakeVhost& FakeVhost::Get() {
  static FakeVhost vhost;
  return vhost;
}

void FakeVhost::Break(size_t index) {
  const uint64_t one = 1;
  if (write(ring(index).broken, &one, sizeof one) != sizeof one) abort();
}

}  // namespace ringside::testing

// In front of the C library's.
extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (_IOC_TYPE(request) == VHOST_VIRTIO) return ringside::testing::Answer(request, argument);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const int mode = va_arg(arguments, int);
  va_end(arguments);
  if (std::strcmp(path, "/dev/vhost-net") == 0) return eventfd(0, EFD_CLOEXEC);
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
