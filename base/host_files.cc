#include "base/host_files.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "base/number_list.h"

namespace ringside {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

std::optional<int64_t> FirstNumber(const fs::path& path) {
  return ParseNumber<int64_t>(FirstLine(path));
}

std::vector<std::string> NamesIn(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

std::string LinkName(const fs::path& link) {
  std::error_code error;
  return fs::read_symlink(link, error).filename();
}

fs::path RealPath(const fs::path& path) {
  std::error_code error;
  return fs::canonical(path, error);
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace ringside
