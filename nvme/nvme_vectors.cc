#include "nvme/nvme_vectors.h"

#include <algorithm>

#include "nvme/nvme_spec.h"

namespace ringside {
namespace {

constexpr uint64_t kInPage = nvme::kPageSize - 1;

uint64_t AddressOf(const iovec& vector) {
  return reinterpret_cast<uint64_t>(vector.iov_base);
}

bool AreCopied(std::span<const iovec> vectors, uint32_t alignment) {
  uint64_t unaligned = 0;
  uint64_t gaps = 0;
  for (size_t i = 0; i < vectors.size(); ++i) {
    const uint64_t begin = AddressOf(vectors[i]);
    unaligned |= begin | vectors[i].iov_len;
    if (i != 0) gaps |= begin;
    if (i + 1 != vectors.size()) gaps |= begin + vectors[i].iov_len;
  }
  return (unaligned & (alignment - 1)) != 0 || (gaps & kInPage) != 0;
}

// Takes so many bytes off the end.
unsigned Shorten(std::span<iovec> vectors, uint64_t bytes) {
  size_t count = vectors.size();
  for (; bytes != 0 && bytes >= vectors[count - 1].iov_len; --count) {
    bytes -= vectors[count - 1].iov_len;
  }
  if (bytes != 0) vectors[count - 1].iov_len -= bytes;
  return static_cast<unsigned>(count);
}

}  // namespace

NvmeVectors BuildVectors(std::span<const Segment> segments, const SegmentCursor& cursor,
                         const NvmeVectorLimits& limits, std::span<iovec> vectors) {
  size_t count = 0;
  uint64_t total = 0;
  uint64_t pages = 0;
  uint32_t skip = cursor.skip;
  for (size_t i = cursor.segment;
       i < segments.size() && count < vectors.size() && total < limits.most_bytes; ++i) {
    const Segment& segment = segments[i];
    std::byte* const begin = segment.host + skip;
    const uint64_t in_page = reinterpret_cast<uint64_t>(begin) & kInPage;
    // As far as the pages that are left reach.
    const uint64_t reach = (limits.most_pages - pages) * nvme::kPageSize;
    if (reach <= in_page) break;
    const uint64_t length =
        std::min({uint64_t{segment.length} - skip, limits.most_bytes - total, reach - in_page});
    skip = 0;
    if (length == 0) continue;
    vectors[count++] = {.iov_base = begin, .iov_len = length};
    total += length;
    pages += (in_page + length + kInPage) / nvme::kPageSize;
  }
  NvmeVectors built = {.bytes = static_cast<uint32_t>(total & ~uint64_t{limits.block_size - 1})};
  built.count = built.bytes == 0 ? 0 : Shorten(vectors.first(count), total - built.bytes);
  built.copied = AreCopied(vectors.first(built.count), limits.alignment);
  return built;
}

}  // namespace ringside
