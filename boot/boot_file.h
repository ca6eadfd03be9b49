// A file that goes into guest memory: kernel or initrd. Read by position, never mapped, so that a
// file which shrinks meanwhile is an error and not a SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

class BootFile {
 public:
  // `kind` ("kernel") begins each error.
  static absl::StatusOr<BootFile> Open(const std::string& kind, const std::string& path);
  // For tests: takes a descriptor of any file of known size, such as a memfd.
  static absl::StatusOr<BootFile> FromFd(const std::string& kind, const std::string& path,
                                         UniqueFd fd);

  uint64_t size() const { return size_; }
  // "kernel 'vmlinuz'": how errors name it.
  const std::string& name() const { return name_; }
  // InvalidArgument if the file does not have all of [offset, offset + size of data).
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> data) const;

 private:
  BootFile(std::string name, UniqueFd fd, uint64_t size)
      : name_(std::move(name)), fd_(std::move(fd)), size_(size) {}

  std::string name_;
  UniqueFd fd_;
  uint64_t size_;
};

}  // namespace ringside
