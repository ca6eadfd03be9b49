// What the commands of forks say, as it comes out.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits.h>
#include <sstream>
#include <thread>
#include <vector>

#include "command/fork_output.h"
#include "tests/support/descriptors.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;

// What comes out of a pipe, as it was written: a pipe of packets keeps the writes apart (pipe(2)).
class ForkOutputTest : public ::testing::Test {
 protected:
  ForkOutputTest() {
    int ends[2];
    testing::Must(pipe2(ends, O_CLOEXEC | O_DIRECT), "pipe2");
    read_end_ = UniqueFd(ends[0]);
    write_end_ = UniqueFd(ends[1]);
  }
  std::vector<std::string> Writes(uint32_t number, std::string_view text) {
    std::vector<std::string> writes;
    std::thread reader([&] {
      char bytes[2 * PIPE_BUF];
      for (ssize_t got; (got = read(read_end_.get(), bytes, sizeof bytes)) > 0;) {
        writes.emplace_back(bytes, static_cast<size_t>(got));
      }
    });
    EXPECT_EQ(output_.Write(write_end_.get(), number, text), 0);
    write_end_ = UniqueFd();
    reader.join();
    return writes;
  }
  static std::vector<std::string> LinesOf(const std::vector<std::string>& writes) {
    std::vector<std::string> lines;
    for (const std::string& write : writes) {
      EXPECT_LE(write.size(), size_t{PIPE_BUF}) << "it may be torn";
      EXPECT_TRUE(write.ends_with('\n'));
      std::istringstream stream(write);
      for (std::string line; std::getline(stream, line);) lines.push_back(line);
    }
    return lines;
  }

  ForkOutput output_;
  UniqueFd read_end_, write_end_;
};

TEST_F(ForkOutputTest, EachLineIsBehindItsNumber) {
  EXPECT_THAT(Writes(7, "one\n\ntwo\tthree\nfour"),
              ElementsAre("[7] one\n[7] \n[7] two\tthree\n[7] four\n"));
}

TEST_F(ForkOutputTest, SaysNothingOfNothing) {
  EXPECT_THAT(Writes(7, ""), ElementsAre());
}

TEST_F(ForkOutputTest, WhatATerminalWouldObeyIsShown) {
  EXPECT_THAT(LinesOf(Writes(1, "\x1b[2J\r[2] forged\xff\n")),
              ElementsAre("[1] \\x1b[2J\\x0d[2] forged\\xff"));
}

// And no piece of it looks like another fork's, or is torn from its number.
TEST_F(ForkOutputTest, ALongLineGoesOnBehindTheNumberAgain) {
  std::string line;
  while (line.size() < 40'000) line += "\u20ac[2] ";  // three bytes, of which none is alone
  std::string joined;
  for (const std::string& piece : LinesOf(Writes(12345, line))) {
    ASSERT_TRUE(piece.starts_with("[12345] ")) << piece;
    joined += piece.substr(8);
  }
  EXPECT_EQ(joined, line);
}

TEST_F(ForkOutputTest, ALineOfControlCharactersStaysWhole) {
  std::string joined;
  for (const std::string& piece : LinesOf(Writes(1, std::string(30'000, '\x01')))) {
    ASSERT_TRUE(piece.starts_with("[1] ")) << piece;
    joined += piece.substr(4);
  }
  EXPECT_EQ(joined.size(), 4u * 30'000);
}

TEST_F(ForkOutputTest, EmptyLinesGoTogether) {
  const auto writes = Writes(123, std::string(100'000, '\n'));
  EXPECT_LT(writes.size(), 100'000u * 7 / PIPE_BUF + 2);
  EXPECT_EQ(LinesOf(writes).size(), 100'000u);
}

TEST_F(ForkOutputTest, SaysWhatKeepsItFromBeingWritten) {
  const UniqueFd full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(output_.Write(full.get(), 1, "lost\n"), ENOSPC);
  EXPECT_EQ(output_.Write(read_end_.get(), 1, "lost\n"), EBADF);
}

}  // namespace
}  // namespace ringside
