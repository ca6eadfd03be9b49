#include "nvme/nvme_dma.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>
#include <utility>

#include "base/memory_file.h"
#include "base/status.h"
#include "nvme/nvme_spec.h"

namespace ringside {
namespace {

std::vector<IovaRange> WholePages(std::span<const IovaRange> ranges) {
  std::vector<IovaRange> whole;
  for (const IovaRange& range : ranges) {
    const uint64_t first = (range.first + nvme::kPageSize - 1) & ~uint64_t{nvme::kPageSize - 1};
    const uint64_t end = (range.last & ~uint64_t{nvme::kPageSize - 1}) +
                         ((range.last + 1) % nvme::kPageSize == 0 ? nvme::kPageSize : 0);
    if (end - 1 > first) whole.push_back({.first = first, .last = end - 1});
  }
  return whole;
}

}  // namespace

DmaBuffer& DmaBuffer::operator=(DmaBuffer&& other) noexcept {
  std::swap(space_, other.space_);
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(iova_, other.iova_);
  return *this;
}

DmaBuffer::~DmaBuffer() {
  if (data_ == nullptr) return;
  // The device first: it must not find other people's memory there.
  if (space_ != nullptr) {
    const DmaSpace::Mapped mapped = {.iova = iova_, .size = size_};
    space_->Unmap({&mapped, 1});
  }
  munmap(data_, size_);
}

DmaSpace::DmaSpace(PciDevice& device) : device_(device), free_(WholePages(device.iova_ranges())) {}

absl::StatusOr<DmaBuffer> DmaBuffer::Create(uint64_t size) {
  size = (size + nvme::kPageSize - 1) & ~uint64_t{nvme::kPageSize - 1};
  DmaBuffer buffer;
  RINGSIDE_ASSIGN_OR_RETURN(buffer.fd_, CreateMemoryFile("nvme-queues", size));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, buffer.fd_.get(), 0);
  if (memory == MAP_FAILED) return ErrnoError(errno, "cannot map memory for NVMe queues");
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_ = size;
  return buffer;
}

absl::StatusOr<DmaBuffer> DmaSpace::Allocate(uint64_t size) {
  RINGSIDE_ASSIGN_OR_RETURN(DmaBuffer buffer, DmaBuffer::Create(size));
  RINGSIDE_RETURN_IF_ERROR(Map(buffer));
  return buffer;
}

absl::Status DmaSpace::Map(DmaBuffer& buffer) {
  {
    const MutexLock lock(mutex_);
    RINGSIDE_ASSIGN_OR_RETURN(buffer.iova_, TakeHighest(buffer.size_));
  }
  if (absl::Status status = device_.MapDma({.host = buffer.data_,
                                            .size = buffer.size_,
                                            .iova = buffer.iova_,
                                            .fd = buffer.fd_.get(),
                                            .fd_offset = 0});
      !status.ok()) {
    GiveBack(buffer.iova_, buffer.size_);
    return status;
  }
  buffer.space_ = this;
  return absl::OkStatus();
}

absl::StatusOr<IovaOffsets> DmaSpace::MapMemory(std::span<const MemoryRegion> regions) {
  IovaOffsets offsets;
  std::vector<Mapped> mapped;
  for (const MemoryRegion& region : regions) {
    const auto iova = MapRegion(region);
    if (!iova.ok()) {
      Unmap(mapped);
      return iova.status();
    }
    mapped.push_back({.iova = *iova, .size = region.size});
    if (offsets.size() <= region.index) offsets.resize(region.index + size_t{1});
    offsets[region.index] = *iova - reinterpret_cast<uint64_t>(region.host);
  }
  const MutexLock lock(mutex_);
  guest_memory_.insert(guest_memory_.end(), mapped.begin(), mapped.end());
  return offsets;
}

absl::StatusOr<uint64_t> DmaSpace::MapRegion(const MemoryRegion& region) {
  uint64_t iova = region.guest_address;
  {
    const MutexLock lock(mutex_);
    if (!TakeAt(iova, region.size)) {
      RINGSIDE_ASSIGN_OR_RETURN(iova, TakeLowest(region.size));
    }
  }
  if (absl::Status status = device_.MapDma({.host = region.host,
                                            .size = region.size,
                                            .iova = iova,
                                            .fd = region.fd,
                                            .fd_offset = region.fd_offset});
      !status.ok()) {
    GiveBack(iova, region.size);
    return status;
  }
  return iova;
}

void DmaSpace::CutOff() {
  std::vector<Mapped> mapped;
  {
    const MutexLock lock(mutex_);
    mapped = std::exchange(guest_memory_, {});
  }
  Unmap(mapped);
}

void DmaSpace::Unmap(std::span<const Mapped> mapped) {
  for (const Mapped& each : mapped) {
    // What cannot be unmapped is not used again.
    if (device_.UnmapDma(each.iova, each.size).ok()) GiveBack(each.iova, each.size);
  }
}

bool DmaSpace::TakeAt(uint64_t iova, uint64_t size) {
  const uint64_t last = iova + size - 1;
  const auto range =
      std::ranges::find_if(free_, [&](const IovaRange& each) { return last <= each.last; });
  if (range == free_.end() || iova < range->first || last < iova) return false;
  const IovaRange before = {.first = range->first, .last = iova - 1};
  const IovaRange behind = {.first = last + 1, .last = range->last};
  const bool some_before = iova > range->first;
  const bool some_behind = last < range->last;
  if (some_before && some_behind) {
    *range = behind;
    free_.insert(range, before);
  } else if (some_before || some_behind) {
    *range = some_before ? before : behind;
  } else {
    free_.erase(range);
  }
  return true;
}

absl::StatusOr<uint64_t> DmaSpace::TakeLowest(uint64_t size) {
  for (const IovaRange& range : free_) {
    const uint64_t iova = range.first;
    if (range.last - range.first >= size - 1 && TakeAt(iova, size)) return iova;
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: its IOMMU has no room for %d bytes more; give the machine less memory",
                      device_.name(), size));
}

absl::StatusOr<uint64_t> DmaSpace::TakeHighest(uint64_t size) {
  for (size_t i = free_.size(); i-- > 0;) {
    const IovaRange range = free_[i];
    const uint64_t iova = range.last - size + 1;
    if (range.last - range.first >= size - 1 && TakeAt(iova, size)) return iova;
  }
  return TakeLowest(size);  // for the error
}

void DmaSpace::GiveBack(uint64_t iova, uint64_t size) {
  const MutexLock lock(mutex_);
  IovaRange given = {.first = iova, .last = iova + size - 1};
  auto behind =
      std::ranges::find_if(free_, [&](const IovaRange& each) { return each.first > given.last; });
  if (behind != free_.end() && behind->first == given.last + 1) {
    given.last = behind->last;
    behind = free_.erase(behind);
  }
  if (behind != free_.begin() && std::prev(behind)->last == given.first - 1) {
    std::prev(behind)->last = given.last;
  } else {
    free_.insert(behind, given);
  }
}

}  // namespace ringside
