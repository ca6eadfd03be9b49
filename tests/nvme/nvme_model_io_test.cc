// The NVMe controller model's data transfers and namespaces.
#include <cstring>
#include <vector>

#include "tests/support/nvme/nvme_model_fixture.h"

namespace ringside::testing {
namespace {

using nvme::AdminOp;
using nvme::IoOp;
using Driver = NvmeTestDriver;

class NvmeModelDataTest : public NvmeModelTest {
 protected:
  // A read of so many pages with this in its PRPs.
  nvme::Status ReadPages(uint32_t pages, uint64_t prp1, uint64_t prp2) {
    nvme::Command command = Driver::Io(IoOp::kRead, 0, pages * 8);
    command.prp1 = prp1;
    command.prp2 = prp2;
    return driver_->Do(1, command).status;
  }
  void SetList(uint64_t place, uint64_t entry) {
    std::memcpy(driver_->At(Driver::kListPage, place), &entry, sizeof entry);
  }
  // Each page of the namespace holds its number.
  void NumberPages() {
    for (uint64_t i = 0; i < 600; ++i) {
      model().SetContents(1, i * 4096, std::vector<std::byte>(4096, std::byte(i)));
    }
  }
  int Content(uint64_t page, uint64_t offset = 0) {
    return static_cast<int>(*driver_->At(page, offset));
  }
  static constexpr uint64_t kTo = Driver::kDataPage;
};

TEST_F(NvmeModelDataTest, FollowsPrps) {
  ASSERT_NO_FATAL_FAILURE(Start());
  NumberPages();
  // One entry with an offset and one without.
  EXPECT_EQ(ReadPages(1, Driver::Iova(kTo, 1024), Driver::Iova(kTo + 9)), nvme::kSuccess);
  EXPECT_EQ(Content(kTo + 9, 1023), 0);
  // A list, itself with an offset.
  EXPECT_EQ(ReadPages(2, Driver::Iova(kTo), Driver::Iova(kTo + 5)), nvme::kSuccess);
  EXPECT_EQ(Content(kTo + 5), 1);
  for (uint64_t i = 0; i < 3; ++i) SetList(64 + 8 * i, Driver::Iova(kTo + 20 - i));
  EXPECT_EQ(ReadPages(4, Driver::Iova(kTo), Driver::Iova(Driver::kListPage, 64)), nvme::kSuccess);
  EXPECT_EQ(Content(kTo), 0);
  EXPECT_EQ(Content(kTo + 20), 1);
  EXPECT_EQ(Content(kTo + 19), 2);
  EXPECT_EQ(Content(kTo + 18), 3);
  ExpectNoViolation();
}

TEST_F(NvmeModelDataTest, AListGoesOnInTheNextPage) {
  ASSERT_NO_FATAL_FAILURE(Start());
  NumberPages();
  // Two places are left in the page: one entry, and where it goes on.
  SetList(4080, Driver::Iova(kTo + 1));
  SetList(4088, Driver::Iova(Driver::kListPage + 1));
  SetList(4096, Driver::Iova(kTo + 3));
  SetList(4104, Driver::Iova(kTo + 2));
  const uint64_t list = Driver::Iova(Driver::kListPage, 4080);
  EXPECT_EQ(ReadPages(4, Driver::Iova(kTo), list), nvme::kSuccess);
  EXPECT_EQ(Content(kTo + 3), 2);
  EXPECT_EQ(Content(kTo + 2), 3);
  // With three pages the last place is an entry.
  SetList(4088, Driver::Iova(kTo + 7));
  EXPECT_EQ(ReadPages(3, Driver::Iova(kTo), list), nvme::kSuccess);
  EXPECT_EQ(Content(kTo + 7), 2);
  ExpectNoViolation();
}

TEST_F(NvmeModelDataTest, PrpsWithWrongOffsetsAreSeen) {
  ASSERT_NO_FATAL_FAILURE(Start());
  SetList(0, Driver::Iova(kTo));
  SetList(8, Driver::Iova(kTo, 512));
  const uint64_t list = Driver::Iova(Driver::kListPage);
  EXPECT_EQ(ReadPages(1, Driver::Iova(kTo, 2), 0), nvme::kPrpOffsetInvalid);
  EXPECT_EQ(ReadPages(2, Driver::Iova(kTo), Driver::Iova(kTo, 512)), nvme::kPrpOffsetInvalid);
  EXPECT_EQ(ReadPages(3, Driver::Iova(kTo), list + 4), nvme::kPrpOffsetInvalid);
  EXPECT_EQ(ReadPages(3, Driver::Iova(kTo), list), nvme::kPrpOffsetInvalid);
  EXPECT_THAT(model().violations(),
              ::testing::ElementsAre(::testing::HasSubstr("PRP1 has an offset"),
                                     ::testing::HasSubstr("PRP2 has an offset"),
                                     ::testing::HasSubstr("the address of a PRP list"),
                                     ::testing::HasSubstr("an entry of a PRP list")));
}

TEST_F(NvmeModelDataTest, MemoryThatIsNotMappedIsNotReached) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(ReadPages(1, Driver::Iova(0) - 4096, 0), nvme::kDataTransferError);
  EXPECT_EQ(ReadPages(2, Driver::Iova(255), Driver::Iova(256)), nvme::kDataTransferError);
  EXPECT_EQ(model().violations().size(), 2);
  EXPECT_THAT(model().violations()[0],
              ::testing::HasSubstr("outside of the mappings: data, 4096 bytes at 0xff000"));
}

TEST_F(NvmeModelDataTest, MemoryIsOutOfReachOnceItIsUnmapped) {
  ASSERT_NO_FATAL_FAILURE(Start());
  alignas(4096) static std::byte page[4096];
  ASSERT_TRUE(device_->MapDma({.host = page, .size = 4096, .iova = 0x8000}).ok());
  EXPECT_EQ(ReadPages(1, 0x8000, 0), nvme::kSuccess);
  ASSERT_TRUE(device_->UnmapDma(0x8000, 4096).ok());
  EXPECT_EQ(ReadPages(1, 0x8000, 0), nvme::kDataTransferError);
  ExpectViolation("outside of the mappings");
}

TEST_F(NvmeModelDataTest, ChecksWhatACommandAsksFor) {
  config_.namespaces = {{.blocks = 100}, {.blocks = 0}};
  config_.mdts = 1;
  ASSERT_NO_FATAL_FAILURE(Start());
  const auto end = [&](IoOp op, uint64_t start, uint32_t blocks, uint32_t nsid = 1) {
    nvme::Command command = Driver::Io(op, start, blocks);
    command.nsid = nsid;
    command.prp2 = Driver::Iova(kTo + 1);
    return driver_->Do(1, command).status;
  };
  EXPECT_EQ(end(IoOp::kRead, 84, 16), nvme::kSuccess);
  EXPECT_EQ(end(IoOp::kRead, 85, 16), nvme::kLbaOutOfRange);
  EXPECT_EQ(end(IoOp::kWrite, 100, 1), nvme::kLbaOutOfRange);
  EXPECT_EQ(end(IoOp::kWrite, ~uint64_t{0}, 1), nvme::kLbaOutOfRange);
  EXPECT_EQ(end(IoOp::kWriteZeroes, 99, 2), nvme::kLbaOutOfRange);
  EXPECT_EQ(end(IoOp::kRead, 0, 17), nvme::kInvalidField);  // beyond MDTS
  EXPECT_EQ(end(IoOp::kRead, 0, 1, 0), nvme::kInvalidNamespace);
  EXPECT_EQ(end(IoOp::kRead, 0, 1, 2), nvme::kInvalidNamespace);
  EXPECT_EQ(end(IoOp::kFlush, 0, 1, 3), nvme::kInvalidNamespace);
  EXPECT_EQ(end(IoOp::kFlush, 0, 1, 0xffffffff), nvme::kSuccess);
  EXPECT_EQ(end(static_cast<IoOp>(0x55), 0, 1), nvme::kInvalidOpcode);
  ExpectNoViolation();
  nvme::Command sgl = Driver::Io(IoOp::kRead, 0);
  sgl.flags = 0x40;
  EXPECT_EQ(driver_->Do(1, sgl).status, nvme::kInvalidField);
  ExpectViolation("SGLs or fused");
}

TEST_F(NvmeModelDataTest, CommandsMustBeOffered) {
  config_.deallocate = false;
  config_.write_zeroes = false;
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Do(1, Driver::Io(IoOp::kWriteZeroes, 0)).status, nvme::kInvalidOpcode);
  EXPECT_EQ(driver_->Do(1, Driver::Io(IoOp::kDatasetManagement, 0)).status, nvme::kInvalidOpcode);
}

TEST_F(NvmeModelDataTest, WhatIsDeallocatedReadsZero) {
  ASSERT_NO_FATAL_FAILURE(Start());
  NumberPages();
  const std::vector<nvme::DsmRange> ranges = {{.blocks = 8, .start = 16},
                                              {.blocks = 1, .start = 40}};
  const auto deallocate = [&](uint32_t flags) {
    std::memcpy(driver_->At(kTo), ranges.data(), ranges.size() * sizeof ranges[0]);
    nvme::Command command = Driver::Io(IoOp::kDatasetManagement, 0);
    command.cdw10 = 1;
    command.cdw11 = flags;
    return driver_->Do(1, command).status;
  };
  EXPECT_EQ(deallocate(0), nvme::kSuccess);  // a hint about something else
  EXPECT_EQ(driver_->Read(16), 2);
  EXPECT_EQ(deallocate(nvme::kDsmDeallocate), nvme::kSuccess);
  EXPECT_EQ(driver_->Read(15), 1);
  EXPECT_EQ(driver_->Read(16), 0);
  EXPECT_EQ(driver_->Read(23), 0);
  EXPECT_EQ(driver_->Read(24), 3);
  EXPECT_EQ(driver_->Read(40), 0);
  EXPECT_EQ(driver_->Read(41), 5);
  EXPECT_EQ(driver_->Do(1, Driver::Io(IoOp::kWriteZeroes, 24, 2)).status, nvme::kSuccess);
  EXPECT_EQ(driver_->Read(25), 0);
  EXPECT_EQ(driver_->Read(26), 3);
  ExpectNoViolation();
}

class NvmeModelPowerTest : public NvmeModelTest {
 protected:
  char Durable(uint64_t block) { return static_cast<char>(model().Durable(1)[block * 512]); }
  char Content(uint64_t block) { return static_cast<char>(model().Contents(1)[block * 512]); }
};

TEST_F(NvmeModelPowerTest, APowerCutKeepsWhatWasFlushed) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  EXPECT_EQ(driver_->Flush(), nvme::kSuccess);
  EXPECT_EQ(driver_->Write(1, 'b'), nvme::kSuccess);
  EXPECT_EQ(driver_->Write(2, 'c'), nvme::kSuccess);
  EXPECT_EQ(driver_->Write(3, 'd', nvme::kForceUnitAccess), nvme::kSuccess);
  EXPECT_EQ(driver_->Do(1, Driver::Io(IoOp::kWriteZeroes, 1)).status, nvme::kSuccess);
  EXPECT_EQ(Durable(1), 'a');
  EXPECT_EQ(Content(1), 0);
  EXPECT_EQ(Content(2), 'c');
  model().PowerCut();
  EXPECT_EQ(Content(1), 'a');
  EXPECT_EQ(Content(2), 0);
  EXPECT_EQ(Content(3), 'd');
  EXPECT_EQ(driver_->status(), nvme::kCstsSubsystemReset);
  EXPECT_EQ(device_->ReadBar(0, nvme::kCc), 0);
  EXPECT_EQ(device_->ReadConfig(4, 2), 0);
  device_->WriteBar(0, nvme::kCsts, nvme::kCstsSubsystemReset);
  EXPECT_EQ(driver_->status(), 0);
  ASSERT_NO_FATAL_FAILURE(Enable());
  EXPECT_EQ(driver_->Read(3), 'd');
  ExpectNoViolation();
}

TEST_F(NvmeModelPowerTest, APowerCutMaySaveSomeOfTheCache) {
  ASSERT_NO_FATAL_FAILURE(Start());
  for (uint64_t block = 0; block < 64; ++block) {
    ASSERT_EQ(driver_->Write(block, 'a'), nvme::kSuccess);
  }
  model().PowerCut(/*seed=*/3);
  const std::vector<std::byte> contents = model().Contents(1);
  int saved = 0;
  for (size_t block = 0; block < 64; ++block) saved += contents[block * 512] == std::byte{'a'};
  EXPECT_GT(saved, 16);
  EXPECT_LT(saved, 48);
  EXPECT_TRUE(model().Durable(1) == contents);
}

TEST_F(NvmeModelPowerTest, WithoutACacheAllIsDurable) {
  config_.write_cache = false;
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  EXPECT_EQ(Durable(1), 'a');
  EXPECT_EQ(driver_->Admin(AdminOp::kSetFeatures, {.cdw10 = nvme::kFeatureWriteCache}).status,
            nvme::kInvalidField);
}

TEST_F(NvmeModelPowerTest, TheCacheCanBeSwitchedOff) {
  ASSERT_NO_FATAL_FAILURE(Start());
  EXPECT_EQ(driver_->Write(1, 'a'), nvme::kSuccess);
  const auto cache = [&] {
    return driver_->Admin(AdminOp::kGetFeatures, {.cdw10 = nvme::kFeatureWriteCache}).result;
  };
  EXPECT_EQ(cache(), 1);
  EXPECT_EQ(driver_->Admin(AdminOp::kSetFeatures, {.cdw10 = nvme::kFeatureWriteCache}).status,
            nvme::kSuccess);
  EXPECT_EQ(cache(), 0);
  EXPECT_EQ(Durable(1), 'a');
  EXPECT_EQ(driver_->Write(2, 'b'), nvme::kSuccess);
  EXPECT_EQ(Durable(2), 'b');
  ASSERT_TRUE(driver_->Disable());
  ASSERT_NO_FATAL_FAILURE(Enable());
  EXPECT_EQ(cache(), 1);
}

}  // namespace
}  // namespace ringside::testing
