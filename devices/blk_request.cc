#include "devices/blk_request.h"

#include <algorithm>
#include <cstring>

namespace ringside {
namespace {

// Section 5.2.6.
enum Type : uint32_t {
  kIn = 0,
  kOut = 1,
  kFlush = 4,
  kGetId = 8,
  kDiscard = 11,
  kWriteZeroes = 13,
};
constexpr uint32_t kUnmap = 1;

struct Header {
  uint32_t type;
  uint32_t reserved;
  uint64_t sector;
};
static_assert(sizeof(Header) == 16);

struct Range {
  uint64_t sector;
  uint32_t sectors;
  uint32_t flags;
};
static_assert(sizeof(Range) == 16);

uint64_t Total(std::span<const Segment> segments) {
  uint64_t total = 0;
  for (const Segment& segment : segments) total += segment.length;
  return total;
}

// Moves the first sizeof(T) bytes out of `segments`, however they are split (section 2.7.4.3).
// False if there are fewer.
template <typename T>
bool TakeFront(std::span<Segment>& segments, T& value) {
  if (!segments.empty() && segments.front().length == sizeof value) {  // as every driver has it
    value = ReadOnce<T>(segments.front().host);
    segments = segments.subspan(1);
    return true;
  }
  auto* out = reinterpret_cast<std::byte*>(&value);
  size_t missing = sizeof value;
  while (missing > 0) {
    if (segments.empty()) return false;
    Segment& first = segments.front();
    const auto part = static_cast<uint32_t>(std::min<size_t>(missing, first.length));
    std::memcpy(out, first.host, part);
    out += part;
    missing -= part;
    first.host += part;
    first.length -= part;
    if (first.length == 0) segments = segments.subspan(1);
  }
  asm volatile("" : "+m"(value));  // as ReadOnce: the guest's copy is not read again
  return true;
}

// The last byte of what the device may write.
std::byte* TakeStatusByte(std::span<Segment>& segments) {
  if (segments.empty()) return nullptr;
  Segment& last = segments.back();
  --last.length;
  std::byte* status = last.host + last.length;
  if (last.length == 0) segments = segments.first(segments.size() - 1);
  return status;
}

// Whether sectors [sector, sector + bytes / 512) can be transferred.
bool Fits(const BlockInfo& info, uint64_t sector, uint64_t bytes) {
  const uint64_t block = info.logical_block;
  return sector <= info.size / kSectorSize && bytes <= info.size - sector * kSectorSize &&
         sector * kSectorSize % block == 0 && bytes % block == 0;
}

void CopyId(const BlkView& disk, std::span<const Segment> data) {
  size_t done = 0;
  for (const Segment& segment : data) {
    const size_t part = std::min<size_t>(segment.length, disk.id.size() - done);
    std::memcpy(segment.host, disk.id.data() + done, part);
    done += part;
  }
}

class Parser {
 public:
  Parser(const BlkView& disk, BlockRequest& request, BlkParse& parse)
      : disk_(disk), request_(request), parse_(parse) {}

  void Transfer(BlockOp op, uint64_t sector, std::span<Segment> data) {
    const uint64_t bytes = Total(data);
    if (op == BlockOp::kRead) parse_.written += static_cast<uint32_t>(bytes);
    if ((op == BlockOp::kWrite && disk_.info.read_only) || !Fits(disk_.info, sector, bytes)) {
      return Answer(BlkStatus::kIoError);
    }
    if (bytes == 0) return Answer(BlkStatus::kOk);
    parse_.data = data;
    parse_.bytes = bytes;
    Submit(op, sector);
  }

  void Flush() {
    // There is nothing to write back; firmware flushes read-only disks all the same.
    if (disk_.info.read_only) return Answer(BlkStatus::kOk);
    Submit(BlockOp::kFlush, 0);
  }

  void GetId(std::span<const Segment> data) {
    CopyId(disk_, data);
    parse_.written += static_cast<uint32_t>(std::min<uint64_t>(Total(data), kBlkIdSize));
    Answer(BlkStatus::kOk);
  }

  // Section 5.2.6.2: what is unknown is unsupported, what is out of range an error.
  void Ranges(BlockOp op, std::span<Segment> data) {
    const bool offered = op == BlockOp::kDiscard ? disk_.discard : disk_.write_zeroes;
    if (!offered) return Answer(BlkStatus::kUnsupported);
    Range range;
    if (!TakeFront(data, range) || !data.empty()) return Answer(BlkStatus::kIoError);
    const uint32_t known = op == BlockOp::kWriteZeroes ? kUnmap : 0;
    if ((range.flags & ~known) != 0) return Answer(BlkStatus::kUnsupported);
    const uint64_t bytes = uint64_t{range.sectors} * kSectorSize;
    if (disk_.info.read_only || range.sectors > kMaxDiscardSectors ||
        !Fits(disk_.info, range.sector, bytes)) {
      return Answer(BlkStatus::kIoError);
    }
    if (bytes == 0) return Answer(BlkStatus::kOk);
    request_.unmap = (range.flags & kUnmap) != 0;
    request_.length = bytes;
    Submit(op, range.sector);
  }

  void Answer(BlkStatus status) {
    parse_.kind = BlkParse::Kind::kComplete;
    parse_.status = status;
  }

 private:
  void Submit(BlockOp op, uint64_t sector) {
    parse_.kind = BlkParse::Kind::kSubmit;
    request_.op = op;
    request_.offset = sector * kSectorSize;
  }

  const BlkView& disk_;
  BlockRequest& request_;
  BlkParse& parse_;
};

}  // namespace

BlkParse ParseBlkRequest(ChainBuffers& buffers, const BlkView& disk, BlockRequest& request) {
  BlkParse parse;
  std::span<Segment> readable = buffers.readable();
  std::span<Segment> writable = buffers.writable();
  Header header;
  if (!TakeFront(readable, header)) return parse;
  parse.status_byte = TakeStatusByte(writable);
  if (parse.status_byte == nullptr) return parse;
  parse.written = 1;

  request.unmap = false;
  request.length = 0;
  Parser parser(disk, request, parse);
  switch (header.type) {
    case kIn:
      parser.Transfer(BlockOp::kRead, header.sector, writable);
      break;
    case kOut:
      parser.Transfer(BlockOp::kWrite, header.sector, readable);
      break;
    case kFlush:
      parser.Flush();
      break;
    case kGetId:
      parser.GetId(writable);
      break;
    case kDiscard:
      parser.Ranges(BlockOp::kDiscard, readable);
      break;
    case kWriteZeroes:
      parser.Ranges(BlockOp::kWriteZeroes, readable);
      break;
    default:
      parser.Answer(BlkStatus::kUnsupported);
  }
  return parse;
}

}  // namespace ringside
