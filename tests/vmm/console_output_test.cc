#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>

#include "tests/support/descriptors.h"
#include "tests/support/directories.h"
#include "tests/support/vmm/console_fixture.h"

namespace ringside {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The two ends of something that fills up when nobody reads.
struct Channel {
  UniqueFd reader, writer;
};

Channel PipeChannel() {
  Pipe pipe;
  fcntl(pipe.write_end.get(), F_SETPIPE_SZ, 4096);
  return {std::move(pipe.read_end), std::move(pipe.write_end)};
}
Channel TerminalChannel() {
  RawTerminal terminal;
  return {std::move(terminal.user), std::move(terminal.program)};
}
// An embedder may sit at the program's side and hand the user's side to the machine.
Channel TerminalMasterChannel() {
  RawTerminal terminal;
  return {std::move(terminal.program), std::move(terminal.user)};
}
Channel SocketChannel() {
  int ends[2];
  Must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "socketpair");
  const int small = 4096;
  setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

struct Kind {
  const char* name;
  Channel (*make)();
};

class ConsoleOutput : public ConsoleTest, public ::testing::WithParamInterface<Kind> {
 protected:
  Channel channel_ = GetParam().make();
};

INSTANTIATE_TEST_SUITE_P(To, ConsoleOutput,
                         ::testing::Values(Kind{"Pipe", PipeChannel},
                                           Kind{"Terminal", TerminalChannel},
                                           Kind{"TerminalMaster", TerminalMasterChannel},
                                           Kind{"Socket", SocketChannel}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ConsoleOutput, ArrivesInOrder) {
  OpenOutput(channel_.writer.get());
  const std::string text = Text(1000);
  ASSERT_TRUE(guest_->Send(text));
  EXPECT_EQ(ReadExactly(channel_.reader.get(), text.size()), text);
}

// The reader begins only after the guest has found its transmitter busy, so the way back from
// there, through the interrupt, is taken.
TEST_P(ConsoleOutput, ArrivesCompleteHoweverSlowTheReader) {
  OpenOutput(channel_.writer.get());
  const std::string text = Text(Console::kBufferSize * 4);
  const std::string_view rest = guest_->SendUntilBusy(text);
  ASSERT_FALSE(rest.empty()) << "the reader was never too slow";
  std::string got;
  std::thread reader([&] { got = ReadExactly(channel_.reader.get(), text.size(), 1000); });
  EXPECT_TRUE(guest_->Send(rest));
  reader.join();
  EXPECT_TRUE(got == text) << got.size() << " of " << text.size() << " bytes";
}

TEST_P(ConsoleOutput, AReaderWhoNeverReadsBlocksNeitherTheGuestNorTheEnd) {
  OpenOutput(channel_.writer.get());
  const std::string text = Text(Console::kBufferSize * 8);
  const size_t sent = text.size() - guest_->SendUntilBusy(text).size();
  ASSERT_LT(sent, text.size());
  console_->Flush(absl::Milliseconds(1));
  console_->Stop();
  // Nothing moves any more, and every byte the guest saw leave is either out or counted.
  const size_t unwritten = console_->Flush(absl::ZeroDuration());
  const std::string got = ReadAvailable(channel_.reader.get());
  EXPECT_EQ(got.size() + unwritten, sent);
  EXPECT_TRUE(text.starts_with(got));
}

TEST_P(ConsoleOutput, AGuestThatIgnoresTheBusyTransmitterLosesOnlyWhatComesTooSoon) {
  OpenOutput(channel_.writer.get());
  const std::string text = Text(Console::kBufferSize * 8);
  for (const char c : text) guest_->Write(kThr, static_cast<uint8_t>(c));
  const std::string got = ReadExactly(channel_.reader.get(), Console::kBufferSize);
  EXPECT_TRUE(text.starts_with(got));
  EXPECT_EQ(got.size(), size_t{Console::kBufferSize});
}

TEST_P(ConsoleOutput, AReaderThatGoesAwayIsHarmless) {
  OpenOutput(channel_.writer.get());
  ASSERT_TRUE(guest_->Send("hello"));
  EXPECT_EQ(ReadExactly(channel_.reader.get(), 5), "hello");
  guest_->SendUntilBusy(Text(Console::kBufferSize * 8));
  if (GetParam().make == TerminalMasterChannel) return;  // has no reader that could go
  {
    const UniqueFd closed = std::move(channel_.reader);
  }
  EXPECT_TRUE(guest_->Send(Text(Console::kBufferSize * 2)));
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
}

TEST_P(ConsoleOutput, LeavesTheDescriptorBlockingForWhoeverSharesIt) {
  const UniqueFd shared(dup(channel_.writer.get()));
  OpenOutput(channel_.writer.get());
  ASSERT_TRUE(guest_->Send("hello"));
  EXPECT_EQ(ReadExactly(channel_.reader.get(), 5), "hello");
  EXPECT_FALSE(IsNonBlocking(shared.get()));
  EXPECT_FALSE(IsNonBlocking(channel_.writer.get()));
  console_.reset();
  EXPECT_FALSE(IsNonBlocking(shared.get()));
}

class ConsoleOutputTo : public ConsoleTest {};

TEST_F(ConsoleOutputTo, FlushGivesUpAtItsLimitAndSaysWhatIsLeft) {
  const Pipe pipe;
  const int capacity = fcntl(pipe.write_end.get(), F_SETPIPE_SZ, 4096);
  OpenOutput(pipe.write_end.get());
  ASSERT_TRUE(guest_->Send(Text(Console::kBufferSize / 2)));
  EXPECT_GE(console_->Flush(absl::Milliseconds(1)), Console::kBufferSize / 2 - capacity);
}

TEST_F(ConsoleOutputTo, FlushWaitsForTheReader) {
  const Pipe pipe;
  OpenOutput(pipe.write_end.get());
  const std::string text = Text(Console::kBufferSize * 8);
  const std::string_view rest = guest_->SendUntilBusy(text);
  std::string got;
  const size_t sent = text.size() - rest.size();
  std::thread reader([&] { got = ReadExactly(pipe.read_end.get(), sent); });
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
  reader.join();
  EXPECT_EQ(got.size(), sent);
}

TEST_F(ConsoleOutputTo, AFileIsAllThereAfterFlushAndBehindWhatWasThere) {
  const UniqueFd file = RegularFile("before\n");
  lseek(file.get(), 0, SEEK_END);
  OpenOutput(file.get());
  const std::string text = Text(Console::kBufferSize * 2);
  EXPECT_TRUE(guest_->Send(text));
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
  WriteAll(file.get(), "after\n");
  lseek(file.get(), 0, SEEK_SET);
  EXPECT_TRUE(ReadExactly(file.get(), text.size() + 14) == "before\n" + text + "after\n");
}

TEST_F(ConsoleOutputTo, DevNullIsNeverTooMuch) {
  const UniqueFd null = DevNull();
  OpenOutput(null.get());
  EXPECT_TRUE(guest_->Send(Text(Console::kBufferSize * 2)));
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
}

TEST_F(ConsoleOutputTo, AFullDiskHoldsNobodyIsSaidOnceAndWhatItCostIsCounted) {
  const UniqueFd full(Must(open("/dev/full", O_WRONLY | O_CLOEXEC), "/dev/full"));
  OpenOutput(full.get());
  const std::string text = Text(Console::kBufferSize * 4);
  EXPECT_TRUE(guest_->Send(text));
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("cannot write console output: No space left")));
  const ConsoleStatistics statistics = console_->statistics();
  EXPECT_EQ(statistics.dropped, text.size());
  EXPECT_EQ(statistics.written, 0u);
}

// Somebody makes room on the disk: here, by giving the pipe a reader again.
TEST_F(ConsoleOutputTo, WhatCanBeWrittenAgainIs) {
  const TempDirectory directory;
  const std::string path = directory / "fifo";
  Must(mkfifo(path.c_str(), 0600), "mkfifo");
  UniqueFd reader(Must(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), "reader"));
  const UniqueFd writer(Must(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC), "writer"));
  OpenOutput(writer.get());
  reader = UniqueFd();
  ASSERT_TRUE(guest_->Send("nobody hears this"));
  ASSERT_EQ(console_->Flush(kWaitLimit), 0u);
  reader = UniqueFd(Must(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), "reader"));
  ASSERT_TRUE(guest_->Send("hello"));
  EXPECT_EQ(ReadExactly(reader.get(), 5), "hello");
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
  EXPECT_EQ(console_->statistics().dropped, 17u);
  EXPECT_EQ(console_->statistics().written, 5u);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("console output has lost its reader")));
}

TEST_F(ConsoleOutputTo, AFileGetsNoMoreThanItsLimitAndTheGuestGoesOn) {
  constexpr size_t kLimit = Console::kBufferSize + 777;
  const UniqueFd file = RegularFile();
  Open({.output_fd = file.get(), .output_limit = kLimit});
  const std::string text = Text(Console::kBufferSize * 4);
  EXPECT_TRUE(guest_->Send(text));
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
  EXPECT_TRUE(guest_->TransmitterEmpty());
  lseek(file.get(), 0, SEEK_SET);
  EXPECT_TRUE(ReadExactly(file.get(), text.size()) == text.substr(0, kLimit));
  EXPECT_THAT(log_.lines(),
              ElementsAre(HasSubstr("console output has reached its limit of 66313: ")));
  const ConsoleStatistics statistics = console_->statistics();
  EXPECT_EQ(statistics.written, kLimit);
  EXPECT_EQ(statistics.dropped, text.size() - kLimit);
}

// Several machines may write to one file, and logrotate's copytruncate cuts it short.
TEST_F(ConsoleOutputTo, TheLimitIsOfTheFileAsItIsWhoeverWritesToIt) {
  const TempDirectory directory;
  const int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC;
  const UniqueFd file(Must(open((directory / "log").c_str(), flags, 0600), "open"));
  Open({.output_fd = file.get(), .output_name = "log", .output_limit = 10});
  const auto say = [&](std::string_view text) {
    BoundedEvent sent;
    TaskOf together([&] { sent.WaitOrAbort(); });  // so that it is written in one go
    io_thread_->Post(together);
    EXPECT_TRUE(guest_->Send(text));
    sent.Notify();
    EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
    std::string content(100, '\0');
    content.resize(static_cast<size_t>(pread(file.get(), content.data(), content.size(), 0)));
    return content;
  };
  EXPECT_EQ(say("one"), "one");
  WriteAll(file.get(), "OTHER");
  EXPECT_EQ(say("two"), "oneOTHERtw");
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("'log' has reached its limit of 10: ")));
  Must(ftruncate(file.get(), 0), "ftruncate");
  EXPECT_EQ(say("three"), "three");
}

TEST_F(ConsoleOutputTo, AllOfWhatAGuestSendsIsWrittenWaitingOrDropped) {
  const Pipe pipe;
  OpenOutput(pipe.write_end.get());
  const std::string text = Text(Console::kBufferSize * 8);
  for (const char c : text) guest_->Write(kThr, static_cast<uint8_t>(c));
  console_->Stop();
  const ConsoleStatistics statistics = console_->statistics();
  EXPECT_GT(statistics.dropped, 0u);
  EXPECT_EQ(statistics.written, ReadAvailable(pipe.read_end.get()).size());
  EXPECT_EQ(statistics.waiting, console_->Flush(absl::ZeroDuration()));
  EXPECT_EQ(statistics.written + statistics.waiting + statistics.dropped, text.size());
}

TEST_F(ConsoleOutputTo, NowhereIsDroppedAndCounted) {
  OpenOutput(-1);
  EXPECT_FALSE(console_->spoken());
  EXPECT_TRUE(guest_->SendUntilBusy(Text(Console::kBufferSize * 2)).empty());
  EXPECT_TRUE(guest_->TransmitterEmpty());
  EXPECT_TRUE(console_->spoken());
  EXPECT_EQ(console_->Flush(absl::ZeroDuration()), 0u);
}

TEST_F(ConsoleOutputTo, APipeWhoseReaderHasLeftBeforeIsHarmless) {
  Pipe pipe;
  {
    const UniqueFd closed = std::move(pipe.read_end);
  }
  OpenOutput(pipe.write_end.get());
  EXPECT_TRUE(guest_->Send(Text(Console::kBufferSize * 2)));
  EXPECT_EQ(console_->Flush(kWaitLimit), 0u);
}

TEST_F(ConsoleOutputTo, TheFirstByteIsWhatMakesItSpeak) {
  OpenOutput(-1);
  guest_->Listen();
  guest_->Write(kIer, kIerTransmit);
  EXPECT_FALSE(console_->spoken());
  guest_->Write(kThr, 'x');
  EXPECT_TRUE(console_->spoken());
}

}  // namespace
}  // namespace ringside
