// `ringside run` asked to end while the file system of its disk, or of its console's file, is
// frozen: the kernel has begun writes that nobody can cancel, and holds whoever made them until the
// thaw.
//
// The file system is real, on a loop device over a file in memory, and mounted in a mount namespace
// of the test's own, so nothing is left of it. It needs root; without, it is skipped.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <linux/fs.h>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/guest/record.h"
#include "tests/support/directories.h"
#include "tests/support/subprocess.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kDiskSize = 200 << 20;

bool Shell(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

// A mounted file system that can be frozen.
class FreezableDirectory {
 public:
  // Null if it cannot be had; `why` says so then.
  static std::unique_ptr<FreezableDirectory> Make(std::string& why) {
    std::unique_ptr<FreezableDirectory> made(new FreezableDirectory);
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) {
      why = "no mount namespace can be made; run it as root";
    } else if (!Shell("mkfs.ext4 -q -F " + made->image_.path()) ||
               !Shell("mount -o loop " + made->image_.path() + " " + made->path())) {
      why = "no ext4 can be made and mounted on a loop device";
    } else {
      made->fd_ = UniqueFd(open(made->path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (made->fd_.valid()) return made;
      why = "the mounted directory cannot be opened";
    }
    return nullptr;
  }
  ~FreezableDirectory() {
    Thaw();
    fd_ = UniqueFd();
    umount2(path().c_str(), MNT_DETACH);
  }

  std::string path() const { return directory_ / "mounted"; }
  bool Freeze() { return frozen_ = ioctl(fd_.get(), FIFREEZE, 0) == 0; }
  void Thaw() {
    if (frozen_) ioctl(fd_.get(), FITHAW, 0);
    frozen_ = false;
  }

 private:
  FreezableDirectory() { std::filesystem::create_directory(path()); }

  const testing::TempFile image_{256 << 20};
  const testing::TempDirectory directory_;
  UniqueFd fd_;
  bool frozen_ = false;
};

struct Way {
  const char* name;
  const char* options;  // of the disk
};

class FrozenDiskTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_KVM();
    std::string why;
    directory_ = FreezableDirectory::Make(why);
    if (directory_ == nullptr) GTEST_SKIP() << why;
    const int fd = testing::Must(open(Disk().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666), "open");
    testing::Must(posix_fallocate(fd, 0, kDiskSize), "posix_fallocate");
    fsync(fd);
    close(fd);
    // Its writes take seconds, so one is under way whenever the file system is frozen.
    process_ = std::make_unique<TerminalProcess>(std::vector<std::string>{
        RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--memory", "16M", "--disk",
        absl::StrCat("path=", Disk(), ",", GetParam().options), "--cmdline", "records=1 seed=7"});
    ASSERT_TRUE(process_->WaitFor("guest: durable ")) << process_->output();
    ASSERT_TRUE(directory_->Freeze());
    ASSERT_TRUE(process_->WaitUntilTheKernelHoldsAThread()) << process_->output();
  }
  void TearDown() override {
    if (directory_ != nullptr) directory_->Thaw();  // whoever is to be killed may be held by it
  }
  std::string Disk() const { return directory_->path() + "/disk"; }
  bool TerminalIsRestored() const {
    const termios mode = process_->mode();
    return mode.c_lflag == process_->initial_mode().c_lflag &&
           mode.c_oflag == process_->initial_mode().c_oflag;
  }
  // How many records from 0 on the guest was told are durable.
  uint64_t Acknowledged() const {
    static constexpr std::string_view kDurable = "guest: durable ";
    const size_t last = process_->output().rfind(kDurable);
    return std::stoull(process_->output().substr(last + kDurable.size())) + 1;
  }
  void ExpectRecords(uint64_t count) const {
    std::ifstream disk(Disk(), std::ios::binary);
    guest::Record record;
    for (uint64_t i = 0; i < std::min<uint64_t>(count, kDiskSize / sizeof record); ++i) {
      disk.read(reinterpret_cast<char*>(&record), sizeof record);
      ASSERT_TRUE(disk.good() && guest::IsRecord(record, i, 7)) << "record " << i << " is lost";
    }
  }

  std::unique_ptr<FreezableDirectory> directory_;
  std::unique_ptr<TerminalProcess> process_;
};

TEST_P(FrozenDiskTest, TheFirstSignalSaysWhoIsWaitedForAndTheThawEndsIt) {
  process_->Signal(SIGTERM);
  ASSERT_TRUE(process_->WaitFor("does not give them back")) << process_->output();
  EXPECT_THAT(process_->output(), HasSubstr("disk0 (" + Disk() + "): its storage has "));
  EXPECT_THAT(process_->output(), Not(HasSubstr("its storage has 0 requests")));
  EXPECT_TRUE(TerminalIsRestored());
  directory_->Thaw();
  EXPECT_EQ(process_->Wait(), 128 + SIGTERM) << process_->output();
  ExpectRecords(Acknowledged());
}

TEST_P(FrozenDiskTest, TheSecondSignalEndsTheProcessAtOnce) {
  process_->Signal(SIGTERM);
  ASSERT_TRUE(process_->WaitFor("does not give them back")) << process_->output();
  process_->Signal(SIGINT);
  // The kernel keeps what it holds, and so a zombie.
  EXPECT_TRUE(process_->WaitForDeath());
  EXPECT_TRUE(TerminalIsRestored());
  directory_->Thaw();
  EXPECT_EQ(process_->Wait(), 128 + SIGINT) << process_->output();
  ExpectRecords(Acknowledged());
}

INSTANTIATE_TEST_SUITE_P(, FrozenDiskTest,
                         ::testing::Values(Way{"UringDirect", "aio=io_uring,cache=none"},
                                           Way{"UringCached", "aio=io_uring,cache=writeback"},
                                           Way{"Native", "aio=native,cache=none"},
                                           Way{"Threads", "aio=threads,cache=none"}),
                         [](const auto& info) { return info.param.name; });

// The guest, whose disk is none, says what it has written for ever. Its entropy device is in use
// and served by the console's thread, which does not come back: its reset would be waited for in
// silence.
TEST(FrozenConsoleTest, TheFirstSignalSaysWhichFileIsWaitedForAndTheThawEndsIt) {
  SKIP_WITHOUT_KVM();
  std::string why;
  const std::unique_ptr<FreezableDirectory> directory = FreezableDirectory::Make(why);
  if (directory == nullptr) GTEST_SKIP() << why;
  const std::string path = directory->path() + "/console";
  TerminalProcess process({RINGSIDE_COMMAND, "run", "--kernel", RINGSIDE_GUEST_ELF, "--memory",
                           "16M", "--disk", "type=null,size=1T", "--cmdline", "entropy=1 records=1",
                           "--serial", "file=" + path});
  const absl::Cleanup thaw = [&] { directory->Thaw(); };  // before what it holds is killed
  const auto content = [&] {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  ASSERT_TRUE(testing::SpinUntil([&] { return content().find("durable") != std::string::npos; }))
      << process.output();
  ASSERT_THAT(content(), HasSubstr("guest: entropy ok"));
  ASSERT_TRUE(directory->Freeze());
  ASSERT_TRUE(process.WaitUntilTheKernelHoldsAThread()) << process.output();
  const size_t before = content().size();
  process.Signal(SIGTERM);
  ASSERT_TRUE(process.WaitFor("does not take what the guest has said")) << process.output();
  EXPECT_THAT(process.output(), HasSubstr("console output '" + path + "': its storage"));
  EXPECT_EQ(content().size(), before);
  directory->Thaw();
  EXPECT_EQ(process.Wait(), 128 + SIGTERM) << process.output();
  EXPECT_GT(content().size(), before) << "its last words are lost";
}

}  // namespace
}  // namespace ringside
