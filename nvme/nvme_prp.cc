#include "nvme/nvme_prp.h"

#include <algorithm>

namespace ringside {
namespace {

constexpr uint64_t kInPage = nvme::kPageSize - 1;

// The entries of a transfer, in order.
class Entries {
 public:
  explicit Entries(PrpList& list) : list_(list) {}

  // Adds as much of [iova, iova + bytes) as PRP takes, which is all or nothing of it.
  bool Add(uint64_t iova, uint32_t bytes) {
    uint64_t left = bytes;
    if (count_ == 0) {
      if ((iova & 3) != 0) return false;  // section 4.1.1: the offset is a multiple of four
      prp1_ = iova;
      count_ = 1;
      left -= std::min<uint64_t>(left, nvme::kPageSize - (iova & kInPage));
    } else if ((end_ & kInPage) != 0) {
      if (iova != end_) return false;
      left -= std::min<uint64_t>(left, nvme::kPageSize - (iova & kInPage));
    } else if ((iova & kInPage) != 0) {
      return false;
    }
    end_ = iova + bytes;
    for (uint64_t page = end_ - left; page < end_; page += nvme::kPageSize) {
      list_[count_++ - 1] = page;
    }
    total_ += bytes;
    return true;
  }

  uint32_t total() const { return total_; }

  Prps Finish(uint32_t bytes, uint64_t list_iova) const {
    if (bytes == 0) return {};
    // What was added beyond is not looked at, as long as a second entry is no list.
    const uint64_t pages = ((prp1_ & kInPage) + bytes + kInPage) / nvme::kPageSize;
    const uint64_t prp2 = pages == 1 ? 0 : pages == 2 ? list_[0] : list_iova;
    return {.prp1 = prp1_, .prp2 = prp2, .bytes = bytes};
  }

 private:
  PrpList& list_;
  size_t count_ = 0;  // of entries; all but the first are in the list
  uint64_t prp1_ = 0;
  uint64_t end_ = 0;
  uint32_t total_ = 0;
};

}  // namespace

Prps BuildPrps(std::span<const Segment> segments, const SegmentCursor& cursor, uint32_t most,
               uint32_t block, const uint64_t* iova_offsets, PrpList& list, uint64_t list_iova) {
  Entries entries(list);
  uint32_t skip = cursor.skip;
  for (size_t i = cursor.segment; i < segments.size() && entries.total() < most; ++i) {
    const Segment& segment = segments[i];
    const uint32_t length = std::min(segment.length - skip, most - entries.total());
    const uint64_t iova =
        reinterpret_cast<uint64_t>(segment.host) + skip + iova_offsets[segment.region];
    if (length != 0 && !entries.Add(iova, length)) break;
    skip = 0;
  }
  return entries.Finish(entries.total() & ~(block - 1), list_iova);
}

Prps BuildPrps(uint64_t iova, uint32_t bytes, PrpList& list, uint64_t list_iova) {
  Entries entries(list);
  entries.Add(iova, bytes);
  return entries.Finish(bytes, list_iova);
}

}  // namespace ringside
