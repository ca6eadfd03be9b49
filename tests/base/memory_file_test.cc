#include "base/memory_file.h"

#include <cerrno>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/huge_pages.h"

namespace ringside {
namespace {

constexpr uint64_t kSize = 4 * 4096;

TEST(MemoryFileTest, NobodyChangesItsLength) {
  const UniqueFd file = *CreateMemoryFile("test", kSize);
  for (const off_t size : {off_t{0}, off_t{4096}, off_t{8 * 4096}}) {
    EXPECT_EQ(ftruncate(file.get(), size), -1) << size;
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  struct stat status;
  ASSERT_EQ(fstat(file.get(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), kSize);
}

TEST(MemoryFileTest, HolesCanBePunched) {
  const UniqueFd file = *CreateMemoryFile("test", kSize);
  char byte = 'x';
  ASSERT_EQ(pwrite(file.get(), &byte, 1, 4096), 1);
  EXPECT_EQ(fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
  ASSERT_EQ(pread(file.get(), &byte, 1, 4096), 1);
  EXPECT_EQ(byte, '\0');
}

// Nothing is reserved by the file alone, so there need be none.
TEST(MemoryFileTest, OfHugePagesHasTheSameSealsAndWholePages) {
  if (!UniqueFd(memfd_create("none", MFD_CLOEXEC | MFD_HUGETLB)).valid()) {
    GTEST_SKIP() << "the kernel has no huge pages of its own";
  }
  const auto create = [](uint64_t size) {
    return CreateMemoryFile("test", size, MemoryFileUse::kStaysWritable, MemoryFilePages::k2M);
  };
  const absl::StatusOr<UniqueFd> file = create(2 * kHugePageSize);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(IsOfHugePages(file->get()));
  EXPECT_FALSE(IsOfHugePages(CreateMemoryFile("test", kSize)->get()));
  EXPECT_EQ(ftruncate(file->get(), 0), -1);
  EXPECT_EQ(fcntl(file->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(create(kSize).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MemoryFileTest, WhatIsTooMuchIsSaid) {
  const absl::Status status = CreateMemoryFile("test", uint64_t{1} << 63).status();
  EXPECT_NE(status.message().find("cannot size test to"), std::string::npos) << status;
}

}  // namespace
}  // namespace ringside
