#include "vfio/vfio_info.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/vfio.h>

#include "base/status.h"

namespace ringside {
namespace {

// Far beyond what any kernel answers.
constexpr uint32_t kMostInfoBytes = 1 << 20;

using Bytes = std::span<const std::byte>;

template <typename T>
absl::StatusOr<T> ReadAt(Bytes bytes, uint64_t offset) {
  if (offset > bytes.size() || sizeof(T) > bytes.size() - offset) {
    return absl::InternalError(
        absl::StrFormat("VFIO answered %d bytes that refer to %d", bytes.size(), offset));
  }
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

// The capability and all that follows it; empty if there is none.
absl::StatusOr<Bytes> FindCapability(Bytes info, uint32_t first, uint16_t id) {
  uint32_t offset = first;
  // A chain that is longer than its room goes in circles.
  for (size_t left = info.size() / sizeof(vfio_info_cap_header); offset != 0; --left) {
    if (left == 0) return absl::InternalError("VFIO answered a capability chain without an end");
    RINGSIDE_ASSIGN_OR_RETURN(const auto header, ReadAt<vfio_info_cap_header>(info, offset));
    if (header.id == id) return info.subspan(offset);
    offset = header.next;
  }
  return Bytes();
}

// The elements of a capability that is a Header, which counts them, and then an array.
template <typename Header, typename Element>
absl::StatusOr<std::vector<Element>> ReadArray(Bytes capability, uint32_t Header::* count) {
  RINGSIDE_ASSIGN_OR_RETURN(const Header header, ReadAt<Header>(capability, 0));
  std::vector<Element> elements;
  for (uint64_t i = 0; i < header.*count; ++i) {
    RINGSIDE_ASSIGN_OR_RETURN(const Element element,
                              ReadAt<Element>(capability, sizeof(Header) + i * sizeof(Element)));
    elements.push_back(element);
  }
  return elements;
}

}  // namespace

absl::StatusOr<std::vector<std::byte>> QueryVfioInfo(std::span<const std::byte> ask,
                                                     const std::function<int(void*)>& query) {
  std::vector<std::byte> info(ask.begin(), ask.end());
  // It may grow between two calls, but not for ever.
  for (int tries = 0; tries < 8; ++tries) {
    auto argsz = static_cast<uint32_t>(info.size());
    std::memcpy(info.data(), &argsz, sizeof argsz);
    if (query(info.data()) != 0) return ErrnoError(errno, "cannot query VFIO");
    std::memcpy(&argsz, info.data(), sizeof argsz);
    if (argsz <= info.size()) return info;
    if (argsz > kMostInfoBytes) break;
    info.assign(argsz, std::byte{0});
    std::ranges::copy(ask, info.begin());
  }
  return absl::InternalError("VFIO asks for ever more room to answer a query");
}

absl::StatusOr<VfioRegion> ParseVfioRegion(Bytes bytes) {
  RINGSIDE_ASSIGN_OR_RETURN(const auto info, ReadAt<vfio_region_info>(bytes, 0));
  VfioRegion region{.offset = info.offset, .size = info.size};
  const bool mappable = (info.flags & VFIO_REGION_INFO_FLAG_MMAP) != 0;
  if (mappable) region.areas.push_back({.offset = 0, .size = info.size});
  if ((info.flags & VFIO_REGION_INFO_FLAG_CAPS) == 0) return region;

  RINGSIDE_ASSIGN_OR_RETURN(
      const Bytes sparse, FindCapability(bytes, info.cap_offset, VFIO_REGION_INFO_CAP_SPARSE_MMAP));
  if (mappable && !sparse.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(
        const auto areas,
        (ReadArray<vfio_region_info_cap_sparse_mmap, vfio_region_sparse_mmap_area>(
            sparse, &vfio_region_info_cap_sparse_mmap::nr_areas)));
    region.areas.clear();
    for (const auto& area : areas) region.areas.push_back({area.offset, area.size});
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      const Bytes msix, FindCapability(bytes, info.cap_offset, VFIO_REGION_INFO_CAP_MSIX_MAPPABLE));
  region.msix_mappable = mappable && !msix.empty();
  return region;
}

absl::StatusOr<std::optional<std::vector<IovaRange>>> ParseIovaRanges(Bytes bytes) {
  RINGSIDE_ASSIGN_OR_RETURN(const auto info, ReadAt<vfio_iommu_type1_info>(bytes, 0));
  if ((info.flags & VFIO_IOMMU_INFO_CAPS) == 0) return std::nullopt;
  RINGSIDE_ASSIGN_OR_RETURN(
      const Bytes capability,
      FindCapability(bytes, info.cap_offset, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE));
  if (capability.empty()) return std::nullopt;
  RINGSIDE_ASSIGN_OR_RETURN(const auto elements,
                            (ReadArray<vfio_iommu_type1_info_cap_iova_range, vfio_iova_range>(
                                capability, &vfio_iommu_type1_info_cap_iova_range::nr_iovas)));
  std::vector<IovaRange> ranges;
  for (const vfio_iova_range& element : elements) {
    const bool ascends = ranges.empty() || ranges.back().last < element.start;
    if (element.start > element.end || !ascends) {
      return absl::InternalError(
          absl::StrFormat("VFIO answered the range of I/O addresses %#x to %#x out of order",
                          element.start, element.end));
    }
    ranges.push_back({.first = element.start, .last = element.end});
  }
  return ranges;
}

}  // namespace ringside
