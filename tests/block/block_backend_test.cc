// Configurations of backends as values, what a filter passes on of the one it holds, and counters.
#include "block/block_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "block/null_device.h"
#include "file/file_device.h"
#include "nvme/nvme_controllers.h"
#include "tests/support/block/counting_filter.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/count_of.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using testing::CountingConfig;
using testing::CountOf;
using ::testing::ElementsAre;
using testing::TestDisk;
using testing::TestRequest;

class BlockBackendTest : public ::testing::Test {
 protected:
  NvmeControllers controllers_{Logger()};
  const BlockContext context_ = {.log = Logger(), .nvme = controllers_};
};

TEST_F(BlockBackendTest, IsAValueOfOneType) {
  const BlockBackend file = FileConfig{.path = "a"};
  BlockBackend copy = file;
  ASSERT_NE(copy.As<FileConfig>(), nullptr);
  copy.As<FileConfig>()->path = "b";
  EXPECT_EQ(copy.Describe().name, "b");
  EXPECT_EQ(file.Describe().name, "a");
  EXPECT_EQ(copy.As<NullConfig>(), nullptr);
  copy = NullConfig{};
  EXPECT_EQ(copy.As<FileConfig>(), nullptr);
  EXPECT_EQ(copy.Describe().name, "null");
}

TEST_F(BlockBackendTest, AFilterIsWhatItHolds) {
  const auto twice = [](const BlockBackend& backend) {
    return BlockBackend(CountingConfig{.backend = CountingConfig{.backend = backend}});
  };
  const BackendDescription file =
      twice(FileConfig{.path = "image", .aio = Engine::kIoUring}).Describe();
  EXPECT_EQ(file.name, "image");
  EXPECT_THAT(file.files, ElementsAre("image"));
  EXPECT_TRUE(file.needs_uring);
  EXPECT_FALSE(twice(FileConfig{.aio = Engine::kThreads}).Describe().needs_uring);
  const NvmeConfig nvme = {.address = "0000:00:04.0"};
  EXPECT_THAT(twice(nvme).Describe().pci_devices, ElementsAre(nvme.address));
  EXPECT_TRUE(twice(nvme).Announce("disk0", context_).ok());
  EXPECT_THAT(BlockBackend(nvme).Announce("disk1", context_),
              IsBadInput("disk0 and disk1", "a namespace can be one disk only"));
  EXPECT_THAT(twice(FileConfig{.path = "/nowhere/image"}).Open(context_).status().message(),
              ::testing::HasSubstr("/nowhere/image"));
}

TEST_F(BlockBackendTest, AFilterCountsByItself) {
  const testing::TempFile file(1 << 20);
  const BlockBackend backend = CountingConfig{
      .backend = CountingConfig{.backend = FileConfig{.path = file.path()}, .prefix = "inner."},
      .prefix = "outer."};
  TestDisk disk(backend.Open(context_), IoThread::Waiter::kEpoll);
  ASSERT_TRUE(disk.status().ok()) << disk.status();
  const std::string text = testing::Pattern(4096, 'x');
  TestRequest write(BlockOp::kWrite, 4096, {4096}), read(BlockOp::kRead, 4096, {4096});
  TestRequest again(BlockOp::kRead, 0, {512}), flush(BlockOp::kFlush, 0);
  EXPECT_EQ(disk.Run(write.Set(text)), 0);
  disk.Run({&read, &again, &flush});
  EXPECT_EQ(read.Text(), text);
  for (const std::string prefix : {"inner.", "outer.", ""}) {
    EXPECT_EQ(disk.Count(prefix + "reads"), 2u) << prefix;
    EXPECT_EQ(disk.Count(prefix + "writes"), 1u) << prefix;
    EXPECT_EQ(disk.Count(prefix + "flushes"), 1u) << prefix;
    EXPECT_EQ(disk.Count(prefix + "discards"), 0u) << prefix;
  }
}

TEST(CounterPoolTest, TellsTheSumOfAllChannelsThereHaveBeen) {
  CounterPool<testing::CountingCounters> pool;
  EXPECT_EQ(CountOf(pool.Sums(), "zeroes"), 0u) << "a name before there is a channel";
  testing::CountingCounters& first = pool.Take();
  testing::CountingCounters& second = pool.Take();
  first.requests[0].Add(2);
  second.requests[0].Add(3);
  EXPECT_EQ(CountOf(pool.Sums(), "reads"), 5u);
  first.taken = false;
  EXPECT_EQ(&pool.Take(), &first);
  first.requests[0].Add();
  EXPECT_EQ(CountOf(pool.Sums(), "reads"), 6u);
  EXPECT_EQ(pool.Sums().size(), 5u);
  EXPECT_EQ(pool.size(), 2u);
}

}  // namespace
}  // namespace ringside
