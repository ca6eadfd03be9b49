// A console that is paused: its port stands still, and nothing is lost on either side of it.
#include <atomic>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>

#include "tests/support/descriptors.h"
#include "tests/support/vmm/console_fixture.h"

namespace ringside {
namespace {

using namespace testing;

class ConsolePause : public ConsoleTest {
 protected:
  void Pause() {
    BoundedEvent rests;
    TaskOf notify([&rests] { rests.Notify(); });
    console_->Pause(notify);
    rests.WaitOrAbort();
  }
  void Settle() {
    io_thread_->RunAndWait([] {});
  }

  Pipe pipe_;
};

TEST_F(ConsolePause, InputWaitsForTheResume) {
  OpenInput(pipe_.read_end.get());
  guest_->Listen();
  Pause();
  const Serial::State state = console_->serial().Save();
  WriteAll(pipe_.write_end.get(), "typed meanwhile");
  ASSERT_TRUE(SpinUntil([&] {
    Settle();
    int unread = 0;
    return ioctl(pipe_.read_end.get(), FIONREAD, &unread) == 0 && unread == 0;
  })) << "the detach key is looked for all the same";
  EXPECT_EQ(console_->serial().Save(), state);
  console_->Resume();
  EXPECT_EQ(guest_->Receive(15), "typed meanwhile");
}

TEST_F(ConsolePause, APortThatIsMadeAnewHasWhatTheGuestHadNotReadAndWhatWasTypedMeanwhile) {
  OpenInput(pipe_.read_end.get());
  guest_->Listen();
  WriteAll(pipe_.write_end.get(), "before, ");
  ASSERT_TRUE(SpinUntil([&] { return console_->serial().Save().input.size() == 8; }));
  Pause();
  const Serial::State state = console_->serial().Save();
  WriteAll(pipe_.write_end.get(), "meanwhile");
  ASSERT_EQ(console_->RestorePort(state), absl::OkStatus());
  EXPECT_EQ(console_->serial().Save(), state);
  console_->Resume();
  EXPECT_EQ(guest_->Receive(17), "before, meanwhile");
}

// The reader does not read until the port is another one: the guest learns all the same that there
// is room again.
TEST_F(ConsolePause, AGuestThatWaitsForRoomIsToldByThePortThatIsMadeAnew) {
  OpenOutput(pipe_.write_end.get());
  const std::string text = Text(Console::kBufferSize + (2 << 20));
  guest_->Write(kIer, kIerTransmit);
  const std::string_view left = guest_->SendUntilBusy(text);
  ASSERT_FALSE(left.empty());
  Pause();
  const Serial::State state = console_->serial().Save();
  ASSERT_EQ(console_->RestorePort(state), absl::OkStatus());
  interrupt_.Clear();
  EXPECT_FALSE(ReadAvailable(pipe_.read_end.get()).empty());
  Settle();
  EXPECT_EQ(interrupt_.Clear(), 0u) << "the port stands still";
  console_->Resume();
  EXPECT_TRUE(WaitForFd(interrupt_.fd(), POLLIN));
  EXPECT_TRUE(guest_->TransmitterEmpty());
}

TEST_F(ConsolePause, AResumeMayComeAtOnce) {
  OpenInput(pipe_.read_end.get());
  guest_->Listen();
  for (int round = 0; round < 1000; ++round) {
    std::atomic<int> rests{0};
    TaskOf count([&rests] { ++rests; });
    console_->Pause(count);
    console_->Resume();
    ASSERT_EQ(rests, 1);
  }
  Settle();
  WriteAll(pipe_.write_end.get(), "x");
  EXPECT_EQ(guest_->Receive(1), "x");
}

}  // namespace
}  // namespace ringside
