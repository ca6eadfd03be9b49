// Directories: one of a test's own, and what others hold.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <string>

namespace ringside::testing {

// A directory for this process alone, gone with the object.
class TempDirectory {
 public:
  explicit TempDirectory(const std::string& parent = ::testing::TempDir()) {
    std::string name = std::filesystem::path(parent) / "ringside-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempDirectory() { std::filesystem::remove_all(path_); }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ / name; }
  // Other users may look in, too.
  void OpenToAll() const { std::filesystem::permissions(path_, std::filesystem::perms(0755)); }

 private:
  std::filesystem::path path_;
};

// Of /proc/self/fd, for example.
inline size_t CountEntries(const char* directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

}  // namespace ringside::testing
