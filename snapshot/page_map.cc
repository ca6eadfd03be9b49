#include "snapshot/page_map.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/pages.h"

namespace ringside {

PageMap::PageMap() : fd_(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}

std::span<uint64_t> PageMap::Read(const std::byte* host, std::span<uint64_t> entries) const {
  const uint64_t page = reinterpret_cast<uintptr_t>(host) / kPageSize;
  const ssize_t got = pread(fd_.get(), entries.data(), entries.size_bytes(),
                            static_cast<off_t>(page * sizeof(uint64_t)));
  return got <= 0 ? std::span<uint64_t>()
                  : entries.first(static_cast<size_t>(got) / sizeof(uint64_t));
}

}  // namespace ringside
