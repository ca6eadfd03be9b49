// A disk without a storage behind it.
#include "block/null_device.h"

#include <gtest/gtest.h>

#include "tests/support/allocation_counter.h"
#include "tests/support/block/chained_request.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using testing::RunOn;
using testing::TestDisk;
using testing::TestRequest;

constexpr uint64_t kSize = 1 << 20;

TEST(NullDeviceTest, GrowsAndDoesNotShrink) {
  const auto device = *NullDevice::Create({.size = 1 << 20});
  EXPECT_TRUE(device->Resize(2 << 20).ok());
  EXPECT_EQ(device->info().size, 2u << 20);
  EXPECT_TRUE(device->Resize(std::nullopt).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(device->Resize(1 << 20)));
  EXPECT_TRUE(absl::IsInvalidArgument(device->Resize((2 << 20) + 100)));
  EXPECT_EQ(device->info().size, 2u << 20);
}

TEST(NullDeviceTest, HasTheSizeItIsGiven) {
  auto device = NullDevice::Create({.size = kSize});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->info().size, kSize);
  EXPECT_FALSE((*device)->info().read_only);
}

TEST(NullDeviceTest, RefusesASizeThatNoDiskHas) {
  for (const uint64_t size : {0, 511, 1000}) {
    EXPECT_THAT(NullDevice::Create({.size = size}).status(),
                IsBadInput(std::to_string(size) + " bytes", "a multiple of 512"));
  }
}

class NullChannelTest : public ::testing::Test {
 protected:
  NullChannelTest() : disk_(NullDevice::Create({.size = kSize}), IoThread::Waiter::kEpoll) {}
  void SetUp() override { ASSERT_TRUE(disk_.status().ok()) << disk_.status(); }

  TestDisk disk_;  // which aborts if a request is done from within Submit
};

TEST_F(NullChannelTest, EveryRequestSucceeds) {
  TestRequest read(BlockOp::kRead, 0, {4096}), write(BlockOp::kWrite, 4096, {512, 512});
  TestRequest flush(BlockOp::kFlush, 0), discard(BlockOp::kDiscard, 0);
  TestRequest zeroes(BlockOp::kWriteZeroes, 0);
  discard.length = zeroes.length = 4096;
  const std::vector<TestRequest*> all = {&read, &write, &flush, &discard, &zeroes};
  for (int round = 0; round < 3; ++round) {
    for (TestRequest* request : all) request->result = 1;
    disk_.Run(all);
    for (TestRequest* request : all) EXPECT_EQ(request->result, 0);
  }
}

TEST_F(NullChannelTest, MovesNoBytes) {
  TestRequest write(BlockOp::kWrite, 0, {512}), read(BlockOp::kRead, 0, {512});
  disk_.Run(write.Set(std::string(512, 'w')));
  disk_.Run(read.Set(std::string(512, 'r')));
  EXPECT_EQ(write.Text(), std::string(512, 'w'));
  EXPECT_EQ(read.Text(), std::string(512, 'r'));
}

TEST_F(NullChannelTest, AllocatesNothing) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  TestRequest read(BlockOp::kRead, 0, {4096}), write(BlockOp::kWrite, 4096, {4096});
  uint64_t before = 0, after = 0;
  RunOn(disk_.io_thread(), [&] { before = testing::AllocationsOfThisThread(); });
  for (int i = 0; i < 20; ++i) disk_.Run({&read, &write});
  RunOn(disk_.io_thread(), [&] { after = testing::AllocationsOfThisThread(); });
  EXPECT_EQ(after, before);
}

// `done` may submit the next request, as a queue does that was waiting for room.
TEST_F(NullChannelTest, TakesARequestFromWithinDone) {
  auto device = NullDevice::Create({.size = kSize});
  ASSERT_TRUE(device.ok()) << device.status();
  std::unique_ptr<BlockChannel> channel;
  testing::ChainedRequest chain(10);
  RunOn(disk_.io_thread(), [&] {
    channel = *(*device)->Open(disk_.io_thread());
    chain.Begin(*channel);
    EXPECT_EQ(chain.left, 10);
  });
  chain.all_done.WaitOrAbort();
  RunOn(disk_.io_thread(), [&] { channel.reset(); });
}

}  // namespace
}  // namespace ringside
