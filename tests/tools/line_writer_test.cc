// Lines for a reader who may have stopped: who has something to say never waits for one.
#include "tools/line_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
    writer_.emplace(
        pipe_.write_end.get(), [](uint64_t n) { return absl::StrCat("lost ", n, "\n"); }, patience);
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

// As if nobody reads, and then somebody does again.
TEST_F(LineWriterTest, AStuckReaderHoldsNobodyAndIsToldHowManyLinesItMissed) {
  Open();
  constexpr int kLines = 20'000;
  for (int i = 0; i < kLines; ++i) writer_->Write(absl::StrCat("line ", 100'000 + i, "\n"));
  std::string got;
  while (got.find("lost ") == std::string::npos) {
    const std::string more = ReadExactly(pipe_.read_end.get(), 1);
    ASSERT_NE(more, "") << "the reader hears of no loss";
    got += more + ReadAvailable(pipe_.read_end.get());
  }
  ASSERT_TRUE(writer_->Flush());
  got += ReadAvailable(pipe_.read_end.get());

  const std::vector<std::string> lines = absl::StrSplit(got, '\n', absl::SkipEmpty());
  const int kept = static_cast<int>(lines.size()) - 1;
  EXPECT_LE(got.size(), 2 * LineWriter::kMostWaiting + capacity_);
  for (int i = 0; i < kept; ++i) ASSERT_EQ(lines[i], absl::StrCat("line ", 100'000 + i));
  EXPECT_EQ(lines.back(), absl::StrCat("lost ", kLines - kept));
  writer_->Write("and on\n");
  EXPECT_EQ(ReadExactly(pipe_.read_end.get(), 7), "and on\n");
}

TEST_F(LineWriterTest, AFlushHasAnEndAndSoHasTheObject) {
  Open(absl::Milliseconds(1));
  writer_->Write(std::string(2 * capacity_, 'x'));
  EXPECT_FALSE(writer_->Flush());
  writer_.reset();  // what it could not write goes when the reader does
}

TEST_F(LineWriterTest, AfterAFlushInVainThereIsOneAgainOnceSomethingMoves) {
  constexpr absl::Duration kPatience = absl::Milliseconds(100);
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
