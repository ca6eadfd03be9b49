#include "tests/support/nvme/nvme_model_namespace.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <unistd.h>

#include "base/fd.h"

namespace ringside::testing {

NvmeModelMedia::NvmeModelMedia(const NvmeModelNamespace& config)
    : config_(config),
      size_(config.blocks * config.block_size),
      durable_(Map(size_, {})),
      contents_(Map(size_, config.path)),
      is_cached_(config.blocks) {
  if (!config.path.empty()) std::memcpy(durable_.get(), contents_.get(), size_);
}

NvmeModelMedia::Bytes NvmeModelMedia::Map(uint64_t size, const std::string& path) {
  UniqueFd file;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (!path.empty()) {
    file = UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file.valid() || ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
      std::perror(path.c_str());
      std::abort();
    }
    flags = MAP_SHARED;
  }
  const Unmap unmap = {.size = size + 1};  // there may be no blocks
  void* bytes = mmap(nullptr, unmap.size, PROT_READ | PROT_WRITE, flags, file.get(), 0);
  if (bytes == MAP_FAILED) throw std::bad_alloc();
  return Bytes(static_cast<std::byte*>(bytes), unmap);
}

void NvmeModelMedia::Written(uint64_t offset, uint64_t size, bool durable) {
  const uint64_t first = offset / config_.block_size;
  const uint64_t end = first + size / config_.block_size;
  for (uint64_t block = first; block < end; ++block) {
    if (durable) {
      // It may still be in the cache: to be written again then does no harm.
      Copy(contents_, durable_, block);
    } else if (!is_cached_[block]) {
      is_cached_[block] = true;
      cached_.push_back(block);
    }
  }
}

void NvmeModelMedia::Zero(uint64_t offset, uint64_t size, bool durable) {
  std::memset(contents(offset), 0, size);
  Written(offset, size, durable);
}

void NvmeModelMedia::Flush() {
  for (const uint64_t block : cached_) {
    Copy(contents_, durable_, block);
    is_cached_[block] = false;
  }
  cached_.clear();
}

void NvmeModelMedia::PowerCut(std::mt19937_64* random) {
  for (const uint64_t block : cached_) {
    if (random != nullptr && ((*random)() & 1) != 0) {
      Copy(contents_, durable_, block);
    } else {
      Copy(durable_, contents_, block);
    }
    is_cached_[block] = false;
  }
  cached_.clear();
}

void NvmeModelMedia::Copy(const Bytes& from, const Bytes& to, uint64_t block) {
  const uint64_t offset = block * config_.block_size;
  std::memcpy(to.get() + offset, from.get() + offset, config_.block_size);
}

}  // namespace ringside::testing
