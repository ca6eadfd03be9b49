// Where io_uring cannot be had, and what is left when a ring is gone.
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "poll/io_thread.h"
#include "poll/uring.h"
#include "tests/support/descriptors.h"
#include "tests/support/forbid.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/uring_ops.h"
#include "tests/support/poll/waiters.h"

namespace ringside {
namespace {

using testing::Fired;
using testing::Forbid;
using testing::Must;
using testing::Pipe;
using testing::RunOn;
using testing::TestOp;
using testing::UringStatus;

std::vector<int> OpenDescriptors() {
  std::vector<int> open;
  DIR* directory = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(directory)) open.push_back(fd);
  }
  closedir(directory);
  return open;
}

int RingMappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("io_uring") != std::string::npos;
  }
  return count;
}

// What `function` returns in a child process, which may spoil what it likes.
std::string InChild(const std::function<std::string()>& function) {
  Pipe pipe;
  const pid_t child = Must(fork(), "fork");
  if (child == 0) {
    testing::WriteAll(pipe.write_end.get(), function());
    _exit(0);
  }
  {
    const UniqueFd closed = std::move(pipe.write_end);
  }
  const std::string text = testing::ReadExactly(pipe.read_end.get(), 1 << 16);
  int status = 0;
  Must(waitpid(child, &status, 0), "waitpid");
  EXPECT_EQ(status, 0) << text;
  return text;
}

// "Create's code and message|the I/O thread's|descriptors left open".
std::string Attempt() {
  const size_t open = OpenDescriptors().size();
  const absl::Status ring = UringStatus();
  const absl::Status thread = IoThread::Start("test", IoThread::Waiter::kUring).status();
  return absl::StrCat(ring.ToString(), "|", thread.ToString(), "|",
                      OpenDescriptors().size() - open);
}

// FailedPrecondition, so that the caller takes epoll; one line, which says what would help.
void ExpectRefusal(const std::string& attempt, int error, const std::string& remedy) {
  const std::string line =
      absl::StrCat("FAILED_PRECONDITION: io_uring cannot be used: ", strerror(error), "; ");
  EXPECT_EQ(attempt.substr(0, line.size()), line) << attempt;
  EXPECT_NE(attempt.find(remedy), std::string::npos) << attempt;
  EXPECT_EQ(attempt.find('\n'), std::string::npos) << attempt;
  const std::string status = attempt.substr(0, attempt.find('|'));
  EXPECT_EQ(attempt, absl::StrCat(status, "|", status, "|0"));
}

TEST(UringCreate, WhereItIsForbiddenTheErrorNamesTheSwitch) {
  for (const int error : {EPERM, EACCES, ENOSYS, EINVAL}) {
    const std::string attempt = InChild([&] {
      Forbid(SYS_io_uring_setup, error);
      return Attempt();
    });
    ExpectRefusal(attempt, error, "kernel.io_uring_disabled");
  }
}

TEST(UringCreate, WhereMemoryIsLimitedTheErrorNamesTheLimit) {
  const std::string attempt = InChild([] {
    Forbid(SYS_io_uring_setup, ENOMEM);
    return Attempt();
  });
  ExpectRefusal(attempt, ENOMEM, "ulimit -l");
}

TEST(UringCreate, WhereARingCannotBeRestrictedItIsNotUsed) {
  if (!UringStatus().ok()) GTEST_SKIP() << UringStatus().message();
  const std::string attempt = InChild([] {
    Forbid(SYS_io_uring_register, EPERM);
    return Attempt();
  });
  ExpectRefusal(attempt, EPERM, "kernel.io_uring_disabled");
}

TEST(UringCreate, WithoutDescriptorsTheErrorNamesTheirLimit) {
  if (!UringStatus().ok()) GTEST_SKIP() << UringStatus().message();
  const std::string text = InChild([] {
    const auto open = static_cast<rlim_t>(OpenDescriptors().back()) + 1;
    const rlimit limit = {.rlim_cur = open, .rlim_max = open};
    Must(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    while (dup(0) >= 0) {
    }
    return UringStatus().ToString();
  });
  EXPECT_THAT(text, ::testing::StartsWith(absl::StrCat(
                        "FAILED_PRECONDITION: io_uring cannot be used: ", strerror(EMFILE),
                        "; raise 'ulimit -n', which is ")));
}

// Fewer descriptors than files a ring would take.
TEST(UringCreate, ALowLimitOfDescriptorsIsEnough) {
  if (!UringStatus().ok()) GTEST_SKIP() << UringStatus().message();
  const std::string attempt = InChild([] {
    const rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    Must(setrlimit(RLIMIT_NOFILE, &limit), "setrlimit");
    return Attempt();
  });
  EXPECT_EQ(attempt, "OK|OK|0");
}

class UringEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const absl::Status status = UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
    descriptors_ = OpenDescriptors();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(OpenDescriptors(), descriptors_);
    EXPECT_EQ(RingMappings(), 0);
  }
  std::vector<int> descriptors_;
};

TEST_F(UringEnd, LeavesNoDescriptorAndNoMemory) {
  for (int i = 0; i < 200; ++i) {
    const std::unique_ptr<Uring> uring = *Uring::Create();
    EXPECT_GT(RingMappings(), 0);
    const EventFd event = *EventFd::Create();
    Fired fired;
    uring->Watch(event.fd(), &fired);
    uring->Enter();
    if (i % 2 == 0) event.Signal();
    if (i % 3 == 0) uring->Reap();
  }
}

TEST_F(UringEnd, OfAnIoThreadLeavesNoDescriptorAndNoMemory) {
  for (int i = 0; i < 100; ++i) {
    const auto io_thread = *IoThread::Start("test", IoThread::Waiter::kUring);
    if (i % 2 == 0) RunOn(*io_thread, [] {});
  }
}

// A file that was registered is free again when the ring is gone: its last reference goes with it,
// a little later.
TEST_F(UringEnd, LetsGoOfRegisteredFiles) {
  Pipe pipe;
  {
    const std::unique_ptr<Uring> uring = *Uring::Create();
    ASSERT_TRUE(uring->RegisterFile(pipe.read_end.get()).ok());
    uring->Watch(pipe.read_end.get());
    uring->Enter();
    const UniqueFd closed = std::move(pipe.read_end);
  }
  EXPECT_TRUE(testing::WaitForFd(pipe.write_end.get(), POLLERR));
}

// The process's own ring on another thread is not disturbed: ring descriptors are registered by
// thread.
TEST_F(UringEnd, OfAnotherThreadsRingLeavesOnesOwnInOrder) {
  const std::unique_ptr<Uring> own = *Uring::Create();
  for (int i = 0; i < 10; ++i) {
    IoThread::Start("test", IoThread::Waiter::kUring)->reset();
    const UniqueFd fd = testing::RegularFile("text");
    const int file = *own->RegisterFile(fd.get());
    char data[4];
    TestOp op;
    ASSERT_TRUE(own->Push(testing::ReadEntry(file, data, 4), op));
    ASSERT_TRUE(testing::TurnUntil(*own, [&] { return op.done(); }));
    EXPECT_EQ(op.results[0], 4);
    own->UnregisterFile(file);
  }
}

}  // namespace
}  // namespace ringside
