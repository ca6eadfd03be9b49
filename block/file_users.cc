#include "block/file_users.h"

#include <cstdlib>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/fd.h"
#include "base/host_files.h"
#include "base/read_text.h"

namespace ringside {
namespace {

constexpr size_t kMostOfInfo = 4096;

// Of proc_pid_fdinfo(5): "flags:\t0100002", in octal. Nothing if it cannot be read.
std::optional<int> OpenFlags(const std::string& info_path) {
  const UniqueFd file(open(info_path.c_str(), O_RDONLY | O_CLOEXEC));
  const std::optional<std::string> text =
      file.valid() ? ReadText(file.get(), kMostOfInfo) : std::nullopt;
  if (!text.has_value()) return std::nullopt;
  constexpr std::string_view kFlags = "flags:\t";
  const size_t at = text->find(kFlags);
  if (at == std::string::npos) return std::nullopt;
  return static_cast<int>(std::strtol(text->c_str() + at + kFlags.size(), nullptr, 8));
}

bool HasOpen(const std::string& process, const struct stat& file, int but, bool writers_only) {
  const std::string directory = "/proc/" + process;
  for (const std::string& name : NamesIn(directory + "/fd")) {
    struct stat other = {};
    if (stat(absl::StrCat(directory, "/fd/", name).c_str(), &other) != 0) continue;
    if (other.st_dev != file.st_dev || other.st_ino != file.st_ino) continue;
    if (but >= 0 && name == std::to_string(but)) continue;
    const std::optional<int> flags = OpenFlags(absl::StrCat(directory, "/fdinfo/", name));
    if (!writers_only || (flags.has_value() && (*flags & O_ACCMODE) != O_RDONLY)) return true;
  }
  return false;
}

}  // namespace

std::string FileUser(int fd, bool writers_only) {
  struct stat file = {};
  if (fstat(fd, &file) != 0) return "another process";
  const std::string own = std::to_string(getpid());
  for (const std::string& process : NamesIn("/proc")) {
    if (process.empty() || process.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!HasOpen(process, file, process == own ? fd : -1, writers_only)) continue;
    return absl::StrFormat("process %s (%s)", process, FirstLine("/proc/" + process + "/comm"));
  }
  return "another process";
}

}  // namespace ringside
