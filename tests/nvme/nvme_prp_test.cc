#include "nvme/nvme_prp.h"

#include <gmock/gmock.h>
#include <memory>
#include <random>
#include <vector>

namespace ringside {
namespace {

using ::testing::ElementsAreArray;

constexpr uint64_t kListIova = 0x7f000400;
constexpr uint32_t kPage = nvme::kPageSize;

// Host addresses are made up: nothing here reads memory.
class Memory {
 public:
  // A segment that the device sees at `iova`.
  Memory& At(uint64_t iova, uint32_t length) {
    segments_.push_back(
        {.host = reinterpret_cast<std::byte*>(iova - kOffset), .length = length, .region = 1});
    return *this;
  }

  // The addresses of what was built, in steps of four bytes, as a controller would find them.
  std::vector<uint64_t> Built(const SegmentCursor& cursor, uint32_t most, uint32_t block) {
    prps_ = BuildPrps(segments_, cursor, most, block, offsets_.data(), list_, kListIova);
    std::vector<uint64_t> addresses;
    size_t entry = 0;
    uint64_t address = prps_.prp1;
    for (uint32_t done = 0; done < prps_.bytes; done += 4, address += 4) {
      if (done != 0 && address % kPage == 0) address = Entry(++entry);
      addresses.push_back(address);
    }
    return addresses;
  }

  // What PRP can express of it, found byte by byte.
  std::vector<uint64_t> Expected(const SegmentCursor& cursor, uint32_t most, uint32_t block) const {
    std::vector<uint64_t> addresses;
    uint32_t skip = cursor.skip;
    for (size_t i = cursor.segment; i < segments_.size(); ++i) {
      const uint64_t begin = reinterpret_cast<uint64_t>(segments_[i].host) + kOffset;
      for (uint64_t at = begin + skip; at < begin + segments_[i].length; at += 4) {
        const bool fits = addresses.empty() || at == addresses.back() + 4 ||
                          (addresses.back() % kPage == kPage - 4 && at % kPage == 0);
        if (!fits || addresses.size() * 4 == most) return Whole(std::move(addresses), block);
        addresses.push_back(at);
      }
      skip = 0;
    }
    return Whole(std::move(addresses), block);
  }

  const std::vector<Segment>& segments() const { return segments_; }
  const Prps& prps() const { return prps_; }

 private:
  static constexpr uint64_t kOffset = 0xffff'8000'0000'0000;

  static std::vector<uint64_t> Whole(std::vector<uint64_t> addresses, uint32_t block) {
    addresses.resize(addresses.size() * 4 / block * block / 4);
    return addresses;
  }

  uint64_t Entry(size_t number) const {
    const uint64_t pages = (prps_.prp1 % kPage + prps_.bytes + kPage - 1) / kPage;
    if (pages == 2) return prps_.prp2;
    EXPECT_EQ(prps_.prp2, kListIova);
    return list_.at(number - 1);
  }

  std::vector<Segment> segments_;
  const std::vector<uint64_t> offsets_ = {0, kOffset};
  PrpList list_ = {};
  Prps prps_;
};

TEST(NvmePrp, OnePageNeedsOneEntry) {
  Memory memory;
  EXPECT_EQ(memory.At(0x10000, 4096).Built({}, 4096, 512).size(), 1024);
  EXPECT_EQ(memory.prps().prp1, 0x10000);
  EXPECT_EQ(memory.prps().prp2, 0);
}

TEST(NvmePrp, ASecondPageIsNoList) {
  Memory memory;
  memory.At(0x10e00, 4096).Built({}, 4096, 512);
  EXPECT_EQ(memory.prps().prp1, 0x10e00);
  EXPECT_EQ(memory.prps().prp2, 0x11000);
}

TEST(NvmePrp, NoListRemainsWhereAGapLeavesTwoPages) {
  Memory memory;
  memory.At(0x10000, 8192 + 256).At(0x40000, 4096).Built({}, 12288, 512);
  EXPECT_EQ(memory.prps().bytes, 8192);
  EXPECT_EQ(memory.prps().prp2, 0x11000);
}

TEST(NvmePrp, TheLargestTransferFitsTheListWhereverItBegins) {
  for (const uint32_t offset : {0U, 4U, 512U, 4092U}) {
    Memory memory;
    memory.At(0x10000 + offset, kMostPrpBytes);
    EXPECT_THAT(memory.Built({}, kMostPrpBytes, 512),
                ElementsAreArray(memory.Expected({}, kMostPrpBytes, 512)));
    EXPECT_EQ(memory.prps().bytes, kMostPrpBytes);
  }
}

TEST(NvmePrp, AnOddAddressCannotBeExpressed) {
  Memory memory;
  memory.At(0x10002, 4096);
  EXPECT_EQ(memory.Built({}, 4096, 512).size(), 0);
}

TEST(NvmePrp, AGapWithinABlockCannotBeExpressed) {
  Memory memory;
  memory.At(0x10000, 256).At(0x20000, 256);
  EXPECT_EQ(memory.Built({}, 512, 512).size(), 0);
}

TEST(NvmePrp, NeighboursInTheDevicesEyesAreOne) {
  Memory memory;
  memory.At(0x10100, 0x100).At(0x10200, 0x100).At(0x10300, 0x1000);
  EXPECT_EQ(memory.Built({}, 0x1200, 512).size() * 4, 0x1200);
}

// Whatever the segments are: what is built is what they are, and as much of it as can be.
TEST(NvmePrp, BuildsWhatAControllerReadsBack) {
  std::mt19937 random(7);
  const auto pick = [&](uint32_t count) { return static_cast<uint32_t>(random() % count); };
  for (int round = 0; round < 5000; ++round) {
    Memory memory;
    uint64_t next = 0;
    const uint32_t count = 1 + pick(6);
    for (uint32_t i = 0; i < count; ++i) {
      // Pages, pieces of pages, neighbours.
      uint64_t iova = uint64_t{1 + pick(200)} * kPage;
      if (pick(3) == 0) iova += 4 * pick(1024);
      if (i > 0 && pick(3) == 0) iova = next;
      const uint32_t length = pick(3) == 0 ? 4 * (1 + pick(2048)) : kPage * (1 + pick(4));
      memory.At(iova, length);
      next = iova + length;
    }
    const uint32_t block = pick(2) == 0 ? 512 : 4096;
    const uint32_t most = block * (1 + pick(64));
    SegmentCursor cursor = {.segment = pick(count)};
    cursor.skip = 4 * pick(memory.segments()[cursor.segment].length / 4);
    ASSERT_TRUE(memory.Built(cursor, most, block) == memory.Expected(cursor, most, block))
        << "round " << round;
  }
}

}  // namespace
}  // namespace ringside
