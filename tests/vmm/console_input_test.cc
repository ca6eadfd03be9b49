#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>

#include "tests/support/descriptors.h"
#include "tests/support/vmm/console_fixture.h"

namespace ringside {
namespace {

using namespace testing;

constexpr uint8_t kDetachKey = 0x1d;  // control and ]

class ConsoleInput : public ConsoleTest {
 protected:
  Pipe pipe_;
};

TEST_F(ConsoleInput, FromAPipeReachesTheGuestInOrder) {
  OpenInput(pipe_.read_end.get());
  guest_->Listen();
  for (const size_t size : {1, 15, 16, 17, 5000}) {
    const std::string text = Text(size);
    WriteAll(pipe_.write_end.get(), text);
    ASSERT_EQ(guest_->Receive(size), text);
  }
}

TEST_F(ConsoleInput, FromATerminalReachesTheGuest) {
  const RawTerminal terminal;
  OpenInput(terminal.program.get());
  guest_->Listen();
  WriteAll(terminal.user.get(), "root\r");
  EXPECT_EQ(guest_->Receive(5), "root\r");
}

TEST_F(ConsoleInput, FromATerminalsMasterReachesTheGuest) {
  const RawTerminal terminal;
  OpenInput(terminal.user.get());
  guest_->Listen();
  WriteAll(terminal.program.get(), "root\r");
  EXPECT_EQ(guest_->Receive(5), "root\r");
}

TEST_F(ConsoleInput, FromASocketReachesTheGuest) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd near(ends[0]), far(ends[1]);
  OpenInput(near.get());
  guest_->Listen();
  WriteAll(far.get(), "root\r");
  EXPECT_EQ(guest_->Receive(5), "root\r");
}

TEST_F(ConsoleInput, FromAFileStartsWhereItsOwnerStoodAndIsComplete) {
  const std::string text = Text(Console::kBufferSize + 5000);
  const UniqueFd file = RegularFile("skipped" + text);
  lseek(file.get(), 7, SEEK_SET);
  OpenInput(file.get());
  guest_->Listen();
  EXPECT_TRUE(guest_->Receive(text.size()) == text);
}

TEST_F(ConsoleInput, WaitsForAGuestThatListensLate) {
  OpenInput(pipe_.read_end.get());
  WriteAll(pipe_.write_end.get(), "typed early, ");
  LetTurn(*io_thread_);
  EXPECT_EQ(guest_->Read(kLsr) & kLsrData, 0);
  WriteAll(pipe_.write_end.get(), "typed later");
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(24), "typed early, typed later");
}

TEST_F(ConsoleInput, SurvivesADriverThatClearsTheFifoBeforeItListens) {
  OpenInput(pipe_.read_end.get());
  WriteAll(pipe_.write_end.get(), "typed early");
  LetTurn(*io_thread_);
  guest_->Write(kFcr, kFcrEnable | kFcrClearReceive);
  guest_->Write(kFcr, 0);
  guest_->Write(kFcr, kFcrEnable);
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(11), "typed early");
}

// More than console, pipe and FIFO hold together: the writer has to wait, nothing is dropped.
TEST_F(ConsoleInput, PushesBackOnAWriterWhoIsTooFast) {
  OpenInput(pipe_.read_end.get());
  const std::string text = Text(Console::kBufferSize * 4);
  std::thread writer([&] { WriteAll(pipe_.write_end.get(), text); });
  LetTurn(*io_thread_);
  guest_->Listen();
  EXPECT_TRUE(guest_->Receive(text.size()) == text);
  writer.join();
}

TEST_F(ConsoleInput, BytesBeforeTheEndArriveAfterIt) {
  WriteAll(pipe_.write_end.get(), "last words");
  {
    const UniqueFd closed = std::move(pipe_.write_end);
  }
  OpenInput(pipe_.read_end.get());
  LetTurn(*io_thread_);
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(10), "last words");
}

TEST_F(ConsoleInput, WithoutAnyTheConsoleStillSends) {
  const UniqueFd null = DevNull();
  for (const int input : {-1, null.get()}) {
    Open({.input_fd = input, .output_fd = pipe_.write_end.get()});
    console_->Start();
    guest_->Listen();
    LetTurn(*io_thread_);
    EXPECT_EQ(guest_->Read(kLsr) & kLsrData, 0);
    EXPECT_TRUE(guest_->Send("alive"));
    EXPECT_EQ(ReadExactly(pipe_.read_end.get(), 5), "alive");
    console_.reset();
  }
}

// A watch that is armed at the end of input would be ready for ever.
TEST_F(ConsoleInput, IsNotReadAgainAfterItsEnd) {
  const UniqueFd file = RegularFile("once");
  OpenInput(file.get());
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(4), "once");
  LetTurn(*io_thread_);
  lseek(file.get(), 0, SEEK_SET);  // the offset is shared: a further read would find it all again
  LetTurn(*io_thread_);
  EXPECT_EQ(guest_->Read(kLsr) & kLsrData, 0);
  EXPECT_EQ(lseek(file.get(), 0, SEEK_CUR), 0);
}

TEST_F(ConsoleInput, IsNotReadBeforeStart) {
  Open({.input_fd = pipe_.read_end.get()});
  guest_->Listen();
  WriteAll(pipe_.write_end.get(), "later");
  LetTurn(*io_thread_);
  EXPECT_EQ(guest_->Read(kLsr) & kLsrData, 0);
  console_->Start();
  EXPECT_EQ(guest_->Receive(5), "later");
}

TEST_F(ConsoleInput, IsLeftToOthersAfterStop) {
  OpenInput(pipe_.read_end.get());
  guest_->Listen();
  WriteAll(pipe_.write_end.get(), "mine");
  EXPECT_EQ(guest_->Receive(4), "mine");
  console_->Stop();
  WriteAll(pipe_.write_end.get(), "yours");
  LetTurn(*io_thread_);
  EXPECT_EQ(ReadAvailable(pipe_.read_end.get()), "yours");
  console_->Stop();  // twice is harmless
}

TEST_F(ConsoleInput, LeavesTheDescriptorBlockingForWhoeverSharesIt) {
  const RawTerminal terminal;
  for (const int fd : {pipe_.read_end.get(), terminal.program.get(), terminal.user.get()}) {
    OpenInput(fd);
    LetTurn(*io_thread_);
    EXPECT_FALSE(IsNonBlocking(fd));
    console_.reset();
    EXPECT_FALSE(IsNonBlocking(fd));
  }
}

TEST_F(ConsoleInput, LeavesNoDescriptorBehindAndKeepsTheEmbedders) {
  const auto open_descriptors = [] {
    const auto all = std::filesystem::directory_iterator("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const auto before = open_descriptors();
  Open({.input_fd = pipe_.read_end.get(), .output_fd = pipe_.write_end.get()});
  console_->Start();
  LetTurn(*io_thread_);
  console_.reset();
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_TRUE(IsOpen(pipe_.read_end.get()) && IsOpen(pipe_.write_end.get()));
}

class ConsoleDetach : public ConsoleInput {
 protected:
  void SetUp() override {
    Open({.input_fd = pipe_.read_end.get(), .detach_key = kDetachKey, .detached = [this] {
            ++count_;
            thread_ = std::this_thread::get_id();
            if (!detached_.HasBeenNotified()) detached_.Notify();
          }});
    console_->Start();
  }
  void Type(std::string_view text) { WriteAll(pipe_.write_end.get(), text); }
  bool WaitForDetach() { return detached_.Wait(); }

  BoundedEvent detached_;
  int count_ = 0;
  std::thread::id thread_;
};

TEST_F(ConsoleDetach, TheKeyIsFoundWhileTheGuestDoesNotListen) {
  Type("\x1d");
  EXPECT_TRUE(WaitForDetach());
}

TEST_F(ConsoleDetach, TheKeyIsFoundBehindInputThatTheGuestHasNotTaken) {
  Type(Text(1000));
  LetTurn(*io_thread_);
  Type("\x1d");
  EXPECT_TRUE(WaitForDetach());
}

// More than console and pipe hold together, as a paste by mistake may be.
TEST_F(ConsoleDetach, TheKeyIsFoundBehindMoreThanIsKeptForAGuestThatReadsNothing) {
  std::thread typist([&] { Type(Text(Console::kBufferSize * 4) + "\x1d"); });
  EXPECT_TRUE(WaitForDetach());
  typist.join();
  EXPECT_THAT(log_.lines(), ::testing::ElementsAre(::testing::HasSubstr("takes no input")));
  // What was kept for it is its own; and once it takes something nothing is lost to it any more.
  guest_->Listen();
  EXPECT_TRUE(guest_->Receive(Console::kBufferSize) == Text(Console::kBufferSize));
  Type("!");
  std::string rest;
  while (rest.size() < 300 && !rest.ends_with("!")) rest += guest_->Receive(1);
  EXPECT_THAT(rest, ::testing::EndsWith("!"));
  const std::string text = Text(Console::kBufferSize * 2);
  bool whole = false;
  for (int tries = 0; tries < 2 && !whole; ++tries) {  // a guest that is late itself loses some
    typist = std::thread([&] { Type(text); });
    whole = guest_->Receive(text.size()) == text;
    typist.join();
  }
  EXPECT_TRUE(whole);
  EXPECT_EQ(log_.lines().size(), 1u);
}

TEST_F(ConsoleDetach, IsReportedOnTheIoThread) {
  Type("\x1d");
  ASSERT_TRUE(WaitForDetach());
  RunOn(*io_thread_, [&] { EXPECT_EQ(thread_, std::this_thread::get_id()); });
}

TEST_F(ConsoleDetach, BytesBeforeTheKeyReachTheGuestAndTheKeyDoesNot) {
  Type("before\x1d");
  ASSERT_TRUE(WaitForDetach());
  Type("after");
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(11), "beforeafter");
}

TEST_F(ConsoleDetach, WhatWasTypedInOneGoBehindTheKeyIsDropped) {
  Type(
      "before\x1d"
      "behind");
  ASSERT_TRUE(WaitForDetach());
  Type("!");
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(7), "before!");
}

TEST_F(ConsoleDetach, OtherInputDetachesNobody) {
  std::string all;
  for (int c = 0; c < 256; ++c) {
    if (c != kDetachKey) all += static_cast<char>(c);
  }
  Type(all);
  guest_->Listen();
  EXPECT_EQ(guest_->Receive(all.size()), all);
  RunOn(*io_thread_, [&] { EXPECT_EQ(count_, 0); });
}

TEST_F(ConsoleInput, WithoutADetachKeyEveryByteReachesTheGuest) {
  OpenInput(pipe_.read_end.get());
  guest_->Listen();
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  WriteAll(pipe_.write_end.get(), all);
  EXPECT_EQ(guest_->Receive(all.size()), all);
}

}  // namespace
}  // namespace ringside
