// For tests that save machines, and have others go on from what was saved.
#pragma once

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "tests/support/directories.h"
#include "tests/support/vmm/pausing_machine.h"

namespace ringside::testing {

class SavingMachine : public PausingMachine {
 protected:
  // Each has its own place.
  std::string Place(int number) const { return directory_.path() / std::to_string(number); }
  // Saves it, and ends it as a cut of the power would.
  static void SaveAndEnd(std::unique_ptr<Machine> machine, const std::string& place) {
    ASSERT_TRUE(machine->Pause().ok());
    ASSERT_EQ(machine->Save(place), absl::OkStatus());
  }
  static void GoOnFrom(const std::string& place, MachineConfig& config) {
    config.kernel.clear();
    config.restore = place;
  }
  static std::string Read(const std::string& path) {
    std::string content(std::filesystem::file_size(path), '\0');
    std::ifstream(path, std::ios::binary)
        .read(content.data(), static_cast<std::streamsize>(content.size()));
    return content;
  }
  static void Write(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  }

  const TempDirectory directory_;
};

}  // namespace ringside::testing
