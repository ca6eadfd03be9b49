#include "block/segment_cursor.h"

#include <algorithm>
#include <cstring>

namespace ringside {
namespace {

// Calls use(host, offset, length) for each piece of `bytes` from the cursor on.
template <typename Use>
void ForEachPiece(std::span<const Segment> segments, SegmentCursor cursor, size_t bytes, Use use) {
  for (size_t done = 0; done < bytes; cursor = {.segment = cursor.segment + 1}) {
    const Segment& segment = segments[cursor.segment];
    const size_t length = std::min<size_t>(segment.length - cursor.skip, bytes - done);
    use(segment.host + cursor.skip, done, length);
    done += length;
  }
}

}  // namespace

void SegmentCursor::Advance(std::span<const Segment> segments, uint64_t bytes) {
  while (bytes != 0) {
    const uint32_t left = segments[segment].length - skip;
    if (bytes < left) {
      skip += static_cast<uint32_t>(bytes);
      return;
    }
    bytes -= left;
    ++segment;
    skip = 0;
  }
}

void CopyFromSegments(std::span<const Segment> segments, const SegmentCursor& cursor,
                      std::span<std::byte> memory) {
  ForEachPiece(segments, cursor, memory.size(), [&](std::byte* host, size_t at, size_t length) {
    std::memcpy(memory.data() + at, host, length);
  });
}

void CopyToSegments(std::span<const Segment> segments, const SegmentCursor& cursor,
                    std::span<const std::byte> memory) {
  ForEachPiece(segments, cursor, memory.size(), [&](std::byte* host, size_t at, size_t length) {
    std::memcpy(host, memory.data() + at, length);
  });
}

}  // namespace ringside
