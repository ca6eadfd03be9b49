// vhost-net as a kernel that has it answers, for the whole test program: /dev/vhost-net can be
// opened, and its ioctls are kept here instead of reaching the kernel. No frames are carried.
//
// Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace ringside::testing {

struct FakeVhost {
  struct Ring {
    int backend = -1, kick = -1, call = -1, broken = -1;
    uint32_t position = 0;
  };

  static FakeVhost& Get();
  Ring ring(size_t index) {
    const std::lock_guard lock(mutex);
    return rings.at(index);
  }
  // As the kernel does when it finds that the driver breaks the rules.
  void Break(size_t index);

  std::mutex mutex;
  std::array<Ring, 2> rings;
};

}  // namespace ringside::testing
