// Opening a disk: what is refused and how, what the guest is told, who locks out whom.
#include "file/file_device.h"

#include <array>
#include <filesystem>
#include <gtest/gtest.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/support/block/test_disk.h"
#include "tests/support/count_of.h"
#include "tests/support/file/file_disk.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/poll/waiters.h"
#include "tests/support/recording_log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::RunOn;
using testing::TempFile;

absl::Status Create(const FileConfig& config) {
  return FileDevice::Create(config, Logger()).status();
}

std::string Text(const absl::Status& status) {
  return std::string(Message(status));
}

TEST(FileDeviceTest, RefusesWhatIsNoDisk) {
  EXPECT_THAT(Create({.path = "/dev/shm"}), IsBadInput("/dev/shm", "directory"));
  EXPECT_THAT(Create({.path = "/dev/null"}), IsBadInput("/dev/null", "neither a regular file"));
  const TempFile odd(5000);
  EXPECT_THAT(Create({.path = odd.path()}),
              IsBadInput("5000 bytes", "truncate -s %512 " + odd.path()));
  const TempFile empty(0);
  EXPECT_THAT(Create({.path = empty.path()}), IsBadInput(empty.path(), "empty"));
  const std::string fifo = empty.path() + ".fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THAT(Create({.path = fifo}), IsBadInput(fifo, "neither a regular file"));
  unlink(fifo.c_str());
}

// The guest gets these bytes all the same.
TEST(FileDeviceTest, SaysWhatLooksLikeAnothersFormat) {
  for (const auto& [magic, said] : {std::pair("QFI\xfb", "qcow2 image"),
                                    {"KDMV", "VMDK image"},
                                    {"vhdxfile", "VHDX image"},
                                    {"RSOVLAY\n", "overlay of Ringside"},
                                    {"vhdxfil", ""},
                                    {"\x7f"
                                     "ELF",
                                     ""}}) {
    const TempFile file(4096);
    ASSERT_GT(pwrite(file.fd(), magic, std::string_view(magic).size(), 0), 0);
    testing::RecordingLog log;
    ASSERT_TRUE(
        FileDevice::Create({.path = file.path(), .cache = CacheMode::kWriteback}, Logger(&log))
            .ok());
    if (*said == '\0') {
      EXPECT_THAT(log.lines(), ::testing::IsEmpty());
    } else {
      EXPECT_THAT(log.lines(), ::testing::ElementsAre(HasSubstr(said)));
    }
  }
}

TEST(FileDeviceTest, NamesAMissingFile) {
  const absl::Status missing = Create({.path = "/dev/shm/ringside-none"});
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(Text(missing), HasSubstr("/dev/shm/ringside-none"));
  EXPECT_THAT(Text(missing), HasSubstr("No such file"));
}

TEST(FileDeviceTest, NamesAMissingPermission) {
  const TempFile file(4096);
  ASSERT_EQ(fchmod(file.fd(), 0444), 0);
  // As nobody: root may do everything.
  const pid_t child = fork();
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    const absl::Status status = Create({.path = file.path()});
    const bool good = absl::IsPermissionDenied(status) &&
                      Text(status).find("readonly=on") != std::string::npos &&
                      Create({.path = file.path(), .read_only = true}).ok();
    _exit(good ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(waitpid(child, &result, 0), child);
  if (WIFEXITED(result) && WEXITSTATUS(result) == 2) GTEST_SKIP() << "cannot become nobody";
  EXPECT_EQ(result, 0);
}

TEST(FileDeviceTest, AWriterIsAloneReadersAreNot) {
  const TempFile file(4096);
  const FileConfig write = {.path = file.path()};
  const FileConfig read = {.path = file.path(), .read_only = true};
  {
    auto writer = FileDevice::Create(write, Logger());
    ASSERT_TRUE(writer.ok());
    EXPECT_TRUE(absl::IsFailedPrecondition(Create(write)));
    EXPECT_TRUE(absl::IsFailedPrecondition(Create(read)));
    EXPECT_THAT(Text(Create(read)), HasSubstr("in use"));
    const pid_t child = fork();  // another process likewise
    if (child == 0) _exit(absl::IsFailedPrecondition(Create(write)) ? 0 : 1);
    int result = -1;
    waitpid(child, &result, 0);
    EXPECT_EQ(result, 0);
  }
  auto reader = FileDevice::Create(read, Logger());
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(Create(read).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Create(write)));
}

// As a ring does for a while after the file was unregistered.
TEST(FileDeviceTest, ItsLockGoesWithItThoughTheKernelHoldsTheFile) {
  const TempFile file(4096);
  UniqueFd held;
  {
    auto device = FileDevice::Create({.path = file.path()}, Logger());
    ASSERT_TRUE(device.ok());
    for (int fd = 0; fd < 1024; ++fd) {
      std::error_code error;
      const auto target =
          std::filesystem::read_symlink(absl::StrFormat("/proc/self/fd/%d", fd), error);
      if (target == file.path() && fd != file.fd()) held = UniqueFd(dup(fd));
    }
    ASSERT_TRUE(held.valid());
  }
  EXPECT_TRUE(Create({.path = file.path()}).ok());
}

TEST(FileDeviceTest, TellsWhatTheGuestNeeds) {
  const TempFile file(1 << 20);
  struct Case {
    CacheMode mode;
    bool write_back;
  };
  for (const auto& [mode, write_back] :
       {Case{CacheMode::kNone, true}, Case{CacheMode::kWriteback, true},
        Case{CacheMode::kWritethrough, false}, Case{CacheMode::kDirectsync, false},
        Case{CacheMode::kUnsafe, true}}) {
    auto device = FileDevice::Create({.path = file.path(), .cache = mode}, Logger());
    if (absl::IsInvalidArgument(device.status())) continue;  // the file system has no O_DIRECT
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ((*device)->Statistics().cache, CacheModeName(mode));
    const BlockInfo& info = (*device)->info();
    EXPECT_EQ(info.size, 1u << 20);
    EXPECT_EQ(info.logical_block, 512u);
    EXPECT_EQ(info.write_back, write_back);
    EXPECT_TRUE(info.can_discard);
    EXPECT_FALSE(info.read_only);
  }
}

TEST(FileDeviceTest, ReadOnlyNeverWrites) {
  TempFile file(4096);
  file.Fill(0, "content");
  testing::FileDisk disk({.path = file.path(), .read_only = true}, IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok());
  EXPECT_TRUE(disk.device().info().read_only);
  EXPECT_FALSE(disk.device().info().can_discard);
  testing::TestRequest write(BlockOp::kWrite, 0, {512}), flush(BlockOp::kFlush, 0);
  testing::TestRequest discard(BlockOp::kDiscard, 0);
  discard.length = 512;
  disk.Run({&write, &flush, &discard});
  EXPECT_EQ(write.result, -EROFS);
  EXPECT_EQ(flush.result, 0);
  EXPECT_EQ(discard.result, -EROFS);
  EXPECT_EQ(file.Content(0, 7), "content");
}

// A file that takes no O_DIRECT: a sealed memory file, reached through /proc.
TEST(FileDeviceTest, WithoutDirectAccess) {
  const UniqueFd huge(memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB));
  if (!huge.valid() || ftruncate(huge.get(), 2 << 20) != 0) {
    GTEST_SKIP() << "no file here that refuses O_DIRECT";
  }
  const std::string path = "/proc/self/fd/" + std::to_string(huge.get());
  EXPECT_THAT(Create({.path = path, .cache = CacheMode::kNone}),
              IsBadInput("cache=none", "use cache=writeback"));
  EXPECT_THAT(Create({.path = path, .cache = CacheMode::kDirectsync}),
              IsBadInput("cache=directsync", "use cache=writeback"));
  EXPECT_THAT(Create({.path = path, .aio = Engine::kNative}), IsBadInput("aio=native", "O_DIRECT"));
  testing::RecordingLog log;
  auto device = FileDevice::Create({.path = path}, Logger(&log));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->Statistics().cache, "writeback");
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_THAT(log.lines()[0], HasSubstr("using cache=writeback"));
}

TEST(FileDeviceTest, ReadsLeaveTheTimeOfTheLastReadAlone) {
  if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  for (const CacheMode cache : {CacheMode::kNone, CacheMode::kWriteback}) {
    const TempFile file(4096);
    const std::array<timespec, 2> times = {timespec{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 2}};
    ASSERT_EQ(futimens(file.fd(), times.data()), 0);
    testing::FileDisk disk({.path = file.path(), .cache = cache}, IoThread::Waiter::kUring);
    if (absl::IsInvalidArgument(disk.status())) continue;  // the file system has no O_DIRECT
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    testing::TestRequest read(BlockOp::kRead, 0, {4096});
    disk.Run({&read});
    EXPECT_EQ(read.result, 0);
    struct stat after = {};
    ASSERT_EQ(fstat(file.fd(), &after), 0);
    EXPECT_EQ(after.st_atim.tv_sec, 1);
  }
}

TEST(FileDeviceTest, NativeNeedsDirectAccess) {
  const TempFile file(4096);
  EXPECT_THAT(Create({.path = file.path(), .cache = CacheMode::kWriteback, .aio = Engine::kNative}),
              IsBadInput("aio=native", "use cache=none"));
}

TEST(FileDeviceTest, ChoosesTheEngineByWhatThereIs) {
  const TempFile file(4096);
  struct Case {
    CacheMode cache;
    IoThread::Waiter waiter;
    Engine expected;
  };
  for (const auto& [cache, waiter, expected] :
       {Case{CacheMode::kNone, IoThread::Waiter::kEpoll, Engine::kNative},
        Case{CacheMode::kWriteback, IoThread::Waiter::kEpoll, Engine::kThreads},
        Case{CacheMode::kNone, IoThread::Waiter::kUring, Engine::kIoUring}}) {
    if (waiter == IoThread::Waiter::kUring && !testing::UringStatus().ok()) continue;
    testing::FileDisk disk({.path = file.path(), .cache = cache}, waiter);
    if (absl::IsInvalidArgument(disk.status())) continue;  // the file system has no O_DIRECT
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    EXPECT_EQ(disk.device().Statistics().engine, EngineName(expected));
  }
  const testing::FileDisk disk({.path = file.path(), .aio = Engine::kIoUring},
                               IoThread::Waiter::kEpoll);
  EXPECT_TRUE(absl::IsFailedPrecondition(disk.status()));
  EXPECT_THAT(Text(disk.status()), HasSubstr("aio=threads"));
}

// Keeps a thread with poll=always from ever sleeping.
class SilentSource final : public Source {
 public:
  using Source::Source;
  bool HasWork() override { return false; }
  void Run() override {}
  void EnableNotify() override {}
  void DisableNotify() override {}
};

// It sees completions in memory, so it never enters the kernel for what signals them.
TEST(FileDeviceTest, NativePollingEntersNoRing) {
  if (const auto status = testing::UringStatus(); !status.ok()) GTEST_SKIP() << status.message();
  const TempFile file(1 << 20, ".");
  testing::TestDisk disk(
      FileDevice::Create({.path = file.path(), .cache = CacheMode::kNone, .aio = Engine::kNative},
                         Logger()),
      IoThread::Waiter::kUring, {.kind = PollKind::kAlways});
  if (absl::IsInvalidArgument(disk.status())) GTEST_SKIP() << disk.status().message();
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  const EventFd never = *EventFd::Create();
  SilentSource silent(never.fd());
  RunOn(disk.io_thread(), [&] { EXPECT_TRUE(disk.io_thread().Attach(silent, Phase::kTake).ok()); });
  uint64_t enters = 0;
  for (int i = 0; i < 110; ++i) {
    if (i == 10) enters = disk.io_thread().uring()->enters();
    testing::TestRequest read(BlockOp::kRead, 0, {4096});
    EXPECT_EQ(disk.Run(read), 0);
  }
  EXPECT_EQ(disk.io_thread().uring()->enters(), enters);
  RunOn(disk.io_thread(), [&] { disk.io_thread().Detach(silent); });
}

// A guest may reset its disk for ever.
TEST(FileDeviceTest, CountsOnInTheSamePlaceHoweverOftenAChannelIsOpened) {
  const TempFile file(4096);
  testing::RecordingLog log;
  auto device =
      FileDevice::Create({.path = file.path(), .cache = CacheMode::kWriteback}, Logger(&log));
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->Statistics().engine, "");
  EXPECT_EQ(testing::CountOf((*device)->Statistics().counters, "submit_calls"), 0u);
  auto io_thread = IoThread::Start("disk-test");
  ASSERT_TRUE(io_thread.ok()) << io_thread.status();
  RunOn(**io_thread, [&] {
    for (int i = 0; i < 100; ++i) EXPECT_TRUE((*device)->Open(**io_thread).ok());
    const auto first = (*device)->Open(**io_thread);
    const auto second = (*device)->Open(**io_thread);
    EXPECT_TRUE(first.ok() && second.ok());
  });
  EXPECT_EQ((*device)->counters().size(), 2u);
  EXPECT_EQ((*device)->Statistics().engine, "threads");
  EXPECT_EQ(log.lines().size(), 1u);
}

// A loop device over a file, with sectors of the given size.
class LoopDevice {
 public:
  LoopDevice(const TempFile& file, uint32_t sector) {
    const UniqueFd control(open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    const int number = control.valid() ? ioctl(control.get(), LOOP_CTL_GET_FREE) : -1;
    if (number < 0) return;
    path_ = "/dev/loop" + std::to_string(number);
    fd_ = UniqueFd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    loop_config config = {};
    config.fd = static_cast<uint32_t>(file.fd());
    config.block_size = sector;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;  // goes with us, however the test ends
    attached_ = fd_.valid() && ioctl(fd_.get(), LOOP_CONFIGURE, &config) == 0;
  }
  ~LoopDevice() {
    if (attached_) ioctl(fd_.get(), LOOP_CLR_FD);
  }
  LoopDevice(const LoopDevice&) = delete;
  bool attached() const { return attached_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd fd_;
  bool attached_ = false;
};

TEST(FileDeviceTest, ABlockDeviceIsLookedAtAgain) {
  TempFile file(1 << 20);
  const LoopDevice loop(file, 512);
  if (!loop.attached()) GTEST_SKIP() << "no loop devices here";
  testing::FileDisk disk({.path = loop.path()}, IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  struct stat node = {};
  ASSERT_EQ(stat(loop.path().c_str(), &node), 0);
  EXPECT_EQ(disk.device().info().host_device, node.st_rdev);
  EXPECT_THAT(disk.device().Resize(2 << 20), IsBadInput("block device", "lvextend"));
  file.Resize(2 << 20);
  const UniqueFd opened(open(loop.path().c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(ioctl(opened.get(), LOOP_SET_CAPACITY, 0), 0);
  EXPECT_TRUE(disk.device().Resize(std::nullopt).ok());
  EXPECT_EQ(disk.device().info().size, 2u << 20);
  testing::TestRequest beyond(BlockOp::kRead, 1 << 20, {4096});
  EXPECT_EQ(disk.Run(beyond), 0);
}

TEST(FileDeviceTest, BlockDevicesOfBothSectorSizes) {
  for (const uint32_t sector : {512U, 4096U}) {
    TempFile file(1 << 20);
    const LoopDevice loop(file, sector);
    if (!loop.attached()) GTEST_SKIP() << "no loop devices here";
    testing::FileDisk disk({.path = loop.path()}, IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    EXPECT_EQ(disk.device().Statistics().cache, "none");
    EXPECT_EQ(disk.device().info().size, 1u << 20);
    EXPECT_EQ(disk.device().info().logical_block, sector);
    testing::TestRequest write(BlockOp::kWrite, 8192, {4096}), zeroes(BlockOp::kWriteZeroes, 4096);
    zeroes.length = 4096;
    testing::TestRequest discard(BlockOp::kDiscard, 0), flush(BlockOp::kFlush, 0);
    discard.length = 4096;
    disk.Run({&write.Set(std::string(4096, 'w')), &zeroes, &discard});
    EXPECT_EQ(disk.Run(flush), 0);
    EXPECT_EQ(write.result, 0);
    EXPECT_EQ(zeroes.result, 0);
    EXPECT_EQ(discard.result, 0);
    EXPECT_EQ(file.Content(8192, 4096), std::string(4096, 'w'));
    // Its node lies on a tmpfs, it does not.
    EXPECT_EQ(disk.Count("served_inline"), 0u);
    const absl::Status second = Create({.path = loop.path()});
    EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
  }
}

}  // namespace
}  // namespace ringside
