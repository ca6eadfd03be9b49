// Who waits for a file's lock, and for how long. This program's absl::SleepFor sleeps not, but
// counts: Abseil lets whoever wants to take its place (absl/time/clock.cc).
#include "block/file_lock.h"

#include <functional>
#include <gtest/gtest.h>

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
    if (pauses == 19) first = UniqueFd();
  };
  EXPECT_TRUE(LockFile(second.get(), false, "disk").ok());
  EXPECT_EQ(pauses, 19);
}

TEST_F(FileLockTest, WhatIsNeverLetGoOfIsRefusedAfterTwentyTries) {
  const UniqueFd first = Open(), second = Open();
  ASSERT_TRUE(LockFile(first.get(), false, "disk").ok());
  const absl::Status status = LockFile(second.get(), false, "disk 'a'");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Message(status),
            "disk 'a' is in use by another process, or twice in this machine; end who uses it, or "
            "use readonly=on in all of them");
  EXPECT_EQ(pauses, 20);
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

}  // namespace
}  // namespace ringside

extern "C" void ABSL_INTERNAL_C_SYMBOL(AbslInternalSleepFor)(absl::Duration) {
  ++ringside::pauses;
  ringside::at_pause();
}
