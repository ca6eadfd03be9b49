#include "devices/blk_request.h"

#include <algorithm>
#include <cstring>

#include "block/segment_cursor.h"

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
static_assert(sizeof(Header) == kBlkHeaderSize);

struct Range {
  uint64_t sector;
  uint32_t sectors;
  uint32_t flags;
};
static_assert(sizeof(Range) == 16);

// Moves the first sizeof(T) bytes out of `segments`, however they are split (section 2.7.4.3).
// False if there are fewer.
template <typename T>
[[gnu::noinline]] bool TakeFront(std::span<Segment>& segments, T& value) {
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

// As every driver has it: a buffer of its own, so two loads will do.
bool TakeHeader(std::span<Segment>& readable, Header& header) {
  if (readable.empty() || readable.front().length != sizeof header) {
    return TakeFront(readable, header);
  }
  const std::byte* host = readable.front().host;
  header.type = ReadOnce<uint32_t>(host + offsetof(Header, type));
  header.sector = ReadOnce<uint64_t>(host + offsetof(Header, sector));
  readable = readable.subspan(1);
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

void CopyId(const BlkView& disk, std::span<const Segment> data) {
  const size_t size = std::min<uint64_t>(disk.id.size(), TotalLength(data));
  CopyToSegments(data, {}, std::as_bytes(std::span(disk.id)).first(size));
}

// What is being parsed.
struct Parsing {
  const BlkView& disk;
  BlockRequest& request;
  BlkParse& parse;
};

inline void Answer(const Parsing& it, BlkStatus status) {
  it.parse.kind = BlkParse::Kind::kComplete;
  it.parse.status = status;
}

inline void MakeRequest(const Parsing& it, BlockOp op, uint64_t sector) {
  it.parse.kind = BlkParse::Kind::kSubmit;
  it.request.op = op;
  it.request.offset = sector * kSectorSize;
}

inline void Transfer(const Parsing& it, BlockOp op, uint64_t sector, std::span<Segment> data) {
  const uint64_t bytes = data.size() == 1 ? data.front().length : TotalLength(data);
  if (op == BlockOp::kRead) it.parse.written += static_cast<uint32_t>(bytes);
  const BlockInfo& info = it.disk.info;
  if ((op == BlockOp::kWrite && info.read_only) || !FitsDisk(info, sector, bytes)) {
    return Answer(it, BlkStatus::kIoError);
  }
  if (bytes == 0) return Answer(it, BlkStatus::kOk);
  it.parse.data = data;
  it.parse.bytes = bytes;
  MakeRequest(it, op, sector);
}

void Flush(const Parsing& it) {
  // There is nothing to write back; firmware flushes read-only disks all the same.
  if (it.disk.info.read_only) return Answer(it, BlkStatus::kOk);
  MakeRequest(it, BlockOp::kFlush, 0);
}

void GetId(const Parsing& it, std::span<const Segment> data) {
  CopyId(it.disk, data);
  it.parse.written += static_cast<uint32_t>(std::min<uint64_t>(TotalLength(data), kBlkIdSize));
  Answer(it, BlkStatus::kOk);
}

// Section 5.2.6.2: what is unknown is unsupported, what is out of range an error.
void Ranges(const Parsing& it, BlockOp op, std::span<Segment> data) {
  const bool offered = op == BlockOp::kDiscard ? it.disk.discard : it.disk.write_zeroes;
  if (!offered) return Answer(it, BlkStatus::kUnsupported);
  Range range;
  if (!TakeFront(data, range) || !data.empty()) return Answer(it, BlkStatus::kIoError);
  const uint32_t known = op == BlockOp::kWriteZeroes ? kUnmap : 0;
  if ((range.flags & ~known) != 0) return Answer(it, BlkStatus::kUnsupported);
  const uint64_t bytes = uint64_t{range.sectors} * kSectorSize;
  if (it.disk.info.read_only || range.sectors > kMaxDiscardSectors ||
      !FitsDisk(it.disk.info, range.sector, bytes)) {
    return Answer(it, BlkStatus::kIoError);
  }
  if (bytes == 0) return Answer(it, BlkStatus::kOk);
  it.request.unmap = (range.flags & kUnmap) != 0;
  it.request.length = bytes;
  MakeRequest(it, op, range.sector);
}

// All but reads and writes. Apart, so that those keep their registers.
[[gnu::noinline]] void ParseOther(const Parsing& it, uint32_t type, std::span<Segment> readable,
                                  std::span<Segment> writable) {
  switch (type) {
    case kFlush:
      return Flush(it);
    case kGetId:
      return GetId(it, writable);
    case kDiscard:
      return Ranges(it, BlockOp::kDiscard, readable);
    case kWriteZeroes:
      return Ranges(it, BlockOp::kWriteZeroes, readable);
    default:
      return Answer(it, BlkStatus::kUnsupported);
  }
}

}  // namespace

BlkParse ParseBlkRequest(ChainBuffers& buffers, const BlkView& disk, BlockRequest& request) {
  BlkParse parse;
  std::span<Segment> readable = buffers.readable();
  std::span<Segment> writable = buffers.writable();
  Header header;
  if (!TakeHeader(readable, header)) return parse;
  parse.status_byte = TakeStatusByte(writable);
  if (parse.status_byte == nullptr) return parse;
  parse.written = 1;

  request.unmap = false;
  request.length = 0;
  const Parsing it = {.disk = disk, .request = request, .parse = parse};
  if (header.type == kIn) {
    Transfer(it, BlockOp::kRead, header.sector, writable);
  } else if (header.type == kOut) {
    Transfer(it, BlockOp::kWrite, header.sector, readable);
  } else {
    ParseOther(it, header.type, readable, writable);
  }
  return parse;
}

}  // namespace ringside
