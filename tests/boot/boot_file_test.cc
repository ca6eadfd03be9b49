#include "boot/boot_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <span>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/directories.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

class BootFileTest : public ::testing::Test {
 protected:
  std::string Path(const char* name) const { return directory_ / name; }
  std::string MakeFile(const char* name, const Bytes& content) const {
    const UniqueFd fd(open(Path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    EXPECT_EQ(write(fd.get(), content.data(), content.size()),
              static_cast<ssize_t>(content.size()));
    return Path(name);
  }

  const testing::TempDirectory directory_;
};

Bytes Read(const BootFile& file, uint64_t offset, size_t size) {
  Bytes bytes(size);
  const absl::Status status = file.ReadAt(offset, std::as_writable_bytes(std::span(bytes)));
  EXPECT_TRUE(status.ok()) << status;
  return bytes;
}

TEST_F(BootFileTest, ReadsByPosition) {
  const Bytes content = Pattern(10000);
  const auto file = BootFile::Open("initrd", MakeFile("file", content));
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->size(), content.size());
  EXPECT_EQ(file->name(), "initrd '" + Path("file") + "'");
  EXPECT_EQ(Read(*file, 0, 10000), content);
  EXPECT_EQ(Read(*file, 9990, 10), Bytes(content.begin() + 9990, content.end()));
  EXPECT_EQ(Read(*file, 3, 1), Bytes(1, content[3]));
}

TEST_F(BootFileTest, ReadsNothingAnywhere) {
  const BootFile file = MakeBootFile({1});
  EXPECT_TRUE(file.ReadAt(5, {}).ok());
}

TEST_F(BootFileTest, MissingFileIsNotFoundAndNamed) {
  const absl::Status status = BootFile::Open("kernel", Path("none")).status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_EQ(Message(status),
            "cannot open kernel '" + Path("none") + "': No such file or directory");
}

TEST_F(BootFileTest, DirectoryIsRefused) {
  EXPECT_THAT(BootFile::Open("kernel", directory_.path()).status(),
              IsBadInput("kernel '" + directory_.path().string() + "'", "is a directory"));
}

// Opening it must not wait for a writer either: then this test would never end.
TEST_F(BootFileTest, FifoIsRefusedWithoutWaiting) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(BootFile::Open("kernel", Path("fifo")).status(),
              IsBadInput("kernel '" + Path("fifo") + "'", "is not a regular file"));
}

TEST_F(BootFileTest, DeviceIsRefused) {
  EXPECT_THAT(BootFile::Open("initrd", "/dev/null").status(),
              IsBadInput("initrd '/dev/null'", "is not a regular file"));
}

TEST_F(BootFileTest, EmptyFileIsRefused) {
  EXPECT_THAT(BootFile::Open("kernel", MakeFile("empty", {})).status(),
              IsBadInput("kernel '" + Path("empty") + "'", "is empty"));
}

TEST_F(BootFileTest, ForbiddenFileIsPermissionDeniedAndNamed) {
  const std::string path = MakeFile("secret", {1});
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  directory_.OpenToAll();
  // Root may read everything: look at it as "nobody" (this thread only; nothing happens for
  // others).
  constexpr uid_t kNobody = 65534;
  const int self = setfsuid(kNobody);
  const absl::Status status = BootFile::Open("kernel", path).status();
  setfsuid(static_cast<uid_t>(self));
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(Message(status), "cannot open kernel '" + path + "': Permission denied");
}

TEST_F(BootFileTest, ReadingBehindTheEndIsAnError) {
  const BootFile file = MakeBootFile(Pattern(100));
  Bytes bytes(10);
  const auto target = std::as_writable_bytes(std::span(bytes));
  EXPECT_TRUE(file.ReadAt(90, target).ok());
  EXPECT_THAT(file.ReadAt(91, target), IsBadInput("kernel 'test'", "is truncated"));
  EXPECT_THAT(file.ReadAt(100, target), IsBadInput("kernel 'test'", "is truncated"));
  EXPECT_THAT(file.ReadAt(5000, target), IsBadInput("kernel 'test'", "is truncated"));
}

TEST_F(BootFileTest, FileThatShrinksIsAnErrorThatNamesItsEnd) {
  const std::string path = MakeFile("shrinks", Pattern(100));
  const auto file = BootFile::Open("kernel", path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(truncate(path.c_str(), 40), 0);
  Bytes bytes(100);
  EXPECT_THAT(file->ReadAt(0, std::as_writable_bytes(std::span(bytes))),
              IsBadInput("kernel '" + path + "'", "ends at byte 40"));
}

TEST_F(BootFileTest, FailingReadNamesTheFile) {
  const auto file = BootFile::FromFd("kernel", "write-only", [this] {
    return UniqueFd(open(MakeFile("file", {1}).c_str(), O_WRONLY | O_CLOEXEC));
  }());
  ASSERT_TRUE(file.ok()) << file.status();
  std::byte byte;
  const absl::Status status = file->ReadAt(0, {&byte, 1});
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(Message(status)), HasSubstr("cannot read kernel 'write-only': "));
}

TEST_F(BootFileTest, ClosedDescriptorIsAnError) {
  EXPECT_THAT(std::string(Message(BootFile::FromFd("kernel", "gone", UniqueFd()).status())),
              HasSubstr("kernel 'gone': Bad file descriptor"));
}

}  // namespace
}  // namespace ringside
