// `ringside image` as a user meets it: what it says, and its exit codes.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/directories.h"
#include "tests/support/subprocess.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ImageCommandTest : public ::testing::Test {
 protected:
  ImageCommandTest() {
    std::ofstream(base_) << std::string(1 << 20, 'b');
    EXPECT_EQ(Run({"create", "--base", base_, "--digest", top_}).status, 0);
  }
  ProcessResult Run(std::vector<std::string> words) const {
    words.insert(words.begin(), {RINGSIDE_COMMAND, "image"});
    return RunProcess(words);
  }
  nlohmann::json RunJson(std::vector<std::string> words, int status = 0) const {
    words.emplace_back("--json");
    const ProcessResult result = Run(words);
    EXPECT_EQ(result.status, status) << result.errors;
    EXPECT_EQ(result.errors, "");
    return nlohmann::json::parse(result.output, nullptr, false);
  }
  std::string Path(const std::string& name) const { return directory_ / name; }

  const testing::TempDirectory directory_;
  const std::string base_ = directory_ / "base", top_ = directory_ / "top.cow";
};

TEST_F(ImageCommandTest, ProgramsAreToldWhatWasDone) {
  const nlohmann::json info = RunJson({"info", top_});
  EXPECT_EQ(info["kind"], "overlay");
  EXPECT_EQ(info["size"], 1 << 20);
  EXPECT_EQ(info["base"]["kind"], "raw");
  EXPECT_EQ(info["base"]["digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(RunJson({"check", "--base", base_, "--digest", top_})["sound"], true);
  EXPECT_EQ(RunJson({"create", "--size", "2M", Path("raw")})["size"], 2 << 20);
  const nlohmann::json first = RunJson({"diff", top_, Path("b1")});
  EXPECT_EQ(RunJson({"diff", top_, Path("b2")})["parent"], first["point"]);
  EXPECT_EQ(RunJson({"apply", base_, Path("b1"), Path("b2")})["applied"], 2);
  EXPECT_EQ(RunJson({"info", Path("b1")})["point"], first["point"]);
}

TEST_F(ImageCommandTest, ExitCodesSayWhoseFaultItIs) {
  EXPECT_EQ(Run({"info", Path("gone")}).status, 2);
  EXPECT_EQ(Run({"create", "--size", "many", Path("raw")}).status, 2);
  EXPECT_EQ(Run({"create", "--size", "1M", "--prealloc", "some", Path("raw")}).status, 2);
  EXPECT_EQ(Run({"commit", top_}).status, 2);
  EXPECT_EQ(Run({"diff", "--full", top_, Path("b1")}).status, 2);
  EXPECT_EQ(Run({"apply", base_, "--onto", "xyz", top_}).status, 2);
  // Where nobody else needs room for that moment.
  const testing::TempDirectory memory("/dev/shm");
  const ProcessResult full =
      Run({"create", "--size", "4T", "--prealloc", "falloc", memory / "raw"});
  EXPECT_EQ(full.status, 1) << full.errors;
  EXPECT_THAT(full.errors, HasSubstr("make room"));
  // Something is wrong with the file: the base is another.
  std::ofstream(base_) << std::string(1 << 20, 'c');
  const nlohmann::json check = RunJson({"check", "--base", base_, top_}, 3);
  EXPECT_EQ(check["sound"], false);
  EXPECT_THAT(Run({"rebase", "--base", base_, top_}).errors, HasSubstr("digest is another"));
}

TEST_F(ImageCommandTest, ATerminalSeesABarAndNobodyElse) {
  const std::vector<std::string> words = {RINGSIDE_COMMAND, "image", "create",     "--size", "64M",
                                          "--prealloc",     "full",  Path("first")};
  TerminalProcess terminal(words);
  EXPECT_TRUE(terminal.WaitFor("writing: ["));
  EXPECT_TRUE(terminal.WaitFor("made a raw image of 64M"));
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_THAT(Run({"create", "--size", "64M", "--prealloc", "full", Path("second")}).errors,
              Not(HasSubstr("[")));
}

}  // namespace
}  // namespace ringside
