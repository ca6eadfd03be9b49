#include "nvme/nvme_vectors.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <random>
#include <vector>

#include "tests/support/nvme/nvme_model_spec.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kPage = nvme::kPageSize;
constexpr uint64_t kBase = 0x7f00'0000'0000;

// Host addresses are made up: nothing here reads memory.
class Memory {
 public:
  Memory& At(uint64_t offset, uint32_t length) {
    segments_.push_back(
        {.host = reinterpret_cast<std::byte*>(kBase + offset), .length = length, .region = 0});
    return *this;
  }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::vector<Segment> segments_;
};

struct Piece {
  uint64_t offset;  // from kBase
  uint64_t length;
  bool operator==(const Piece&) const = default;
};

class Built {
 public:
  Built(const Memory& memory, const NvmeVectorLimits& limits, const SegmentCursor& cursor = {},
        size_t room = 64)
      : room_(room), result_(BuildVectors(memory.segments(), cursor, limits, room_)) {}
  const NvmeVectors& operator*() const { return result_; }
  const NvmeVectors* operator->() const { return &result_; }
  std::vector<Piece> pieces() const {
    std::vector<Piece> pieces;
    for (unsigned i = 0; i < result_.count; ++i) {
      pieces.push_back({reinterpret_cast<uint64_t>(room_[i].iov_base) - kBase, room_[i].iov_len});
    }
    return pieces;
  }

 private:
  std::vector<iovec> room_;
  const NvmeVectors result_;
};

constexpr NvmeVectorLimits kWide = {
    .most_bytes = 1 << 20, .most_pages = 128, .block_size = 512, .alignment = 4};

TEST(NvmeVectorsTest, OneBufferIsOneVector) {
  const Built built(Memory().At(512, 8192), kWide);
  EXPECT_THAT(built.pieces(), ElementsAre(Piece{512, 8192}));
  EXPECT_EQ(built->bytes, 8192u);
  EXPECT_FALSE(built->copied);
}

TEST(NvmeVectorsTest, GoesOnFromTheCursor) {
  const Built built(Memory().At(0, 4096).At(0x10000, 0).At(0x20000, 4096), kWide,
                    {.segment = 0, .skip = 512});
  EXPECT_THAT(built.pieces(), ElementsAre(Piece{512, 3584}, Piece{0x20000, 4096}));
}

TEST(NvmeVectorsTest, IsMappedWhereBuffersMeetAtPages) {
  EXPECT_FALSE(Built(Memory().At(3584, 512).At(0x10000, 4096).At(0x30000, 512), kWide)->copied);
}

TEST(NvmeVectorsTest, IsCopiedWhereBuffersMeetWithinPages) {
  EXPECT_TRUE(Built(Memory().At(0, 512).At(0x10000, 4096), kWide)->copied);
  EXPECT_TRUE(Built(Memory().At(0, 4096).At(0x10200, 512), kWide)->copied);
}

TEST(NvmeVectorsTest, IsCopiedWhereTheDeviceAsksForMoreAlignment) {
  EXPECT_TRUE(Built(Memory().At(2, 512), kWide)->copied);
  EXPECT_FALSE(Built(Memory().At(4, 512), kWide)->copied);
  NvmeVectorLimits sectors = kWide;
  sectors.alignment = 512;
  EXPECT_TRUE(Built(Memory().At(4, 512), sectors)->copied);
  EXPECT_TRUE(Built(Memory().At(0, 4092).At(0x10000, 4), sectors)->copied);
}

TEST(NvmeVectorsTest, EndsWithABlock) {
  NvmeVectorLimits limits = kWide;
  limits.block_size = 4096;
  // Room for two vectors: six sectors of the second block have no place.
  const Memory memory = Memory().At(0, 5120).At(0x10000, 512).At(0x20000, 2560);
  const Built built(memory, limits, {}, 2);
  EXPECT_EQ(built->bytes, 4096u);
  EXPECT_THAT(built.pieces(), ElementsAre(Piece{0, 4096}));
  EXPECT_EQ(Built(memory, limits)->bytes, 8192u);
}

TEST(NvmeVectorsTest, SaysWhenNotEvenABlockFits) {
  Memory memory;
  for (uint64_t i = 0; i < 512; ++i) memory.At(i * kPage, 1);
  NvmeVectorLimits limits = kWide;
  limits.most_pages = 511;
  const Built built(memory, limits, {}, 1024);
  EXPECT_EQ(built->bytes, 0u);
  EXPECT_EQ(built->count, 0u);
  limits.most_pages = 512;
  EXPECT_EQ(Built(memory, limits, {}, 1024)->bytes, 512u);
}

// Byte for byte, the slow way.
uint32_t MostThatFits(const Memory& memory, const NvmeVectorLimits& limits,
                      const SegmentCursor& cursor, size_t room) {
  uint64_t total = 0;
  uint64_t pages = 0;
  size_t vectors = 0;
  uint32_t skip = cursor.skip;
  for (size_t i = cursor.segment; i < memory.segments().size(); ++i, skip = 0) {
    const Segment& segment = memory.segments()[i];
    for (uint32_t at = skip; at < segment.length; ++at) {
      if (at == skip) ++vectors;
      const bool new_page =
          at == skip || (reinterpret_cast<uint64_t>(segment.host) + at) % kPage == 0;
      if (new_page) ++pages;
      if (vectors > room || pages > limits.most_pages || total == limits.most_bytes) {
        return static_cast<uint32_t>(total / limits.block_size * limits.block_size);
      }
      ++total;
    }
  }
  return static_cast<uint32_t>(total / limits.block_size * limits.block_size);
}

TEST(NvmeVectorsTest, TakesAsMuchAsTheLimitsAllow) {
  std::mt19937 random(1);
  const auto below = [&random](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  for (int round = 0; round < 2000; ++round) {
    Memory memory;
    const size_t count = 1 + below(12);
    for (size_t i = 0; i < count; ++i) {
      memory.At(i * 0x100000 + below(4) * 512 + below(2) * below(4096), below(30) * 512);
    }
    SegmentCursor cursor = {.segment = below(static_cast<uint32_t>(count))};
    const uint32_t length = memory.segments()[cursor.segment].length;
    if (length != 0) cursor.skip = below(length);
    NvmeVectorLimits limits = {.most_bytes = (1 + below(16)) * 4096,
                               .most_pages = 2 + below(16),
                               .block_size = below(2) == 0 ? 512U : 4096U,
                               .alignment = 4};
    const size_t room = 1 + below(8);
    const Built built(memory, limits, cursor, room);
    ASSERT_EQ(built->bytes, MostThatFits(memory, limits, cursor, room)) << "round " << round;
    // The same bytes, in order.
    SegmentCursor at = cursor;
    uint64_t total = 0;
    for (const Piece& piece : built.pieces()) {
      while (memory.segments()[at.segment].length == at.skip) at = {.segment = at.segment + 1};
      const Segment& segment = memory.segments()[at.segment];
      ASSERT_EQ(reinterpret_cast<uint64_t>(segment.host) + at.skip - kBase, piece.offset);
      ASSERT_NE(piece.length, 0u);
      ASSERT_LE(piece.length, segment.length - at.skip);
      at.Advance(memory.segments(), piece.length);
      total += piece.length;
    }
    ASSERT_EQ(total, built->bytes);
  }
}

}  // namespace
}  // namespace ringside
