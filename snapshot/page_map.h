// What the kernel says of pages that this process has mapped: /proc/self/pagemap, which needs no
// rights but for the addresses that it then leaves out.
//
// Threads: any. Spec: Linux Documentation/admin-guide/mm/pagemap.rst.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/fd.h"

namespace ringside {

class PageMap {
 public:
  PageMap();

  // The entries of the pages from `host` on; fewer, or none, where it cannot be told: see errno.
  std::span<uint64_t> Read(const std::byte* host, std::span<uint64_t> entries) const;

  // It is in memory or swapped out, and not to be read or made at first touch.
  static bool IsThere(uint64_t entry) {
    constexpr uint64_t kPresent = uint64_t{1} << 63, kSwapped = uint64_t{1} << 62;
    return (entry & (kPresent | kSwapped)) != 0;
  }
  // Of a mapping that is copied on write: somebody has written to it.
  static bool IsAnonymous(uint64_t entry) {
    constexpr uint64_t kOfFile = uint64_t{1} << 61;
    return IsThere(entry) && (entry & kOfFile) == 0;
  }

 private:
  const UniqueFd fd_;
};

}  // namespace ringside
