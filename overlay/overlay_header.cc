#include "overlay/overlay_header.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/time/time.h"
#include "base/crc32c.h"
#include "base/random.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr uint64_t MapEnd(uint64_t capacity) {
  return PageSlotOffset(capacity / kBytesPerMapPage, 0);
}

// Nothing beyond: the offsets of its blocks stay in a file's range, and its map in memory's.
constexpr uint64_t kMostDataOffset = RoundUp(MapEnd(kMostOverlayBytes), kOverlayDataAlignment);

uint32_t CrcOf(const OverlayHeader& header) {
  return Crc32c(std::as_bytes(std::span(&header, 1)).first(offsetof(OverlayHeader, crc)));
}

bool IsWhole(const OverlayHeader& header) {
  return header.magic == OverlayHeader::kMagic && header.crc == CrcOf(header);
}

absl::Status Nonsense(const std::string& name, const char* what, uint64_t value) {
  return BadInput("%s is damaged or was not made by Ringside: its header has %s %d", name, what,
                  value);
}

absl::Status CheckShape(const OverlayHeader& header, const std::string& name) {
  if (header.size == 0 || header.size % 512 != 0 || header.size > kMostOverlayBytes) {
    return Nonsense(name, "a disk size of", header.size);
  }
  if (header.capacity < header.size || header.capacity > kMostOverlayBytes ||
      header.capacity % kBytesPerMapPage != 0) {
    return Nonsense(name, "a capacity of", header.capacity);
  }
  if (header.data_offset < MapEnd(header.capacity) || header.data_offset > kMostDataOffset ||
      header.data_offset % kOverlayDataAlignment != 0) {
    return Nonsense(name, "a data offset of", header.data_offset);
  }
  if (header.base.kind > BaseKind::kOverlay) {
    return Nonsense(name, "a base of kind", static_cast<uint32_t>(header.base.kind));
  }
  if (header.base_bytes > header.base.size) return Nonsense(name, "a base of", header.base_bytes);
  if (header.base_hint.back() != 0)
    return Nonsense(name, "a base's path of", header.base_hint.size());
  return absl::OkStatus();
}

absl::Status CheckVersion(const OverlayHeader& header, const std::string& name) {
  if (header.version != OverlayHeader::kVersion || header.bytes != kOverlaySlotBytes) {
    return BadInput(
        "%s has version %d of the format, and this Ringside knows version %d: use a "
        "newer one",
        name, header.version, OverlayHeader::kVersion);
  }
  if (const uint64_t unknown = header.incompatible & ~kKnownIncompatible; unknown != 0) {
    return BadInput("%s needs features that this Ringside does not have (0x%x): use a newer one",
                    name, unknown);
  }
  return absl::OkStatus();
}

std::string TimeText(int64_t ns) {
  return absl::FormatTime(absl::RFC3339_full, absl::FromUnixNanos(ns), absl::UTCTimeZone());
}

const char* KindText(BaseKind kind) {
  constexpr std::array kTexts = {"nothing", "a raw image", "an overlay"};
  return kTexts[static_cast<uint32_t>(kind)];
}

}  // namespace

absl::StatusOr<OverlayId> NewOverlayId() {
  OverlayId id;
  RINGSIDE_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(id))));
  return id;
}

std::string OverlayIdText(const OverlayId& id) {
  std::string text;
  for (const uint8_t byte : id) text += absl::StrFormat("%02x", byte);
  return text;
}

absl::StatusOr<OverlayHeader> NewOverlayHeader(uint64_t size, const BaseIdentity& base,
                                               const std::string& base_hint, uint64_t capacity) {
  if (size == 0 || size % 512 != 0 || size > kMostOverlayBytes) {
    return BadInput("an overlay of %d bytes is out of range: give a multiple of 512, up to %d",
                    size, kMostOverlayBytes);
  }
  const uint64_t usual = std::min(std::max(2 * size, kLeastOverlayCapacity), kMostOverlayBytes);
  OverlayHeader header;
  header.sequence = 1;
  RINGSIDE_ASSIGN_OR_RETURN(header.id, NewOverlayId());
  RINGSIDE_ASSIGN_OR_RETURN(header.generation, NewOverlayId());
  header.size = size;
  header.capacity = RoundUp(std::clamp(capacity == 0 ? usual : capacity, size, kMostOverlayBytes),
                            kBytesPerMapPage);
  header.data_offset = RoundUp(MapEnd(header.capacity), kOverlayDataAlignment);
  header.base = base;
  header.base_bytes = std::min(size, base.size);
  const size_t length = std::min(base_hint.size(), header.base_hint.size() - 1);
  std::memcpy(header.base_hint.data(), base_hint.data(), length);
  return header;
}

void SealHeader(OverlayHeader& header) {
  header.crc = CrcOf(header);
}

absl::StatusOr<ChosenHeader> ChooseHeader(const std::array<OverlayHeader, 2>& slots,
                                          const std::string& name) {
  const std::array whole = {IsWhole(slots[0]), IsWhole(slots[1])};
  if (!whole[0] && !whole[1]) {
    const bool is_ours =
        slots[0].magic == OverlayHeader::kMagic || slots[1].magic == OverlayHeader::kMagic;
    if (!is_ours) {
      return BadInput("%s is not an overlay; name one, or a file that is not there yet", name);
    }
    return absl::DataLossError(absl::StrFormat(
        "%s has no valid header; if the power failed before anything on it was flushed, delete it",
        name));
  }
  if (whole[0] && whole[1] && slots[0].sequence == slots[1].sequence) {
    return absl::DataLossError(
        absl::StrFormat("%s is damaged: two headers say that they are the newest", name));
  }
  unsigned slot = whole[0] ? 0 : 1;
  if (whole[0] && whole[1] && slots[1].sequence > slots[0].sequence) slot = 1;
  const OverlayHeader& header = slots[slot];
  RINGSIDE_RETURN_IF_ERROR(CheckVersion(header, name));
  RINGSIDE_RETURN_IF_ERROR(CheckShape(header, name));
  return ChosenHeader{.header = header, .slot = slot};
}

bool IsSameBase(const BaseIdentity& a, const BaseIdentity& b) {
  if (a.has_digest != 0 && b.has_digest != 0) return a.size == b.size && a.digest == b.digest;
  return a.kind == b.kind && a.size == b.size && a.modified_ns == b.modified_ns && a.id == b.id &&
         a.generation == b.generation;
}

absl::Status CheckBase(const OverlayHeader& header, const BaseIdentity& base,
                       const std::string& name) {
  constexpr char kRemedy[] = "give that back, or use 'ringside image rebase'";
  const BaseIdentity& then = header.base;
  if (base.kind != then.kind) {
    return absl::FailedPreconditionError(absl::StrFormat("%s stands on %s, and this base is %s: %s",
                                                         name, KindText(then.kind),
                                                         KindText(base.kind), kRemedy));
  }
  if (base.size != then.size) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s stands on a base of %d bytes, and this one has %d: %s", name, then.size,
                        base.size, kRemedy));
  }
  if (base.id != then.id) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s stands on overlay %s, and this base is %s: %s", name,
                        OverlayIdText(then.id), OverlayIdText(base.id), kRemedy));
  }
  if (base.generation != then.generation) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s stands on an overlay that has been written since: %s", name, kRemedy));
  }
  if (base.modified_ns != then.modified_ns) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s stands on a base that was last changed at %s, and this one at %s: %s",
                        name, TimeText(then.modified_ns), TimeText(base.modified_ns), kRemedy));
  }
  return absl::OkStatus();
}

}  // namespace ringside
