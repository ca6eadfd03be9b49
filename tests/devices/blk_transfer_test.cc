// The straight path of reads and writes in three buffers, held against the one that takes all
// chains: where it takes a request, it takes it for the same.
#include <gtest/gtest.h>
#include <random>

#include "devices/blk_request.h"
#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/raw_ring.h"

namespace ringside::testing {
namespace {

constexpr uint16_t kSize = 16, kUsed = 8;  // descriptors: of the ring, and that chains are made of
constexpr uint64_t kTable = 0x8000, kRequest = 0x10000;
constexpr std::array<uint64_t, 2> kStarts = {0, 4 * kGiB};  // of regions

class BlkTransferTest : public ::testing::Test {
 protected:
  // The chain of a transfer as Linux makes it, with as many of its fields changed as `changes`.
  void MakeChain(std::mt19937& random, int changes) {
    indirect_ = random() % 2 == 0;
    const bool reads = random() % 2 == 0;
    const uint64_t at = kStarts[random() % 2] + kRequest;
    const uint64_t data = kStarts[random() % 2] + 2 * kRequest;
    BlkHeader header = {.type = reads ? kBlkIn : kBlkOut, .sector = random() % 64};
    const auto first = static_cast<uint16_t>(indirect_ ? 0 : random() % kUsed);
    const auto second = static_cast<uint16_t>((first + 1) % kUsed);
    const auto third = static_cast<uint16_t>((first + 2) % kUsed);
    std::array<RawDescriptor, 4> all = {{
        {.address = at, .length = sizeof header, .flags = kNext, .next = second},
        {.address = data,
         .length = static_cast<uint32_t>(512 << random() % 6),
         .flags = static_cast<uint16_t>(kNext | (reads ? kWrite : 0)),
         .next = third},
        {.address = at + sizeof header, .length = 1, .flags = kWrite},
        {.address = kStarts[random() % 2] + kTable, .length = 48, .flags = kIndirect},
    }};
    const RawDescriptor data_decoy = all[1], status_decoy = all[2];
    for (; changes > 0; --changes) Change(random, all, header);
    ring_.Zero();
    // Beyond the ring's end, and the table's, is what would do, if it were not beyond.
    for (uint16_t i = 0; i < 2 * kSize; ++i) {
      const RawDescriptor& decoy = i % 2 == 0 ? data_decoy : status_decoy;
      for (const uint64_t start : kStarts) Put(start + kTable + 16 * i, decoy);
      if (i >= kSize) Put(ring_.place().descriptors + 16 * i, decoy);
    }
    for (const uint64_t start : kStarts) {
      Put(start + kRequest, header);
      for (uint16_t i = 0; i < 3; ++i) Put(start + kTable + 16 * i, all[i]);
    }
    head_ = indirect_ ? static_cast<uint16_t>(random() % kUsed) : first;
    if (indirect_) {
      ring_.SetDescriptor(head_, all[3]);
    } else {
      ring_.SetDescriptor(first, all[0]);
      ring_.SetDescriptor(second, all[1]);
      ring_.SetDescriptor(third, all[2]);
    }
    // Before it goes a chain by which the queue has found one of the regions last.
    ring_.SetDescriptor(kSize - 1, {.address = kStarts[random() % 2] + kRequest, .length = 1});
    ring_.SetAvailableEntry(0, kSize - 1);
    ring_.SetAvailableEntry(1, head_);
    ring_.SetAvailableIndex(2);
  }

  template <typename T>
  void Put(uint64_t address, const T& value) {
    std::memcpy(memory_->At(address, sizeof value), &value, sizeof value);
  }

  static void Change(std::mt19937& random, std::array<RawDescriptor, 4>& all, BlkHeader& header) {
    constexpr uint64_t kAddresses[] = {0,
                                       kMiB - 1,
                                       kMiB - 16,
                                       kMiB - 48,
                                       kMiB - 512,
                                       kMiB,
                                       4 * kGiB - 1,
                                       4 * kGiB,
                                       4 * kGiB + kMiB - 512,
                                       4 * kGiB + kMiB - 1,
                                       ~uint64_t{0},
                                       ~uint64_t{0} - 15};
    constexpr uint32_t kLengths[] = {0,          1,          15,         16,         17,
                                     32,         48,         64,         512,        kMiB,
                                     0x7fffffff, 0x80000000, 0xfffffdff, 0xfffffeef, 0xffffffff};
    RawDescriptor& one = all[random() % all.size()];
    switch (random() % 6) {
      case 0:
        one.address = kAddresses[random() % std::size(kAddresses)];
        return;
      case 1:
        one.length = kLengths[random() % std::size(kLengths)];
        return;
      case 2:
        one.flags ^= static_cast<uint16_t>(1 << random() % 4);
        return;
      case 3:
        one.next = static_cast<uint16_t>(random() % 8 == 0 ? 0xffff : random() % (2 * kSize));
        return;
      case 4:
        header.type = random() % 2 == 0 ? random() % 16 : uint32_t{1} << random() % 32;
        return;
      default:
        header.sector = random() % 2 == 0 ? random() % 140 : ~uint64_t{0} >> random() % 12;
    }
  }

  Virtqueue NewQueue(bool offers_indirect) const {
    return {*memory_,
            {.size = kSize,
             .descriptor_area = ring_.place().descriptors,
             .driver_area = ring_.place().available,
             .device_area = ring_.place().used,
             .indirect = offers_indirect}};
  }
  // Has walked the one before.
  static DescriptorChain TakeChain(Virtqueue& queue) {
    std::array<DescriptorChain, 2> chains;
    EXPECT_EQ(queue.Take(chains), 2u);
    ChainBuffers buffers;
    EXPECT_TRUE(queue.Walk(chains[0], buffers));
    return std::move(chains[1]);
  }

  static constexpr std::array<GuestMemory::Range, 2> kRanges = {
      {{kStarts[0], kMiB}, {kStarts[1], 5 * kGiB}}};  // which holds any length
  const std::unique_ptr<GuestMemory> memory_ = *GuestMemory::Create(kRanges);
  RawRing ring_{*memory_, {0, kSize}};
  bool indirect_ = false;
  uint16_t head_ = 0;
  BlkView disk_{.info = {.size = 128 * kSectorSize}};
};

TEST_F(BlkTransferTest, IsTakenForWhatTheWholePathTakesItFor) {
  constexpr int kRounds = 200'000;
  std::mt19937 random(1);
  int taken = 0, left = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(round);
    const auto changes = static_cast<int>(random() % 3);
    MakeChain(random, changes);
    disk_.info.size = random() % 8 == 0 ? 8 * kGiB : 128 * kSectorSize;
    disk_.info.read_only = random() % 8 == 0;
    disk_.info.logical_block = random() % 8 == 0 ? 4096 : 512;
    const bool offers_indirect = random() % 8 != 0;
    Virtqueue queue = NewQueue(offers_indirect);
    const DescriptorChain chain = TakeChain(queue);
    ThreeBuffers three = {};
    BlockRequest request = {.op = BlockOp::kFlush, .offset = 1};
    const bool is_three = queue.WalkThree<kBlkHeaderSize, kBlkStatusSize>(chain, three);
    const bool is_transfer = is_three && ParseTransfer(three, disk_, request);
    ASSERT_EQ(queue.error(), nullptr) << "it tells of nothing";
    ChainBuffers buffers;
    BlockRequest whole = {.op = BlockOp::kFlush};
    BlkParse parse;
    const bool is_chain = queue.Walk(chain, buffers);
    ASSERT_LE(is_three, is_chain) << queue.error();
    if (is_chain) parse = ParseBlkRequest(buffers, disk_, whole);
    if (!is_transfer) {
      ++left;
      ASSERT_EQ(request.op, BlockOp::kFlush);
      ASSERT_EQ(request.offset, 1u);
      const bool is_usual = parse.kind == BlkParse::Kind::kSubmit && changes == 0;
      ASSERT_FALSE(is_usual) << "what is usual takes the straight path";
      continue;
    }
    ++taken;
    ASSERT_EQ(parse.kind, BlkParse::Kind::kSubmit);
    ASSERT_EQ(parse.data.size(), 1u);
    ASSERT_EQ(request.op, whole.op);
    ASSERT_EQ(request.offset, whole.offset);
    ASSERT_EQ(three.last, parse.status_byte);
    ASSERT_EQ(three.data.host, parse.data[0].host);
    ASSERT_EQ(three.data.length, parse.data[0].length);
    ASSERT_EQ(three.data.region, parse.data[0].region);
    ASSERT_EQ(parse.written, 1 + (request.op == BlockOp::kRead ? three.data.length : 0));
  }
  EXPECT_GT(taken, kRounds / 4);
  EXPECT_GT(left, kRounds / 4);
}

// What it is given while the writes of devices are noted, the other path notes.
TEST_F(BlkTransferTest, IsLeftWhileWritesAreNoted) {
  std::mt19937 random(1);
  MakeChain(random, 0);
  Virtqueue queue = NewQueue(true);
  const DescriptorChain chain = TakeChain(queue);
  ThreeBuffers three;
  const auto walk = [&] { return queue.WalkThree<kBlkHeaderSize, kBlkStatusSize>(chain, three); };
  EXPECT_TRUE(walk());
  memory_->NoteWrites(true);
  EXPECT_FALSE(walk());
  memory_->NoteWrites(false);
  EXPECT_TRUE(walk());
}

}  // namespace
}  // namespace ringside::testing
