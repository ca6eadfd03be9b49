#include "devices/assigned_bar.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/pages.h"
#include "base/status.h"

namespace ringside {
namespace {

// Of an access, up to the largest piece at `offset` that is aligned to its own size: what a device
// understands whatever the guest does.
size_t PieceSize(uint64_t offset, size_t left) {
  size_t size = 8;
  while (size > left || offset % size != 0) size /= 2;
  return size;
}

}  // namespace

AssignedBar::AssignedBar(PciDevice& device, int index, std::vector<Overlay> overlays,
                         DeviceMemory& memory, Logger log)
    : device_(device),
      index_(index),
      size_(device.bar(index).size),
      overlays_(std::move(overlays)),
      memory_(memory),
      log_(log) {
  for (const MappableArea& area : device.bar(index).mappable) MapArea(area);
}

uint64_t AssignedBar::GuestSize(uint64_t size) {
  return std::bit_ceil(std::max(size, kPageSize));
}

void AssignedBar::MapArea(const MappableArea& area) {
  if (area.offset >= size_) return;
  const uint64_t end = PageDown(area.offset + std::min(area.size, size_ - area.offset));
  uint64_t start = PageUp(area.offset);
  while (start < end) {
    // The first overlay that is not all in front of `start`.
    const Overlay* next = nullptr;
    for (const Overlay& overlay : overlays_) {
      if (PageUp(overlay.offset + overlay.size) <= start) continue;
      if (next == nullptr || overlay.offset < next->offset) next = &overlay;
    }
    const uint64_t stop = next == nullptr ? end : std::min(end, PageDown(next->offset));
    if (stop > start) AddPart(start, stop - start);
    if (next == nullptr) return;
    start = std::max(start, PageUp(next->offset + next->size));
  }
}

void AssignedBar::AddPart(uint64_t offset, uint64_t size) {
  absl::StatusOr<std::byte*> host = device_.MapBar(index_, offset, size);
  const bool is_page = host.ok() && reinterpret_cast<uintptr_t>(*host) % kPageSize == 0;
  if (is_page) {
    parts_.push_back({.offset = offset, .size = size, .host = *host});
    return;
  }
  SaySlow(host.ok() ? "it begins within a page" : Message(host.status()));
}

void AssignedBar::SaySlow(std::string_view why) const {
  log_.Log(Severity::kWarning, "%s: BAR %d is slow, each access to it leaves the guest: %s",
           device_.name(), index_, why);
}

void AssignedBar::Map(uint64_t address) {
  for (const Part& part : parts_) {
    const absl::Status added = memory_.Add(address + part.offset, part.host, part.size);
    if (added.ok()) {
      mapped_.push_back(address + part.offset);
    } else if (!std::exchange(said_slow_, true)) {
      SaySlow(Message(added));
    }
  }
}

void AssignedBar::Unmap() {
  for (const uint64_t address : mapped_) memory_.Remove(address);
  mapped_.clear();
}

const AssignedBar::Overlay* AssignedBar::FindOverlay(uint64_t offset) const {
  const auto found = std::ranges::find_if(overlays_, [offset](const Overlay& overlay) {
    return offset >= overlay.offset && offset - overlay.offset < overlay.size;
  });
  return found == overlays_.end() ? nullptr : &*found;
}

void AssignedBar::Read(uint64_t offset, std::span<std::byte> data) {
  exits_.fetch_add(1, std::memory_order_relaxed);
  while (!data.empty()) {
    const size_t size = PieceSize(offset, data.size());
    ReadPiece(offset, data.first(size));
    offset += size;
    data = data.subspan(size);
  }
}

void AssignedBar::Write(uint64_t offset, std::span<const std::byte> data) {
  exits_.fetch_add(1, std::memory_order_relaxed);
  while (!data.empty()) {
    const size_t size = PieceSize(offset, data.size());
    WritePiece(offset, data.first(size));
    offset += size;
    data = data.subspan(size);
  }
}

void AssignedBar::ReadPiece(uint64_t offset, std::span<std::byte> data) {
  if (const Overlay* overlay = FindOverlay(offset)) {
    overlay->handler->Read(offset - overlay->offset, data);
  } else if (offset < size_) {
    device_.ReadRegisters(index_, offset, data);
  } else {
    std::ranges::fill(data, std::byte{0xff});  // the rest of the page of a small BAR
  }
}

void AssignedBar::WritePiece(uint64_t offset, std::span<const std::byte> data) {
  if (const Overlay* overlay = FindOverlay(offset)) {
    overlay->handler->Write(offset - overlay->offset, data);
  } else if (offset < size_) {
    device_.WriteRegisters(index_, offset, data);
  }
}

}  // namespace ringside
