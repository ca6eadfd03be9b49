// Memory behind a memfd, as a guest's is: zeroed, and other processes can be given it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "vfio/pci_device.h"

namespace ringside::testing {

// Gone with the object, but for those who have mapped it themselves.
class SharedPages {
 public:
  // In whole pages.
  explicit SharedPages(uint64_t size) : size_(size), fd_(memfd_create("test", MFD_CLOEXEC)) {
    if (ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) std::abort();
    void* pages = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    if (pages == MAP_FAILED) std::abort();
    host_ = static_cast<std::byte*>(pages);
  }
  ~SharedPages() { munmap(host_, size_); }
  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;

  std::byte* host() const { return host_; }
  uint64_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  DmaMapping At(uint64_t iova) const {
    return {.host = host_, .size = size_, .iova = iova, .fd = fd_.get()};
  }

 private:
  uint64_t size_;
  UniqueFd fd_;
  std::byte* host_;
};

}  // namespace ringside::testing
