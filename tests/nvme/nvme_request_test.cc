// What is read out of Identify data, and what becomes of requests.
#include "nvme/nvme_request.h"

#include <cstring>
#include <gmock/gmock.h>
#include <linux/nvme_ioctl.h>
#include <vector>

#include "nvme/nvme_identify.h"
#include "nvme/nvme_names.h"
#include "tests/support/nvme/nvme_model_spec.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

class IdentifyData {
 public:
  template <typename T>
  IdentifyData& Put(size_t offset, T value) {
    std::memcpy(data_.data() + offset, &value, sizeof value);
    return *this;
  }
  std::span<const std::byte> data() const { return data_; }

 private:
  std::vector<std::byte> data_ = std::vector<std::byte>(nvme::kIdentifyBytes);
};

NvmeFeatures FeaturesOf(const IdentifyData& data) {
  return ParseNvmeController(data.data());
}

TEST(NvmeIdentifyTest, ACommandIsAsLongAsMdtsSays) {
  using nvme::controller::kMdts;
  EXPECT_EQ(FeaturesOf(IdentifyData().Put<uint8_t>(kMdts, 5)).most_bytes, 128u << 10);
  EXPECT_EQ(FeaturesOf(IdentifyData().Put<uint8_t>(kMdts, 9)).most_bytes, 2u << 20);
  // No limit, and one that is none.
  for (const uint8_t mdts : {0, 30, 255}) {
    EXPECT_EQ(FeaturesOf(IdentifyData().Put<uint8_t>(kMdts, mdts)).most_bytes, 1u << 30);
  }
}

TEST(NvmeIdentifyTest, DiscardTakesBothCommands) {
  using nvme::controller::kOncs;
  EXPECT_TRUE(FeaturesOf(IdentifyData().Put<uint16_t>(kOncs, 0xc)).discard);
  EXPECT_FALSE(FeaturesOf(IdentifyData().Put<uint16_t>(kOncs, 0x4)).discard);
  EXPECT_FALSE(FeaturesOf(IdentifyData().Put<uint16_t>(kOncs, 0x8)).discard);
}

TEST(NvmeIdentifyTest, TheCacheIsVolatileIfItIsThere) {
  using nvme::controller::kVwc;
  EXPECT_TRUE(FeaturesOf(IdentifyData().Put<uint8_t>(kVwc, 7)).volatile_cache);
  EXPECT_FALSE(FeaturesOf(IdentifyData().Put<uint8_t>(kVwc, 6)).volatile_cache);
}

constexpr NvmeFeatures kFeatures = {
    .most_bytes = 1 << 19, .volatile_cache = true, .discard = true, .doorbell_buffers = false};

// Format 1 is in use.
IdentifyData Namespace(uint64_t blocks, uint32_t shift, uint32_t metadata = 0) {
  IdentifyData data;
  data.Put<uint64_t>(nvme::ns::kSize, blocks).Put<uint8_t>(nvme::ns::kFormatInUse, 1);
  data.Put<uint32_t>(nvme::ns::kFormat0 + 4, shift << 16 | metadata);
  return data;
}

TEST(NvmeIdentifyTest, ANamespaceHasSizeAndBlocks) {
  IdentifyData data = Namespace(1000, 12);
  data.Put<uint16_t>(nvme::ns::kBoundary, 8);
  const auto ns = ParseNvmeNamespace("n", 3, kFeatures, data.data());
  ASSERT_TRUE(ns.ok()) << ns.status();
  EXPECT_EQ(ns->id, 3u);
  EXPECT_EQ(ns->block_size, 4096u);
  EXPECT_EQ(ns->boundary, 32768u);
  EXPECT_EQ(ns->most_bytes, 1u << 19);
  EXPECT_EQ(ns->info.size, 4096000u);
  EXPECT_EQ(ns->info.logical_block, 4096u);
  EXPECT_TRUE(ns->info.write_back);
  EXPECT_TRUE(ns->info.can_discard);
}

TEST(NvmeIdentifyTest, PreferredSizesAreTold) {
  IdentifyData data = Namespace(1000, 9);
  data.Put<uint8_t>(nvme::ns::kFeatures, nvme::ns::kHasPreferredSizes);
  data.Put<uint16_t>(nvme::ns::kPreferredWrite, 7).Put<uint16_t>(nvme::ns::kOptimalWrite, 255);
  const auto ns = ParseNvmeNamespace("n", 1, kFeatures, data.data());
  ASSERT_TRUE(ns.ok()) << ns.status();
  EXPECT_EQ(ns->info.physical_block, 4096u);
  EXPECT_EQ(ns->info.optimal_io, 128u << 10);
}

// Bytes are counted in 64 bits, which it would leave.
TEST(NvmeIdentifyTest, RefusesMoreBlocksThanThereAreNumbersFor) {
  for (const uint64_t blocks : {uint64_t{1} << 60, (uint64_t{1} << 55) + 8, UINT64_MAX}) {
    std::array<std::byte, nvme::kIdentifyBytes> data = {};
    std::memcpy(&data[nvme::ns::kSize], &blocks, sizeof blocks);
    data[nvme::ns::kFormat0 + 2] = std::byte{9};
    const auto result = ParseNvmeNamespace("it", 1, {.most_bytes = 4096}, data);
    EXPECT_TRUE(absl::IsFailedPrecondition(result.status())) << result.status();
  }
}

TEST(NvmeIdentifyTest, RefusesWhatCannotBeADisk) {
  const auto error = [](const IdentifyData& data) {
    return ParseNvmeNamespace("disk 'n'", 2, kFeatures, data.data()).status();
  };
  EXPECT_TRUE(absl::IsNotFound(error(Namespace(0, 9))));
  for (const auto& [shift, metadata] : {std::pair{9u, 8u}, {12u, 64u}, {8u, 0u}, {13u, 0u}}) {
    const absl::Status status = error(Namespace(1, shift, metadata));
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrFormat("disk 'n': namespace 2 has blocks of 2^%d bytes with %d "
                                          "of metadata",
                                          shift, metadata)));
  }
}

TEST(NvmeRequestTest, AStatusIsAnErrno) {
  EXPECT_EQ(nvme::ErrnoOf(nvme::kCapacityExceeded), -ENOSPC);
  EXPECT_EQ(nvme::ErrnoOf(nvme::kInvalidOpcode | nvme::kDoNotRetry), -EOPNOTSUPP);
  EXPECT_EQ(nvme::ErrnoOf(nvme::kLbaOutOfRange), -EINVAL);
  EXPECT_EQ(nvme::ErrnoOf(nvme::kUnrecoveredRead), -EIO);
  // The same code, of another type.
  EXPECT_EQ(nvme::ErrnoOf(0x100 | nvme::kInvalidOpcode), -EIO);
}

NvmeNamespace Ns(uint32_t block_size = 512) {
  NvmeNamespace ns = {.id = 1, .block_size = block_size, .volatile_cache = true};
  ns.info.size = 1 << 30;
  return ns;
}

TEST(NvmeRequestTest, OneCommandIsLimited) {
  NvmeNamespace ns = Ns();
  ns.most_bytes = 1 << 17;
  EXPECT_EQ(nvme::MostOf(ns, BlockOp::kRead, 0, 1 << 20), 1u << 17);
  EXPECT_EQ(nvme::MostOf(ns, BlockOp::kRead, 0, 4096), 4096u);
  EXPECT_EQ(nvme::MostOf(ns, BlockOp::kWriteZeroes, 0, 1 << 20), 1u << 20);
  EXPECT_EQ(nvme::MostOf(ns, BlockOp::kWriteZeroes, 0, 1ULL << 40), 65536u * 512);
  ns.boundary = 16384;
  EXPECT_EQ(nvme::MostOf(ns, BlockOp::kWrite, 4096, 1 << 20), 12288u);
  ns = Ns();
  ns.most_bytes = 1 << 30;
  EXPECT_EQ(nvme::MostOf(ns, BlockOp::kRead, 0, 1ULL << 40), 65536u * 512);
}

TEST(NvmeRequestTest, IsCheckedBeforeItIsSent) {
  NvmeNamespace ns = Ns(4096);
  const auto check = [&ns](BlockOp op, uint64_t offset, uint64_t length) {
    return nvme::Check(ns, {.op = op, .offset = offset}, length);
  };
  EXPECT_EQ(check(BlockOp::kRead, ns.info.size - 4096, 4096), 0);
  EXPECT_EQ(check(BlockOp::kRead, ns.info.size - 4096, 8192), -EINVAL);
  EXPECT_EQ(check(BlockOp::kRead, UINT64_MAX - 4095, 4096), -EINVAL);
  EXPECT_EQ(check(BlockOp::kWrite, 512, 4096), -EINVAL);
  EXPECT_EQ(check(BlockOp::kDiscard, 512, 4096), 0);
  ns.info.read_only = true;
  EXPECT_EQ(check(BlockOp::kRead, 0, 4096), 0);
  EXPECT_EQ(check(BlockOp::kWrite, 0, 4096), -EROFS);
  EXPECT_EQ(check(BlockOp::kDiscard, 0, 4096), -EROFS);
}

template <typename Command>
Command Sent(const NvmeNamespace& ns, const BlockRequest& request) {
  Command command = {};
  nvme::SetTransfer(command, ns, 9, request, request.offset, request.length);
  return command;
}

TEST(NvmeRequestTest, TransfersAreCommandsOfEitherKind) {
  const BlockRequest read = {.op = BlockOp::kRead, .offset = 0x201ULL << 32, .length = 4096};
  const auto own = Sent<nvme::Command>(Ns(), read);
  const auto kernels = Sent<nvme_uring_cmd>(Ns(), read);
  EXPECT_EQ(own.opcode, 2);
  EXPECT_EQ(kernels.opcode, 2);
  for (const auto& [a, b] : {std::pair{own.cdw10, kernels.cdw10},
                             {own.cdw11, kernels.cdw11},
                             {own.cdw12, kernels.cdw12}}) {
    EXPECT_EQ(a, b);
  }
  EXPECT_EQ(own.cdw10, 0x00800000u);
  EXPECT_EQ(own.cdw11, 1u);
  EXPECT_EQ(own.cdw12, 7u);
}

TEST(NvmeRequestTest, DurableWritesForceUnitAccess) {
  BlockRequest write = {.op = BlockOp::kWrite, .durable = true, .length = 512};
  NvmeNamespace ns = Ns();
  EXPECT_EQ(Sent<nvme_uring_cmd>(ns, write).cdw12, 1u << 30);
  write.op = BlockOp::kWriteZeroes;
  write.unmap = true;
  EXPECT_EQ(Sent<nvme_uring_cmd>(ns, write).opcode, 8);
  EXPECT_EQ(Sent<nvme_uring_cmd>(ns, write).cdw12, 1u << 30 | 1u << 25);
  write.op = BlockOp::kRead;
  EXPECT_EQ(Sent<nvme_uring_cmd>(ns, write).cdw12, 0u);
  write.op = BlockOp::kWrite;
  ns.volatile_cache = false;
  EXPECT_EQ(Sent<nvme_uring_cmd>(ns, write).cdw12, 0u);
}

TEST(NvmeRequestTest, DeallocatesOneRange) {
  nvme_uring_cmd command = {};
  command.cdw10 = command.cdw12 = 77;
  nvme::SetDeallocate(command);
  EXPECT_EQ(command.opcode, 9);
  EXPECT_EQ(command.cdw10, 0u);
  EXPECT_EQ(command.cdw11, 4u);
  EXPECT_EQ(command.cdw12, 0u);
  const nvme::DsmRange range = nvme::RangeOf(12, 8192, 1ULL << 50);
  EXPECT_EQ(range.start, 2u);
  EXPECT_EQ(range.blocks, UINT32_MAX);
}

// Messages.
TEST(NvmeNamesTest, AStatusHasItsNameItsNumbersAndWhetherToTryAgain) {
  EXPECT_EQ(nvme::StatusText(0x281 | nvme::kDoNotRetry),
            "Unrecovered Read Error (SCT 2h, SC 81h, DNR)");
  EXPECT_EQ(nvme::StatusText(0x001), "Invalid Command Opcode (SCT 0h, SC 01h)");
  EXPECT_EQ(nvme::StatusText(0x2ff), "Media and Data Integrity status (SCT 2h, SC ffh)");
  EXPECT_EQ(nvme::StatusText(0x712), "Vendor Specific status (SCT 7h, SC 12h)");
  EXPECT_EQ(nvme::StatusText(0x5aa), "Reserved status (SCT 5h, SC aah)");
}

TEST(NvmeNamesTest, ACommandHasItsNameAndItsBlocks) {
  EXPECT_EQ(nvme::AdminText(0x06), "Identify");
  EXPECT_EQ(nvme::AdminText(0xc0), "admin command c0h");
  nvme::Command command = {.opcode = 0x02, .nsid = 3, .cdw10 = 5, .cdw11 = 1, .cdw12 = 7};
  EXPECT_EQ(nvme::IoText(command), "Read of blocks 4294967301 to 4294967308 of namespace 3");
  command.opcode = 0x00;
  EXPECT_EQ(nvme::IoText(command), "Flush of namespace 3");
  command.opcode = 0x90;
  EXPECT_EQ(nvme::IoText(command), "command 90h of namespace 3");
}

}  // namespace
}  // namespace ringside
