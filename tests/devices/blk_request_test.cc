// Chains of a virtio-blk driver, good and bad, and what they are taken for (VIRTIO 1.2, section
// 5.2.6).
#include "devices/blk_request.h"

#include <gtest/gtest.h>
#include <numeric>
#include <string>

#include "tests/support/devices/blk_format.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"

namespace ringside::testing {
namespace {

using Kind = BlkParse::Kind;
using Lengths = std::vector<uint32_t>;
using Bytes = std::vector<uint8_t>;

constexpr uint64_t kCapacity = 100;  // sectors
constexpr uint64_t kReadable = 0x100000;
constexpr uint64_t kWritable = 0x200000;
constexpr uint64_t kGap = 64;  // between buffers
constexpr uint8_t kUntouched = 0xee;

template <typename T>
void AppendTo(Bytes& bytes, const T& value) {
  bytes.resize(bytes.size() + sizeof value);
  std::memcpy(&bytes[bytes.size() - sizeof value], &value, sizeof value);
}

Bytes Header(uint32_t type, uint64_t sector = 0) {
  Bytes bytes;
  AppendTo(bytes, BlkHeader{.type = type, .reserved = 0xabcdabcd, .sector = sector});
  return bytes;
}

Bytes RangeRequest(uint32_t type, const BlkRange& range) {
  Bytes bytes = Header(type);
  AppendTo(bytes, range);
  return bytes;
}

// `total` in `pieces`, all but the last of one byte.
Lengths Split(uint32_t total, uint32_t pieces) {
  Lengths lengths(pieces, 1);
  lengths.back() = total - (pieces - 1);
  return lengths;
}

class BlkRequest : public ::testing::Test {
 protected:
  BlkRequest() {
    disk_.info = {.size = kCapacity * 512, .can_discard = true};
    disk_.discard = disk_.write_zeroes = true;
  }

  // `readable` cut into buffers of these lengths; all of them, or as one buffer if none are given.
  BlkParse Parse(const Bytes& readable, Lengths out, const Lengths& in) {
    if (out.empty() && !readable.empty()) out = {static_cast<uint32_t>(readable.size())};
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), size_t{0}), readable.size());
    FakeDriver driver(*memory_, {.size = 1024});
    Virtqueue queue(*memory_, driver.layout());
    FakeDriver::Chain chain = driver.NewChain();
    out_ = Place(kReadable, out);
    in_ = Place(kWritable, in);
    size_t done = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      std::memcpy(memory_->At(out_[i], out[i]), readable.data() + done, out[i]);
      done += out[i];
      chain.AppendReadable(out_[i], out[i]);
    }
    std::memset(memory_->At(kWritable, kMiB), kUntouched, kMiB);
    for (size_t i = 0; i < in.size(); ++i) chain.AppendWritable(in_[i], in[i]);
    chain.Add();
    driver.Publish();
    std::array<DescriptorChain, 1> taken;
    EXPECT_EQ(queue.Take(taken), 1u);
    EXPECT_TRUE(queue.Walk(taken[0], buffers_)) << queue.error();
    request_.unmap = true;
    request_.length = 0x1234;
    return ParseBlkRequest(buffers_, disk_, request_);
  }

  static std::vector<uint64_t> Place(uint64_t address, const Lengths& lengths) {
    std::vector<uint64_t> places;
    for (const uint32_t length : lengths) {
      places.push_back(address);
      address += length + kGap;
    }
    return places;
  }

  void ExpectAnswer(const BlkParse& parse, BlkStatus status, uint32_t written) {
    EXPECT_EQ(parse.kind, Kind::kComplete);
    EXPECT_EQ(parse.status, status);
    EXPECT_EQ(parse.written, written);
  }
  void ExpectTransfer(const BlkParse& parse, BlockOp op, uint64_t offset, uint64_t bytes) {
    ASSERT_EQ(parse.kind, Kind::kSubmit);
    EXPECT_EQ(request_.op, op);
    EXPECT_EQ(request_.offset, offset);
    EXPECT_EQ(request_.length, 0u) << "the segments say it";
    EXPECT_FALSE(request_.unmap);
    EXPECT_EQ(parse.bytes, bytes);
    uint64_t total = 0;
    for (const Segment& segment : parse.data) {
      EXPECT_GT(segment.length, 0u);
      total += segment.length;
    }
    EXPECT_EQ(total, bytes);
    EXPECT_EQ(parse.written, op == BlockOp::kRead ? bytes + 1 : 1);
  }
  std::byte* Host(uint64_t address) { return memory_->At(address, 1); }

  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(4 * kMiB);
  BlkView disk_;
  ringside::BlockRequest request_;
  ChainBuffers buffers_;
  std::vector<uint64_t> out_, in_;  // where the buffers of the last chain are
};

TEST_F(BlkRequest, OfTheUsualFormIsATransfer) {
  const BlkParse read = Parse(Header(kBlkIn, 7), {}, {4096, 1});
  ExpectTransfer(read, BlockOp::kRead, 7 * 512, 4096);
  ASSERT_EQ(read.data.size(), 1u);
  EXPECT_EQ(read.data[0].host, Host(in_[0]));
  EXPECT_EQ(read.status_byte, Host(in_[1]));

  Bytes out = Header(kBlkOut, 9);
  out.resize(16 + 1024);
  const BlkParse write = Parse(out, {16, 1024}, {1});
  ExpectTransfer(write, BlockOp::kWrite, 9 * 512, 1024);
  ASSERT_EQ(write.data.size(), 1u);
  EXPECT_EQ(write.data[0].host, Host(out_[1]));
  EXPECT_EQ(write.status_byte, Host(in_[0]));
}

// Section 2.7.4.3: devices make no assumptions about how a message is cut.
TEST_F(BlkRequest, HeaderMayBeSplitOverAnyNumberOfBuffers) {
  for (uint32_t pieces = 1; pieces <= 16; ++pieces) {
    SCOPED_TRACE(pieces);
    const BlkParse read = Parse(Header(kBlkIn, 3), Split(16, pieces), {512, 1});
    ExpectTransfer(read, BlockOp::kRead, 3 * 512, 512);

    // The data begins in the buffer where the header ends.
    Bytes out = Header(kBlkOut, 4);
    out.resize(16 + 512);
    const BlkParse write = Parse(out, Split(16 + 512, pieces), {1});
    ExpectTransfer(write, BlockOp::kWrite, 4 * 512, 512);
    EXPECT_EQ(write.data[0].host, Host(out_.back()) + 17 - pieces);
  }
}

TEST_F(BlkRequest, HeaderMayBeSplitAtAnyByte) {
  for (uint32_t first = 1; first < 16; ++first) {
    const BlkParse read = Parse(Header(kBlkIn, 0x5a), {first, 16 - first}, {512, 1});
    ExpectTransfer(read, BlockOp::kRead, 0x5a * 512, 512);
  }
}

TEST_F(BlkRequest, StatusIsTheLastByteHoweverTheRestIsCut) {
  for (uint32_t first = 1; first <= 1024; ++first) {
    SCOPED_TRACE(first);
    const BlkParse read = Parse(Header(kBlkIn), {}, {first, 1025 - first});
    ExpectTransfer(read, BlockOp::kRead, 0, 1024);
    EXPECT_EQ(read.status_byte, Host(in_[1]) + (1025 - first) - 1);
    EXPECT_EQ(read.data.size(), first == 1024 ? 1u : 2u);
  }
  const BlkParse one = Parse(Header(kBlkIn), {}, {1025});
  ExpectTransfer(one, BlockOp::kRead, 0, 1024);
  EXPECT_EQ(one.status_byte, Host(in_[0]) + 1024);
}

TEST_F(BlkRequest, MayHaveAsManySegmentsAsAChainHasBuffers) {
  Lengths in(100, 512);
  in.push_back(1);
  ExpectTransfer(Parse(Header(kBlkIn), {}, in), BlockOp::kRead, 0, 100 * 512);
  // Segments need not be multiples of a sector.
  ExpectTransfer(Parse(Header(kBlkIn), {}, Lengths(513, 1)), BlockOp::kRead, 0, 512);
}

TEST_F(BlkRequest, WithoutRoomForHeaderOrStatusIsBroken) {
  for (const uint32_t type : {kBlkIn, kBlkOut, kBlkFlush, kBlkGetId, kBlkDiscard, 99u}) {
    for (uint32_t length = 0; length < 16; ++length) {
      Bytes header = Header(type);
      header.resize(length);
      EXPECT_EQ(Parse(header, {}, {512, 1}).kind, Kind::kBroken) << type << " " << length;
      if (length == 0) continue;
      EXPECT_EQ(Parse(header, Split(length, length), {1}).kind, Kind::kBroken);
      EXPECT_EQ(Parse(header, {}, {}).kind, Kind::kBroken);
    }
    EXPECT_EQ(Parse(Header(type), {}, {}).kind, Kind::kBroken) << "no status";
  }
}

TEST_F(BlkRequest, OutsideTheDiskIsAnError) {
  constexpr uint64_t kBig = uint64_t{1} << 55;  // sectors that make 2^64 bytes
  for (const uint64_t sector :
       {uint64_t{0}, uint64_t{1}, kCapacity - 2, kCapacity - 1, kCapacity, kCapacity + 1, kBig - 1,
        kBig, kBig + 1, kBig + kCapacity, uint64_t{1} << 63, ~uint64_t{0}}) {
    for (const uint32_t sectors : {1u, 2u, 99u, 100u, 101u}) {
      SCOPED_TRACE(std::to_string(sector) + "+" + std::to_string(sectors));
      const bool fits = sector < kCapacity && sectors <= kCapacity - sector;
      const uint32_t bytes = sectors * 512;
      const BlkParse read = Parse(Header(kBlkIn, sector), {}, {bytes, 1});
      Bytes out = Header(kBlkOut, sector);
      out.resize(16 + bytes);
      if (fits) {
        ExpectTransfer(read, BlockOp::kRead, sector * 512, bytes);
        ExpectTransfer(Parse(out, {}, {1}), BlockOp::kWrite, sector * 512, bytes);
      } else {
        ExpectAnswer(read, BlkStatus::kIoError, bytes + 1);
        ExpectAnswer(Parse(out, {}, {1}), BlkStatus::kIoError, 1);
      }
    }
  }
}

TEST_F(BlkRequest, ThatIsNoMultipleOfASectorIsAnError) {
  for (const uint32_t bytes : {1u, 511u, 513u, 1000u, 4095u}) {
    ExpectAnswer(Parse(Header(kBlkIn), {}, {bytes, 1}), BlkStatus::kIoError, bytes + 1);
    Bytes out = Header(kBlkOut);
    out.resize(16 + bytes);
    ExpectAnswer(Parse(out, {}, {1}), BlkStatus::kIoError, 1);
  }
}

TEST_F(BlkRequest, OfADiskWithLargeBlocksIsAlignedToThem) {
  disk_.info.logical_block = 4096;  // 12.5 of them: the half one is out of reach
  for (uint64_t sector = 0; sector < kCapacity + 8; ++sector) {
    for (uint32_t sectors = 1; sectors <= 24; ++sectors) {
      const uint32_t bytes = sectors * 512;
      const BlkParse read = Parse(Header(kBlkIn, sector), {}, {bytes, 1});
      if (sector % 8 == 0 && sectors % 8 == 0 && sector + sectors <= kCapacity) {
        ExpectTransfer(read, BlockOp::kRead, sector * 512, bytes);
      } else {
        ExpectAnswer(read, BlkStatus::kIoError, bytes + 1);
      }
    }
  }
}

TEST_F(BlkRequest, OfNoBytesIsDone) {
  ExpectAnswer(Parse(Header(kBlkIn, 5), {}, {1}), BlkStatus::kOk, 1);
  ExpectAnswer(Parse(Header(kBlkOut, 5), {}, {1}), BlkStatus::kOk, 1);
  ExpectAnswer(Parse(Header(kBlkIn, kCapacity + 1), {}, {1}), BlkStatus::kIoError, 1);
}

TEST_F(BlkRequest, ToFlushIsPassedOn) {
  // The sector is reserved, so it must not matter.
  for (const uint64_t sector : {uint64_t{0}, kCapacity + 1, ~uint64_t{0}}) {
    const BlkParse flush = Parse(Header(kBlkFlush, sector), {}, {1});
    ASSERT_EQ(flush.kind, Kind::kSubmit);
    EXPECT_EQ(request_.op, BlockOp::kFlush);
    EXPECT_EQ(request_.offset, 0u);
    EXPECT_EQ(request_.length, 0u);
    EXPECT_TRUE(flush.data.empty());
    EXPECT_EQ(flush.bytes, 0u);
    EXPECT_EQ(flush.written, 1u);
  }
}

TEST_F(BlkRequest, ToAReadOnlyDiskReadsAndFlushesOnly) {
  disk_.info.read_only = true;
  ExpectTransfer(Parse(Header(kBlkIn), {}, {512, 1}), BlockOp::kRead, 0, 512);
  ExpectAnswer(Parse(Header(kBlkFlush), {}, {1}), BlkStatus::kOk, 1);
  Bytes out = Header(kBlkOut);
  ExpectAnswer(Parse(out, {}, {1}), BlkStatus::kIoError, 1);
  out.resize(16 + 512);
  ExpectAnswer(Parse(out, {}, {1}), BlkStatus::kIoError, 1);
  for (const uint32_t type : {kBlkDiscard, kBlkWriteZeroes}) {
    ExpectAnswer(Parse(RangeRequest(type, {.sectors = 1}), {}, {1}), BlkStatus::kIoError, 1);
  }
}

TEST_F(BlkRequest, ForTheIdFillsWhatThereIsRoomFor) {
  const std::string serial = "0123456789ABCDEFGHIJ";  // all 20 bytes: no end mark
  std::ranges::copy(serial, disk_.id.begin());
  for (uint32_t room = 0; room <= 64; ++room) {
    for (uint32_t pieces = 1; pieces <= std::max(room, 1u); pieces += 3) {
      SCOPED_TRACE(std::to_string(room) + " in " + std::to_string(pieces));
      Lengths in = room == 0 ? Lengths{} : Split(room, pieces);
      in.push_back(1);
      const uint32_t copied = std::min(room, 20u);
      const BlkParse parse = Parse(Header(kBlkGetId), {}, in);
      ExpectAnswer(parse, BlkStatus::kOk, copied + 1);
      EXPECT_EQ(parse.status_byte, Host(in_.back()));
      std::string got;
      for (size_t i = 0; i + 1 < in.size(); ++i) {
        for (uint32_t j = 0; j < in[i] + kGap; ++j) {
          const auto byte = std::to_integer<uint8_t>(*Host(in_[i] + j));
          if (j < in[i] && got.size() < copied) {
            got += static_cast<char>(byte);
          } else {
            ASSERT_EQ(byte, kUntouched);
          }
        }
      }
      EXPECT_EQ(got, serial.substr(0, copied));
    }
  }
}

TEST_F(BlkRequest, ForAShortIdIsFilledWithZeroes) {
  disk_.id = {'a', 'b'};
  ExpectAnswer(Parse(Header(kBlkGetId), {}, {20, 1}), BlkStatus::kOk, 21);
  EXPECT_EQ(PeekBytes(*memory_, in_[0], 3), (Bytes{'a', 'b', 0}));
  EXPECT_EQ(Peek<uint8_t>(*memory_, in_[0] + 19), 0);
}

TEST_F(BlkRequest, OfUnknownTypeIsUnsupported) {
  std::vector<uint32_t> types = {0x80000000, 0x80000001, 0xffffffff, 0x100, 0x10000, 1u << 24};
  for (uint32_t type = 0; type < 64; ++type) types.push_back(type);
  for (const uint32_t type : types) {
    if (type == kBlkIn || type == kBlkOut || type == kBlkFlush || type == kBlkGetId ||
        type == kBlkDiscard || type == kBlkWriteZeroes) {
      continue;
    }
    Bytes out = Header(type);
    out.resize(16 + 512);
    ExpectAnswer(Parse(out, {}, {512, 1}), BlkStatus::kUnsupported, 1);
    EXPECT_EQ(Peek<uint8_t>(*memory_, in_[0]), kUntouched);
  }
}

TEST_F(BlkRequest, ToDiscardOrZeroNamesARange) {
  for (const uint32_t type : {kBlkDiscard, kBlkWriteZeroes}) {
    for (const uint32_t flags : {0u, 1u, 2u, 3u, 0x80000000u}) {
      SCOPED_TRACE(std::to_string(type) + " flags " + std::to_string(flags));
      const BlkRange range = {.sector = 5, .sectors = 10, .flags = flags};
      for (uint32_t pieces = 1; pieces <= 32; ++pieces) {
        const BlkParse parse = Parse(RangeRequest(type, range), Split(32, pieces), {1});
        // Section 5.2.6.2: unmap is a discard's nature, not its flag.
        if (flags > (type == kBlkWriteZeroes ? 1u : 0u)) {
          ExpectAnswer(parse, BlkStatus::kUnsupported, 1);
          continue;
        }
        ASSERT_EQ(parse.kind, Kind::kSubmit);
        EXPECT_EQ(request_.op, type == kBlkDiscard ? BlockOp::kDiscard : BlockOp::kWriteZeroes);
        EXPECT_EQ(request_.offset, 5u * 512);
        EXPECT_EQ(request_.length, 10u * 512);
        EXPECT_EQ(request_.unmap, flags == 1);
        EXPECT_TRUE(parse.data.empty());
        EXPECT_EQ(parse.written, 1u);
      }
    }
  }
}

TEST_F(BlkRequest, ToDiscardOrZeroStaysInsideTheDisk) {
  constexpr uint64_t kBig = uint64_t{1} << 55;
  for (const uint32_t type : {kBlkDiscard, kBlkWriteZeroes}) {
    for (const uint64_t sector : {uint64_t{0}, kCapacity - 1, kCapacity, kCapacity + 1, kBig - 1,
                                  kBig, kBig + 1, ~uint64_t{0}}) {
      for (const uint32_t sectors : {0u, 1u, 100u, 101u, 0x800000u, 0x7fffffffu, 0xffffffffu}) {
        SCOPED_TRACE(std::to_string(sector) + "+" + std::to_string(sectors));
        const BlkParse parse =
            Parse(RangeRequest(type, {.sector = sector, .sectors = sectors}), {}, {1});
        if (sector > kCapacity || sectors > kCapacity - sector) {
          ExpectAnswer(parse, BlkStatus::kIoError, 1);
        } else if (sectors == 0) {
          ExpectAnswer(parse, BlkStatus::kOk, 1);
        } else {
          ASSERT_EQ(parse.kind, Kind::kSubmit);
          EXPECT_EQ(request_.offset, sector * 512);
          EXPECT_EQ(request_.length, uint64_t{sectors} * 512);
        }
      }
    }
  }
}

TEST_F(BlkRequest, ToDiscardOrZeroKeepsTheLimitsOfTheConfiguration) {
  disk_.info.size = uint64_t{1} << 40;
  for (const uint32_t type : {kBlkDiscard, kBlkWriteZeroes}) {
    const auto parse = [&](uint32_t sectors) {
      return Parse(RangeRequest(type, {.sectors = sectors}), {}, {1});
    };
    EXPECT_EQ(parse(kMaxDiscardSectors).kind, Kind::kSubmit);
    EXPECT_EQ(request_.length, uint64_t{kMaxDiscardSectors} * 512);
    ExpectAnswer(parse(kMaxDiscardSectors + 1), BlkStatus::kIoError, 1);
    // One range, and all of it.
    for (const uint32_t length : {0u, 1u, 15u, 17u, 31u, 32u, 160u}) {
      Bytes out = Header(type);
      out.resize(16 + length);
      ExpectAnswer(Parse(out, {}, {1}), BlkStatus::kIoError, 1);
    }
  }
}

TEST_F(BlkRequest, ToDiscardOrZeroIsAlignedToLargeBlocks) {
  disk_.info.logical_block = 4096;
  for (const uint32_t type : {kBlkDiscard, kBlkWriteZeroes}) {
    const auto kind = [&](uint64_t sector, uint32_t sectors) {
      return Parse(RangeRequest(type, {.sector = sector, .sectors = sectors}), {}, {1}).kind;
    };
    EXPECT_EQ(kind(8, 16), Kind::kSubmit);
    EXPECT_EQ(kind(1, 8), Kind::kComplete);
    EXPECT_EQ(kind(8, 9), Kind::kComplete);
  }
}

TEST_F(BlkRequest, ToDiscardOrZeroIsUnsupportedUnlessNegotiated) {
  const auto status = [&](uint32_t type) {
    const BlkParse parse = Parse(RangeRequest(type, {.sectors = 1}), {}, {1});
    return parse.kind == Kind::kSubmit ? BlkStatus::kOk : parse.status;
  };
  disk_.discard = false;
  EXPECT_EQ(status(kBlkDiscard), BlkStatus::kUnsupported);
  EXPECT_EQ(status(kBlkWriteZeroes), BlkStatus::kOk);
  disk_.discard = true;
  disk_.write_zeroes = false;
  EXPECT_EQ(status(kBlkDiscard), BlkStatus::kOk);
  EXPECT_EQ(status(kBlkWriteZeroes), BlkStatus::kUnsupported);
}

}  // namespace
}  // namespace ringside::testing
