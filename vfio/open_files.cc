#include "vfio/open_files.h"

#include "absl/strings/numbers.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;

// Some 0.1 s: an error message is not worth more.
constexpr int kMostDescriptors = 100'000;

// `left`: how many descriptors may still be looked at.
bool HasOpen(const fs::path& descriptors, const std::string& path, int& left) {
  std::error_code error;
  for (fs::directory_iterator entry(descriptors, error), end; !error && entry != end;
       entry.increment(error)) {
    if (--left < 0) return false;
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) == path) return true;
  }
  return false;
}

}  // namespace

std::optional<pid_t> ProcessWithOpen(const std::string& path, const fs::path& proc) {
  int left = kMostDescriptors;
  std::error_code error;
  for (fs::directory_iterator entry(proc, error), end; !error && entry != end && left > 0;
       entry.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->path().filename().string(), &pid) &&
        HasOpen(entry->path() / "fd", path, left)) {
      return pid;
    }
  }
  return std::nullopt;
}

}  // namespace ringside
