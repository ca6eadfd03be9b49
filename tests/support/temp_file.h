// Files for disks, gone with the test, and bytes to tell them by.
#pragma once

#include <cstdint>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include "base/fd.h"
#include "tests/support/descriptors.h"

namespace ringside::testing {

// tmpfs, where io_uring always goes through a worker; and where the tests are built, a disk.
inline const char* const kTestDirectories[] = {"/dev/shm", "."};

// Bytes that differ from block to block and from seed to seed.
inline std::string Pattern(size_t size, char seed) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(seed + i * 7 + i / 512);
  return text;
}

// A file of random name, gone with the object.
class TempFile {
 public:
  explicit TempFile(uint64_t size, const std::string& directory = "/dev/shm")
      : path_(directory + "/ringside-test-XXXXXX") {
    fd_ = UniqueFd(Must(mkostemp(path_.data(), O_CLOEXEC), "mkostemp"));
    Resize(size);
  }
  ~TempFile() { unlink(path_.c_str()); }
  TempFile(const TempFile&) = delete;

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  // It is there, and nobody has it open for writing.
  void Close() { fd_ = UniqueFd(); }
  void Resize(uint64_t size) { Must(ftruncate(fd(), static_cast<off_t>(size)), "ftruncate"); }
  void Fill(uint64_t offset, const std::string& text) {
    Must(static_cast<int>(pwrite(fd(), text.data(), text.size(), static_cast<off_t>(offset))),
         "pwrite");
  }
  std::string Content(uint64_t offset, size_t size) const {
    std::string text(size, '?');
    text.resize(static_cast<size_t>(Must(
        static_cast<int>(pread(fd(), text.data(), size, static_cast<off_t>(offset))), "pread")));
    return text;
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

}  // namespace ringside::testing
