// Who waits for a file's lock, and for how long. This program's absl::SleepFor sleeps not, but
// counts: Abseil lets whoever wants to take its place (absl/time/clock.cc).
#include "block/file_lock.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "absl/time/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "tests/support/descriptors.h"
#include "tests/support/directories.h"

namespace ringside {
namespace {

using testing::Must;

int pauses = 0;
std::function<void()> at_pause;

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() {
    pauses = 0;
    at_pause = [] {};
  }
  // Each has a lock of its own.
  UniqueFd Open() const {
    return UniqueFd(Must(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600), "open"));
  }
  UniqueFd OpenToRead() const {
    Open();
    return UniqueFd(Must(open(path_.c_str(), O_RDONLY | O_CLOEXEC), "open"));
  }

  const testing::TempDirectory directory_;
  const std::string path_ = directory_ / "disk";
};

// As the kernel lets go of a killed process's ring up to 50 ms after the process.
TEST_F(FileLockTest, WhatIsLetGoOfWithinTheTimeIsHad) {
  UniqueFd first = Open();
  const UniqueFd second = Open();
  ASSERT_TRUE(LockFile(first.get(), false, "disk").ok());
  EXPECT_EQ(pauses, 0);
  at_pause = [&] {
    if (pauses == 99) first = UniqueFd();
  };
  EXPECT_TRUE(LockFile(second.get(), false, "disk").ok());
  EXPECT_EQ(pauses, 99);
}

TEST_F(FileLockTest, WhatIsNeverLetGoOfIsRefusedAfterAHundredTries) {
  const UniqueFd first = Open(), second = Open();
  ASSERT_TRUE(LockFile(first.get(), false, "disk").ok());
  const absl::Status status = LockFile(second.get(), false, "disk 'a'");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status),
            "disk 'a' is in use by another process, or twice in this machine; end who uses it, or "
            "use readonly=on in all of them");
  EXPECT_EQ(pauses, 100);
  EXPECT_EQ(LockFile(second.get(), true, "disk").code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FileLockTest, ReadersShareItAndAWriterDoesNotJoinThem) {
  const UniqueFd first = Open(), second = Open(), third = Open();
  EXPECT_TRUE(LockFile(first.get(), true, "disk").ok());
  EXPECT_TRUE(LockFile(second.get(), true, "disk").ok());
  EXPECT_EQ(pauses, 0);
  EXPECT_FALSE(LockFile(third.get(), false, "disk").ok());
  UnlockFile(first.get());
  UnlockFile(second.get());
  EXPECT_TRUE(LockFile(third.get(), false, "disk").ok());
}

TEST_F(FileLockTest, WhatWaitingCannotMendIsRefusedAtOnce) {
  EXPECT_FALSE(LockFile(-1, false, "disk").ok());
  EXPECT_EQ(pauses, 0);
}

// ---- Leases ----

TEST_F(FileLockTest, WhoMayWriteItIsSeenWithoutAnyLock) {
  const UniqueFd mine = OpenToRead();
  EXPECT_TRUE(RefuseWriters(mine.get(), "base").ok());
  const UniqueFd reader = OpenToRead();
  EXPECT_TRUE(RefuseWriters(mine.get(), "base").ok());
  EXPECT_EQ(pauses, 0);
  const UniqueFd writer = Open();
  const absl::Status status = RefuseWriters(mine.get(), "base 'a'");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status),
            absl::StrFormat("base 'a' is open for writing by process %d (file_lock_test); end "
                            "that, or use a copy that nobody changes",
                            getpid()));
  EXPECT_EQ(pauses, 100);
}

TEST_F(FileLockTest, AWriterInAnotherProcessIsNamed) {
  const testing::Pipe ready, end;
  const pid_t child = testing::Must(fork(), "fork");
  if (child == 0) {
    const UniqueFd writer(open(path_.c_str(), O_WRONLY | O_CREAT, 0600));
    char byte = 0;
    const bool heard =
        write(ready.write_end.get(), &byte, 1) == 1 && read(end.read_end.get(), &byte, 1) == 1;
    _exit(heard ? 0 : 1);
  }
  EXPECT_EQ(testing::ReadExactly(ready.read_end.get(), 1).size(), 1u);
  const absl::Status status = RefuseWriters(OpenToRead().get(), "base");
  EXPECT_THAT(Message(status), ::testing::HasSubstr(absl::StrFormat("by process %d (", child)));
  testing::WriteAll(end.write_end.get(), "x");
  waitpid(child, nullptr, 0);
}

TEST_F(FileLockTest, AWriterWhoGoesWithinTheTimeIsNone) {
  UniqueFd writer = Open();
  const UniqueFd mine = OpenToRead();
  at_pause = [&] {
    if (pauses == 99) writer = UniqueFd();
  };
  EXPECT_TRUE(RefuseWriters(mine.get(), "base").ok());
}

TEST_F(FileLockTest, WhoWantsItAloneSeesReadersToo) {
  const UniqueFd mine = Open();
  EXPECT_TRUE(RefuseOthers(mine.get(), "base").ok());
  const UniqueFd reader = OpenToRead();
  EXPECT_THAT(Message(RefuseOthers(mine.get(), "base")),
              ::testing::StartsWith("base is open in process "));
}

// A lease that is held would send signals, and such as end a process.
TEST_F(FileLockTest, ALeaseIsGivenBack) {
  const UniqueFd mine = Open();
  EXPECT_TRUE(RefuseOthers(mine.get(), "base").ok());
  EXPECT_EQ(fcntl(mine.get(), F_GETLEASE), F_UNLCK);
  EXPECT_EQ(fcntl(mine.get(), F_GETSIG), 0);
}

TEST_F(FileLockTest, WhatHasNoLeasesIsFine) {
  EXPECT_TRUE(RefuseWriters(testing::DevNull().get(), "base").ok());
}

}  // namespace
}  // namespace ringside

extern "C" void ABSL_INTERNAL_C_SYMBOL(AbslInternalSleepFor)(absl::Duration) {
  ++ringside::pauses;
  ringside::at_pause();
}
