// The threads of this process, by their names.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ringside::testing {

// Each one's directory in /proc.
inline std::vector<std::filesystem::path> ThreadsCalled(const std::string& name) {
  std::vector<std::filesystem::path> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream comm(entry.path() / "comm");
    std::string found;
    comm >> found;
    if (found == name) threads.push_back(entry.path());
  }
  return threads;
}

}  // namespace ringside::testing
