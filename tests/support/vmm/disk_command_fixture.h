// `ringside run` with disks in a directory of the test's own, for tests that have RINGSIDE_COMMAND
// and RINGSIDE_GUEST_ELF.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/directories.h"
#include "tests/support/subprocess.h"
#include "tests/support/vmm/test_machine.h"

namespace ringside::testing {

inline constexpr size_t kMiB = 1 << 20;

class DiskCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_KVM();
    directory_.OpenToAll();
  }

  std::string MakeDisk(const std::string& name, size_t size) const {
    const std::string path = directory_ / name;
    std::ofstream(path).close();
    std::filesystem::resize_file(path, size);
    return path;
  }
  std::string Path(const std::string& name) const { return directory_ / name; }

  static ProcessResult Run(const std::vector<std::string>& options,
                           const std::string& command_line = "end=poweroff") {
    std::vector<std::string> command = {RINGSIDE_COMMAND,   "run",       "--kernel",
                                        RINGSIDE_GUEST_ELF, "--cmdline", command_line};
    command.insert(command.end(), options.begin(), options.end());
    return RunProcess(command);
  }

  // Exit code 2 and one line with `says` in it.
  static void ExpectRefused(const std::vector<std::string>& options, const std::string& says) {
    SCOPED_TRACE(::testing::PrintToString(options));
    const ProcessResult result = Run(options);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.output, "");
    EXPECT_THAT(result.errors, ::testing::StartsWith("ringside: error: "));
    EXPECT_THAT(result.errors, ::testing::HasSubstr(says));
    EXPECT_EQ(std::ranges::count(result.errors, '\n'), 1) << result.errors;
  }
  static void ExpectDiskRefused(const std::string& disk, const std::string& says) {
    ExpectRefused({"--disk", disk}, says);
  }

 private:
  const TempDirectory directory_;
};

}  // namespace ringside::testing
