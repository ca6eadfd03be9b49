// The threads of this process, by their names.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/directories.h"
#include "tests/support/wait.h"

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

// Whether no more than so many are left; one that was joined is listed a moment longer.
inline bool ThreadsComeDownTo(size_t count) {
  return SpinUntil([&] { return CountEntries("/proc/self/task") <= count; });
}

}  // namespace ringside::testing
