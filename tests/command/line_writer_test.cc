// Lines for a reader who may have stopped: who has something to say never waits for one.
#include "command/line_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/descriptors.h"

namespace ringside {
namespace {

using testing::Pipe;
using testing::ReadAvailable;
using testing::ReadExactly;

class LineWriterTest : public ::testing::Test {
 protected:
  LineWriterTest() : capacity_(fcntl(pipe_.write_end.get(), F_SETPIPE_SZ, 4096)) {}
  void Open(absl::Duration patience = testing::kWaitLimit) {
    Open(pipe_.write_end.get(), patience);
  }
  void Open(int fd, absl::Duration patience) {
    writer_.emplace(fd, [](uint64_t n) { return absl::StrCat("lost ", n, "\n"); }, patience);
  }

  Pipe pipe_;
  const int capacity_;
  std::optional<LineWriter> writer_;
};

TEST_F(LineWriterTest, WritesInOrder) {
  Open();
  for (int i = 0; i < 5; ++i) writer_->Write(absl::StrCat(i, "\n"));
  EXPECT_TRUE(writer_->Flush());
  EXPECT_EQ(ReadAvailable(pipe_.read_end.get()), "0\n1\n2\n3\n4\n");
}

// Nobody reads, and then somebody does again: each line is there, or counted where it would be.
TEST_F(LineWriterTest, AStuckReaderHoldsNobodyAndIsToldHowManyLinesItMissed) {
  Open();
  constexpr int kLines = 20'000;
  for (int i = 0; i < kLines; ++i) writer_->Write(absl::StrCat("line ", i, "\n"));
  int next = 0, losses = 0;
  size_t bytes = 0;
  while (next < kLines) {
    std::string line;
    while (!line.ends_with('\n')) {
      const std::string byte = ReadExactly(pipe_.read_end.get(), 1);
      ASSERT_NE(byte, "") << "the reader hears nothing of line " << next;
      line += byte;
    }
    bytes += line.size();
    int lost = 0;
    if (std::sscanf(line.c_str(), "lost %d", &lost) == 1) {
      next += lost;
      ++losses;
    } else {
      ASSERT_EQ(line, absl::StrCat("line ", next++, "\n"));
    }
  }
  EXPECT_EQ(next, kLines);
  EXPECT_GT(losses, 0);
  EXPECT_LE(bytes, 3 * LineWriter::kMostWaiting);
  writer_->Write("and on\n");
  EXPECT_EQ(ReadExactly(pipe_.read_end.get(), 7), "and on\n");
}

TEST_F(LineWriterTest, AFlushHasAnEndAndSoHasTheObject) {
  // Never closed: the thread that is left behind is still in it.
  Open(fcntl(pipe_.write_end.get(), F_DUPFD_CLOEXEC, 0), absl::Milliseconds(1));
  writer_->Write(std::string(2 * capacity_, 'x'));
  EXPECT_FALSE(writer_->Flush());
  writer_.reset();  // what it could not write goes when the reader does
}

TEST_F(LineWriterTest, AfterAFlushInVainThereIsOneAgainOnceSomethingMoves) {
  constexpr absl::Duration kPatience = absl::Milliseconds(500);
  Open(kPatience);
  writer_->Write(std::string(2 * capacity_, 'x'));
  EXPECT_FALSE(writer_->Flush());
  const absl::Time start = absl::Now();
  EXPECT_FALSE(writer_->Flush());
  EXPECT_LT(absl::Now() - start, kPatience);
  ReadExactly(pipe_.read_end.get(), 2 * capacity_);
  EXPECT_TRUE(testing::SpinUntil([&] { return writer_->Flush(); }));
}

TEST_F(LineWriterTest, AReaderThatHasGoneIsHarmless) {
  pipe_.read_end = UniqueFd();
  Open();
  writer_->Write("nobody hears this\n");
  EXPECT_TRUE(writer_->Flush());
}

// Somebody else who has the descriptor made it so.
TEST_F(LineWriterTest, ADescriptorThatDoesNotBlockLosesNothing) {
  fcntl(pipe_.write_end.get(), F_SETFL, O_NONBLOCK);
  Open();
  const std::string line(4 * capacity_, 'x');
  writer_->Write(line);
  EXPECT_EQ(ReadExactly(pipe_.read_end.get(), line.size()), line);
}

}  // namespace
}  // namespace ringside
