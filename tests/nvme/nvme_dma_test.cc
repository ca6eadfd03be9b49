#include "nvme/nvme_dma.h"

#include <gmock/gmock.h>

#include "tests/support/nvme/nvme_disk.h"

namespace ringside {
namespace {

using testing::DmaMemory;
using testing::NvmeModel;

constexpr uint64_t kMiB = 1 << 20;

uint64_t IovaOf(const IovaOffsets& offsets, const MemoryRegion& region) {
  return reinterpret_cast<uint64_t>(region.host) + offsets[region.index];
}

class NvmeDmaTest : public ::testing::Test {
 protected:
  void Use(std::vector<IovaRange> ranges, size_t max_mappings = 65535) {
    model_ = std::make_unique<NvmeModel>(
        testing::NvmeModelConfig{.iova_ranges = std::move(ranges), .max_mappings = max_mappings});
    device_ = model_->Attach();
    space_ = std::make_unique<DmaSpace>(*device_);
  }
  ~NvmeDmaTest() override {
    space_.reset();
    device_.reset();
    EXPECT_THAT(model_->violations(), ::testing::IsEmpty());
  }

  std::unique_ptr<NvmeModel> model_;
  std::unique_ptr<PciDevice> device_;
  std::unique_ptr<DmaSpace> space_;
  DmaMemory memory_;
};

TEST_F(NvmeDmaTest, GuestMemoryIsWhereTheGuestSeesIt) {
  Use({{0, 0xfedfffff}, {0xfef00000, (uint64_t{1} << 39) - 1}});
  const MemoryRegion region = memory_.region();
  const auto offsets = space_->MapMemory({&region, 1});
  ASSERT_TRUE(offsets.ok());
  EXPECT_EQ(IovaOf(*offsets, region), region.guest_address);
}

TEST_F(NvmeDmaTest, OrElsewhereIfThatIsReserved) {
  Use({{0x40000000, 0x7fffffff}});
  const MemoryRegion region = memory_.region();
  const auto offsets = space_->MapMemory({&region, 1});
  ASSERT_TRUE(offsets.ok());
  EXPECT_EQ(IovaOf(*offsets, region), 0x40000000);
}

// As two machines on one controller have it.
TEST_F(NvmeDmaTest, OrElsewhereIfItIsTaken) {
  Use({{0, 0x7fffffff}});
  const DmaMemory other;
  const MemoryRegion one = memory_.region();
  const MemoryRegion two = other.region();
  const auto first = space_->MapMemory({&one, 1});
  const auto second = space_->MapMemory({&two, 1});
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(IovaOf(*first, one), one.guest_address);
  EXPECT_GE(IovaOf(*second, two), one.guest_address + one.size);
}

TEST_F(NvmeDmaTest, BuffersAreAtTheOtherEnd) {
  Use({{0, 0x7fffffff}});
  const auto buffer = space_->Allocate(5000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->iova(), 0x80000000 - 8192);
  EXPECT_EQ(buffer->data()[8191], std::byte{0});
}

TEST_F(NvmeDmaTest, WhatIsGivenBackIsThereAgain) {
  Use({{0, 4 * kMiB - 1}});
  for (int round = 0; round < 3; ++round) {
    std::vector<DmaBuffer> buffers;
    for (int i = 0; i < 4; ++i) {
      auto buffer = space_->Allocate(kMiB);
      ASSERT_TRUE(buffer.ok()) << buffer.status();
      buffers.push_back(*std::move(buffer));
    }
    const auto one_more = space_->Allocate(4096);
    EXPECT_TRUE(absl::IsFailedPrecondition(one_more.status())) << one_more.status();
    // In another order than they came.
    std::swap(buffers[0], buffers[2]);
  }
  EXPECT_TRUE(space_->Allocate(4 * kMiB).ok());
}

TEST_F(NvmeDmaTest, AllOfTheMemoryOrNone) {
  Use({{0, 24 * kMiB - 1}});
  const DmaMemory other;
  const std::vector<MemoryRegion> both = {memory_.region(), other.region()};
  EXPECT_FALSE(space_->MapMemory(both).ok());
  // Nothing is left of the first.
  EXPECT_TRUE(space_->Allocate(24 * kMiB).ok());
}

TEST_F(NvmeDmaTest, ARefusalLeavesNothing) {
  Use({{0, 0x7fffffff}}, 1);
  {
    const auto buffer = space_->Allocate(4096);
    ASSERT_TRUE(buffer.ok());
    EXPECT_FALSE(space_->Allocate(4096).ok());
  }
  const auto buffer = space_->Allocate(4096);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->iova(), 0x80000000 - 4096);
}

}  // namespace
}  // namespace ringside
