#include "base/huge_pages.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/directories.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

class HugePagesTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = sys_.path() / "kernel/mm" / name;
    create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void HasSetAside(int all, int free, int reserved) const {
    Write("hugepages/hugepages-2048kB/nr_hugepages", std::to_string(all));
    Write("hugepages/hugepages-2048kB/free_hugepages", std::to_string(free));
    Write("hugepages/hugepages-2048kB/resv_hugepages", std::to_string(reserved));
  }
  std::string Why() const { return WhyNoSharedHugePages(sys_.path()); }

  const testing::TempDirectory sys_;
};

TEST_F(HugePagesTest, WhatOthersHaveReservedIsNotFree) {
  HasSetAside(100, 50, 20);
  EXPECT_EQ(HugePagesRemedy(40 * kHugePageSize - 1, sys_.path()),
            "40 huge pages of 2M are wanted, and 30 are free: 'sysctl vm.nr_hugepages=110' sets as "
            "many aside");
}

TEST_F(HugePagesTest, WhereThereAreEnoughSomethingElseIsTheLimit) {
  HasSetAside(100, 50, 20);
  EXPECT_THAT(HugePagesRemedy(30 * kHugePageSize, sys_.path()),
              HasSubstr("30 huge pages of 2M are wanted, and 30 are free: raise hugetlb.2MB"));
}

TEST_F(HugePagesTest, AHostThatTellsNothingHasNone) {
  EXPECT_THAT(HugePagesRemedy(2 * kHugePageSize, sys_.path()), HasSubstr("vm.nr_hugepages=2'"));
}

TEST_F(HugePagesTest, SharedMemoryHasThemAsTheKernelSays) {
  EXPECT_THAT(Why(), HasSubstr("makes no huge pages"));
  const auto chosen = [this](const char* text) {
    Write("transparent_hugepage/shmem_enabled", text);
    return Why();
  };
  EXPECT_EQ(chosen("[always] within_size advise never deny force"), "");
  EXPECT_EQ(chosen("always within_size [advise] never deny force"), "");
  EXPECT_EQ(chosen("always within_size advise never deny [force]"), "");
  EXPECT_THAT(chosen("always within_size advise [never] deny force"),
              HasSubstr("shmem_enabled is [never]: 'echo advise > "));
  EXPECT_THAT(chosen("always within_size advise never [deny] force"), HasSubstr("is [deny]"));
}

TEST_F(HugePagesTest, TheirSizeHasAWordOfItsOwn) {
  const auto chosen = [this](const char* all, const char* own) {
    Write("transparent_hugepage/shmem_enabled", all);
    Write("transparent_hugepage/hugepages-2048kB/shmem_enabled", own);
    return Why();
  };
  EXPECT_EQ(chosen("[never]", "always [advise] inherit"), "");
  EXPECT_EQ(chosen("[advise]", "always advise [inherit]"), "");
  EXPECT_NE(chosen("[never]", "always advise [inherit]"), "");
  EXPECT_THAT(chosen("[advise]", "always [never]"),
              HasSubstr("hugepages-2048kB/shmem_enabled is [never]"));
  EXPECT_NE(chosen("[deny]", "[always] never"), "");
}

}  // namespace
}  // namespace ringside
