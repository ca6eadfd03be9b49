#include "vfio/vfio_info.h"

#include <cerrno>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/vfio.h>

#include "base/status.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What the kernel would write.
class Answer {
 public:
  template <typename T>
  explicit Answer(const T& head) {
    Append(head);
  }

  // Returns where it is.
  template <typename T>
  uint32_t Append(const T& value) {
    const size_t offset = bytes.size();
    bytes.resize(offset + sizeof value);
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return static_cast<uint32_t>(offset);
  }
  template <typename T>
  void Put(uint32_t offset, const T& value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  }

  std::vector<std::byte> bytes;
};

vfio_iommu_type1_info IommuInfo() {
  return {.argsz = sizeof(vfio_iommu_type1_info),
          .flags = VFIO_IOMMU_INFO_CAPS,
          .cap_offset = sizeof(vfio_iommu_type1_info)};
}

vfio_region_info RegionInfo(uint32_t flags) {
  return {.argsz = sizeof(vfio_region_info),
          .flags = flags,
          .cap_offset = sizeof(vfio_region_info),
          .size = 0x4000,
          .offset = 0x10000};
}

vfio_info_cap_header Header(uint16_t id, uint32_t next) {
  return {.id = id, .version = 1, .next = next};
}

// A capability that is of no interest, then one with these ranges.
Answer IovaAnswer(const std::vector<vfio_iova_range>& ranges) {
  Answer answer(IommuInfo());
  const uint32_t second = static_cast<uint32_t>(answer.bytes.size()) + sizeof(vfio_info_cap_header);
  answer.Append(Header(VFIO_IOMMU_TYPE1_INFO_CAP_MIGRATION, second));
  answer.Append(vfio_iommu_type1_info_cap_iova_range{
      .header = Header(VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, 0),
      .nr_iovas = static_cast<uint32_t>(ranges.size())});
  for (const vfio_iova_range& range : ranges) answer.Append(range);
  return answer;
}

TEST(ParseIovaRanges, FindsThemInTheChain) {
  const auto ranges = ParseIovaRanges(
      IovaAnswer({{.start = 0, .end = 0xfedfffff}, {.start = 0xfef00000, .end = ~uint64_t{0}}})
          .bytes);
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  ASSERT_TRUE(ranges->has_value());
  EXPECT_THAT(**ranges, ElementsAre(FieldsAre(0, 0xfedfffff), FieldsAre(0xfef00000, ~uint64_t{0})));
}

TEST(ParseIovaRanges, AnOldKernelDoesNotTell) {
  vfio_iommu_type1_info info = IommuInfo();
  info.cap_offset = 0;
  EXPECT_EQ(ParseIovaRanges(Answer(info).bytes)->has_value(), false);
  info = IommuInfo();
  info.flags = 0;  // the offset means nothing then
  EXPECT_EQ(ParseIovaRanges(Answer(info).bytes)->has_value(), false);
}

TEST(ParseIovaRanges, RangesOutOfOrderAreRefused) {
  EXPECT_FALSE(ParseIovaRanges(IovaAnswer({{.start = 9, .end = 8}}).bytes).ok());
  EXPECT_FALSE(
      ParseIovaRanges(IovaAnswer({{.start = 5, .end = 8}, {.start = 8, .end = 9}}).bytes).ok());
}

TEST(ParseIovaRanges, ACountBeyondTheBytesIsRefused) {
  Answer answer = IovaAnswer({{.start = 0, .end = 8}});
  const auto count = static_cast<uint32_t>(answer.bytes.size() - sizeof(vfio_iova_range) -
                                           sizeof(vfio_iommu_type1_info_cap_iova_range) +
                                           sizeof(vfio_info_cap_header));
  for (const uint32_t many : {2U, 0xffffffffU}) {
    answer.Put(count, many);
    EXPECT_FALSE(ParseIovaRanges(answer.bytes).ok()) << many;
  }
}

TEST(ParseIovaRanges, AChainThatGoesInCirclesEnds) {
  Answer answer(IommuInfo());
  const auto self = static_cast<uint32_t>(answer.bytes.size());
  answer.Append(Header(VFIO_IOMMU_TYPE1_INFO_CAP_MIGRATION, self));
  const absl::Status status = ParseIovaRanges(answer.bytes).status();
  EXPECT_THAT(std::string(Message(status)), HasSubstr("without an end"));
}

TEST(ParseIovaRanges, AChainThatLeavesTheAnswerIsRefused) {
  for (const uint32_t offset :
       {uint32_t{sizeof(vfio_iommu_type1_info)}, 33U, 0x7fffffffU, 0xfffffff8U}) {
    vfio_iommu_type1_info info = IommuInfo();
    info.cap_offset = offset;
    EXPECT_FALSE(ParseIovaRanges(Answer(info).bytes).ok()) << offset;
  }
}

TEST(ParseIovaRanges, AShortAnswerIsRefused) {
  EXPECT_FALSE(ParseIovaRanges(std::vector<std::byte>(8)).ok());
  EXPECT_FALSE(ParseIovaRanges({}).ok());
}

TEST(ParseVfioRegion, AllOfAMappableRegionMayBeMapped) {
  const auto region = ParseVfioRegion(Answer(RegionInfo(VFIO_REGION_INFO_FLAG_MMAP)).bytes);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(region->offset, 0x10000);
  EXPECT_EQ(region->size, 0x4000);
  EXPECT_FALSE(region->msix_mappable);
  EXPECT_THAT(region->areas, ElementsAre(FieldsAre(0, 0x4000)));
}

TEST(ParseVfioRegion, OfOthersNothing) {
  const auto region = ParseVfioRegion(Answer(RegionInfo(VFIO_REGION_INFO_FLAG_READ)).bytes);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_THAT(region->areas, IsEmpty());
}

TEST(ParseVfioRegion, WhereAreasAreGivenOnlyThose) {
  Answer answer(RegionInfo(VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS));
  answer.Append(vfio_region_info_cap_sparse_mmap{
      .header = Header(VFIO_REGION_INFO_CAP_SPARSE_MMAP, 0), .nr_areas = 2});
  answer.Append(vfio_region_sparse_mmap_area{.offset = 0, .size = 0x1000});
  answer.Append(vfio_region_sparse_mmap_area{.offset = 0x3000, .size = 0x1000});
  const auto region = ParseVfioRegion(answer.bytes);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_THAT(region->areas, ElementsAre(FieldsAre(0, 0x1000), FieldsAre(0x3000, 0x1000)));
  EXPECT_FALSE(region->msix_mappable);
}

TEST(ParseVfioRegion, TheKernelSaysIfTheVectorTableMayBeMapped) {
  Answer answer(RegionInfo(VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS));
  answer.Append(Header(VFIO_REGION_INFO_CAP_MSIX_MAPPABLE, 0));
  EXPECT_TRUE(ParseVfioRegion(answer.bytes)->msix_mappable);
}

TEST(ParseVfioRegion, ABrokenChainIsRefused) {
  Answer answer(RegionInfo(VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS));
  answer.Append(Header(VFIO_REGION_INFO_CAP_SPARSE_MMAP, 0));  // cut off before its count
  EXPECT_FALSE(ParseVfioRegion(answer.bytes).ok());
}

// A kernel that answers `sizes` bytes, one after the other; what it is asked goes to `asked`.
struct FakeKernel {
  std::vector<uint32_t> sizes;
  std::vector<vfio_region_info> asked;

  int operator()(void* buffer) {
    auto* info = static_cast<vfio_region_info*>(buffer);
    asked.push_back(*info);
    info->argsz = sizes[std::min(asked.size(), sizes.size()) - 1];
    info->cap_offset = 77;
    return 0;
  }
};

absl::StatusOr<std::vector<std::byte>> Query(FakeKernel& kernel) {
  const vfio_region_info ask{.index = 5};
  return QueryVfioInfo(std::as_bytes(std::span(&ask, 1)), std::ref(kernel));
}

TEST(QueryVfioInfo, AsksAgainWithTheRoomThatIsWanted) {
  FakeKernel kernel{.sizes = {64, 128, 128}};
  const auto info = Query(kernel);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->size(), 128);
  ASSERT_EQ(kernel.asked.size(), 3);
  EXPECT_EQ(kernel.asked[0].argsz, sizeof(vfio_region_info));
  EXPECT_EQ(kernel.asked[1].argsz, 64);
  EXPECT_EQ(kernel.asked[2].argsz, 128);
  EXPECT_EQ(kernel.asked[2].index, 5) << "the question itself has to be asked again too";
  EXPECT_EQ(kernel.asked[2].cap_offset, 0) << "and nothing of the answer";
}

TEST(QueryVfioInfo, OneAnswerThatFitsIsEnough) {
  FakeKernel kernel{.sizes = {16}};
  EXPECT_TRUE(Query(kernel).ok());
  EXPECT_EQ(kernel.asked.size(), 1);
}

TEST(QueryVfioInfo, EverMoreRoomIsRefused) {
  FakeKernel growing{.sizes = {64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78}};
  EXPECT_FALSE(Query(growing).ok());
  FakeKernel greedy{.sizes = {0x7fffffff}};
  EXPECT_FALSE(Query(greedy).ok());
  EXPECT_EQ(greedy.asked.size(), 1);
}

TEST(QueryVfioInfo, AFailureIsExplained) {
  const auto info = QueryVfioInfo(std::vector<std::byte>(16), [](void*) {
    errno = ENODEV;
    return -1;
  });
  EXPECT_THAT(std::string(Message(info.status())), HasSubstr("No such device"));
}

}  // namespace
}  // namespace ringside
