// Overlays as disks: made, opened, refused, grown and closed, on real files.
#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nvme/nvme_controllers.h"
#include "overlay/overlay_device.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/directories.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::TestDisk;
using testing::TestRequest;

constexpr uint64_t kSize = 1 << 20;

absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const OverlayConfig& config) {
  NvmeControllers controllers{Logger()};
  return BlockBackend(config).Open({.log = Logger(), .nvme = controllers});
}

class OverlayDeviceTest : public ::testing::Test {
 protected:
  OverlayDeviceTest() {
    std::ofstream(Path("base")) << std::string(kSize, 'b');
    // A time of change that a change soon afterwards moves, however coarse the kernel's are.
    std::filesystem::last_write_time(
        Path("base"), std::filesystem::file_time_type::clock::now() - std::chrono::seconds(10));
  }
  std::string Path(const std::string& name) const { return directory_ / name; }
  FileConfig Base() const {
    return {.path = Path("base"), .read_only = true, .cache = CacheMode::kWriteback};
  }
  OverlayConfig Config() const { return {.base = Base(), .path = Path("cow")}; }
  static std::string Read(TestDisk& disk, uint64_t offset, uint32_t bytes) {
    TestRequest read(BlockOp::kRead, offset, {bytes});
    const int result = disk.Run(read);
    return result == 0 ? read.Text() : std::to_string(result);
  }
  static int Write(TestDisk& disk, uint64_t offset, const std::string& text) {
    TestRequest write(BlockOp::kWrite, offset, {static_cast<uint32_t>(text.size())});
    return disk.Run(write.Set(text));
  }
  static std::string Error(const OverlayConfig& config) {
    return std::string(Open(config).status().message());
  }

  testing::TempDirectory directory_;
};

TEST_F(OverlayDeviceTest, IsMadeAndFoundAgainAndTheBaseStaysAsItIs) {
  {
    TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    EXPECT_EQ(disk.device().info().size, kSize);
    EXPECT_EQ(Read(disk, 0, 512), std::string(512, 'b'));
    ASSERT_EQ(Write(disk, 512, std::string(512, 'w')), 0);  // and no flush
    EXPECT_EQ(disk.Count("overlay_allocated_bytes"), 4096u);
  }
  TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
  EXPECT_EQ(Read(disk, 0, 1536),
            std::string(512, 'b') + std::string(512, 'w') + std::string(512, 'b'));
  std::stringstream base;
  base << std::ifstream(Path("base")).rdbuf();
  EXPECT_EQ(base.str(), std::string(kSize, 'b'));
}

// Its blocks may be lost: the map does not say of them that they are here.
TEST_F(OverlayDeviceTest, AfterAFlushThatFailedItsMapIsLeftAsItWas) {
  OverlayConfig config = Config();
  config.cache = CacheMode::kWriteback;
  {
    TestDisk disk(Open(config), IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    ASSERT_EQ(Write(disk, 0, std::string(512, 'w')), 0);
    *disk.device().flush_error() = -EIO;
  }
  TestDisk disk(Open(config), IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  EXPECT_EQ(Read(disk, 0, 512), std::string(512, 'b'));
  EXPECT_EQ(disk.device().flush_error()->load(), 0);
}

TEST_F(OverlayDeviceTest, TwoAtOnceAreRefused) {
  const auto first = Open(Config());
  ASSERT_TRUE(first.ok());
  EXPECT_THAT(Error(Config()), HasSubstr("in use"));
}

TEST_F(OverlayDeviceTest, ABaseThatHasChangedIsRefused) {
  ASSERT_TRUE(Open(Config()).ok());
  std::ofstream(Path("base"), std::ios::in | std::ios::out) << "changed";
  EXPECT_THAT(Error(Config()), HasSubstr("last changed at"));
  std::filesystem::resize_file(Path("base"), kSize + 4096);
  EXPECT_THAT(Error(Config()), HasSubstr("stands on a base of 1048576 bytes"));
}

TEST_F(OverlayDeviceTest, AnOverlayThatWasWrittenIsNoBaseAnyMore) {
  OverlayConfig below = Config();
  ASSERT_TRUE(Open(below).ok());
  below.read_only = true;
  const OverlayConfig top = {.base = below, .path = Path("top")};
  ASSERT_TRUE(Open(top).ok());
  ASSERT_TRUE(Open(top).ok());  // to read it changes nothing
  ASSERT_TRUE(Open(Config()).ok());
  ASSERT_TRUE(Open(top).ok()) << "nothing was written";
  {
    TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    ASSERT_EQ(Write(disk, 512, std::string(512, 'w')), 0);
  }
  EXPECT_THAT(Error(top), HasSubstr("has been written since"));
  ASSERT_TRUE(Open(Config()).ok());
  EXPECT_THAT(Error(top), HasSubstr("has been written since"));
  // Nor is one that would be written.
  EXPECT_THAT(Error({.base = Config(), .path = Path("other")}), HasSubstr("bases are only read"));
}

// Which changes nothing of its map.
TEST_F(OverlayDeviceTest, AnOverlayIsNoBaseAnyMoreWhereABlockWasWrittenOverEither) {
  const auto write = [&] {
    TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    ASSERT_EQ(Write(disk, 512, std::string(512, 'w')), 0);
  };
  write();
  OverlayConfig below = Config();
  below.read_only = true;
  const OverlayConfig top = {.base = below, .path = Path("top")};
  ASSERT_TRUE(Open(top).ok());
  write();
  EXPECT_THAT(Error(top), HasSubstr("has been written since"));
}

TEST_F(OverlayDeviceTest, InMemoryItLeavesNothingAndHasALimit) {
  const OverlayConfig config = {.base = Base(), .in_memory = true, .limit = 8192};
  {
    TestDisk disk(Open(config), IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.status().ok()) << disk.status();
    ASSERT_EQ(Write(disk, 512, std::string(512, 'w')), 0);
    EXPECT_EQ(Read(disk, 512, 512), std::string(512, 'w'));
    EXPECT_EQ(Write(disk, 8192, std::string(8192, 'w')), -ENOSPC);
    TestRequest flush(BlockOp::kFlush, 0);
    EXPECT_EQ(disk.Run(flush), 0);
  }
  EXPECT_EQ(testing::CountEntries(directory_.path().c_str()), 1u);
  TestDisk disk(Open(config), IoThread::Waiter::kEpoll);
  EXPECT_EQ(Read(disk, 512, 512), std::string(512, 'b'));
  EXPECT_THAT(Error({.base = Base()}), HasSubstr("either a path or is in memory"));
}

// Space that no block of the map has, as after a write that came behind a discard.
TEST_F(OverlayDeviceTest, ItsLimitCountsWhatTheFileTakesToo) {
  constexpr off_t kMuch = off_t{256} << 20;
  OverlayConfig config = Config();
  config.limit = 1 << 20;
  config.size = 2 * static_cast<uint64_t>(kMuch);
  TestDisk disk(Open(config), IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  ASSERT_EQ(Write(disk, 0, std::string(4096, 'w')), 0);
  const UniqueFd file(open(config.path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(fallocate(file.get(), FALLOC_FL_KEEP_SIZE, kMuch, kMuch), 0);
  EXPECT_EQ(Write(disk, 8192, std::string(4096, 'w')), -ENOSPC);
  EXPECT_EQ(Write(disk, 0, std::string(4096, 'x')), 0) << "what it has can be written";
  ASSERT_EQ(fallocate(file.get(), FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, kMuch, kMuch), 0);
  EXPECT_EQ(Write(disk, 8192, std::string(4096, 'w')), 0);
}

TEST_F(OverlayDeviceTest, GrowsWithZeroesUpToItsCapacity) {
  {
    TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk.device().Resize(2 * kSize + 512).ok());
    EXPECT_EQ(Read(disk, kSize - 512, 1024), std::string(512, 'b') + std::string(512, '\0'));
    ASSERT_EQ(Write(disk, 2 * kSize, std::string(512, 'w')), 0);
    EXPECT_FALSE(disk.device().Resize(kSize).ok());
    EXPECT_THAT(std::string(disk.device().Resize(uint64_t{1} << 40).message()),
                HasSubstr("has room for"));
  }
  TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
  EXPECT_EQ(disk.device().info().size, 2 * kSize + 512);
  EXPECT_EQ(Read(disk, 2 * kSize, 512), std::string(512, 'w'));
}

TEST_F(OverlayDeviceTest, ADamagedOneIsMarkedAndCanBeRead) {
  {
    TestDisk disk(Open(Config()), IoThread::Waiter::kEpoll);
    ASSERT_EQ(Write(disk, 0, std::string(4096, 'w')), 0);
  }
  std::fstream(Path("cow"), std::ios::in | std::ios::out).seekp(8192 + 2000) << "rot";
  EXPECT_THAT(Error(Config()), HasSubstr("is damaged"));
  EXPECT_THAT(Error(Config()), HasSubstr("is damaged"));
  OverlayConfig config = Config();
  config.read_only = true;
  TestDisk disk(Open(config), IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  EXPECT_EQ(Read(disk, 0, 512), std::to_string(-EIO));
  EXPECT_EQ(OverlayFile::Open(Path("cow"), OverlayAccess::kRead)->header().flags &
                OverlayHeader::kCorrupt,
            OverlayHeader::kCorrupt);
}

}  // namespace
}  // namespace ringside
