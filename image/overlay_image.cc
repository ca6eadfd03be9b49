#include "image/overlay_image.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/status.h"
#include "overlay/overlay_header.h"

namespace ringside {
namespace {

template <typename Slot>
std::span<std::byte> BytesOf(std::array<Slot, 2>& slots) {
  return std::as_writable_bytes(std::span(slots));
}

template <typename Slot>
std::span<const std::byte> BytesOf(const Slot& slot) {
  return std::as_bytes(std::span(&slot, 1));
}

}  // namespace

absl::StatusOr<OverlayImage> OverlayImage::Open(const std::string& path, ImageFile::Access access) {
  RINGSIDE_ASSIGN_OR_RETURN(ImageFile file, ImageFile::Open(path, access, "overlay"));
  return Read(std::move(file));
}

absl::StatusOr<OverlayImage> OverlayImage::Read(ImageFile file) {
  std::array<OverlayHeader, 2> slots;
  RINGSIDE_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  if (size < sizeof slots) {
    return BadInput("%s has %d bytes and is no overlay; name one", file.name(), size);
  }
  RINGSIDE_RETURN_IF_ERROR(file.Read(0, BytesOf(slots)));
  RINGSIDE_ASSIGN_OR_RETURN(const ChosenHeader chosen, ChooseHeader(slots, file.name()));
  const uint64_t whole = OverlayFileBytes(chosen.header.data_offset, chosen.header.size);
  if (size < whole) {
    return absl::DataLossError(
        absl::StrFormat("%s was cut short: it has %d bytes of %d", file.name(), size, whole));
  }
  return OverlayImage(std::move(file), chosen.header, chosen.slot);
}

OverlayImage::OverlayImage(ImageFile file, const OverlayHeader& header, unsigned slot)
    : file_(std::move(file)), header_(header), slot_(slot) {}

uint64_t OverlayImage::pages() const {
  return (header_.size + kBytesPerMapPage - 1) / kBytesPerMapPage;
}

std::optional<uint64_t> OverlayImage::NextPage(uint64_t number) const {
  if (number >= pages()) return std::nullopt;
  const uint64_t offset = PageSlotOffset(number, 0);
  const uint64_t end = PageSlotOffset(pages(), 0);
  const ImageFile::Run run = file_.NextRun(offset, end - offset);
  if (run.is_data) return number;
  if (offset + run.length >= end) return std::nullopt;
  return (offset + run.length - kOverlayMapOffset) / (2 * kOverlaySlotBytes);
}

absl::StatusOr<OverlayImage::Page> OverlayImage::ReadPage(uint64_t number) const {
  std::array<MapPage, 2> slots;
  RINGSIDE_RETURN_IF_ERROR(file_.Read(PageSlotOffset(number, 0), BytesOf(slots)));
  const ChosenPage chosen = ChoosePage(slots, number, PageRules(header_));
  if (chosen.is_corrupt) {
    return absl::DataLossError(absl::StrFormat(
        "%s is damaged: page %d of its map (disk bytes %d to %d) cannot be relied on", name(),
        number, number * kBytesPerMapPage,
        std::min((number + 1) * kBytesPerMapPage, header_.size) - 1));
  }
  Page page = {.bits = {}, .is_torn = chosen.is_torn, .is_there = chosen.slot.has_value()};
  if (chosen.slot.has_value()) {
    page.slot = *chosen.slot;
    page.bits = slots[page.slot];
  } else if (chosen.is_torn) {
    // Beside a slot that was never written, the first is the torn one or it is not.
    const ChosenPage first =
        ChoosePage({slots[0], MapPage{.magic = {}}}, number, PageRules(header_));
    page.slot = first.is_torn ? 1 : 0;
  }
  return page;
}

absl::Status OverlayImage::WritePage(uint64_t number, Page& page) {
  page.bits.magic = MapPage::kMagic;
  page.bits.number = number;
  page.bits.epoch = header_.epoch;
  page.bits.period = header_.period;
  ++page.bits.sequence;
  SealPage(page.bits);
  page.slot ^= 1;
  RINGSIDE_RETURN_IF_ERROR(file_.Write(PageSlotOffset(number, page.slot), BytesOf(page.bits)));
  page.is_torn = false;
  page.is_there = true;
  return absl::OkStatus();
}

absl::Status OverlayImage::WriteHeader(OverlayHeader header) {
  // The slot that counts is durable before the other one is written over: who wrote it last may not
  // have flushed it.
  RINGSIDE_RETURN_IF_ERROR(file_.Flush());
  header.sequence = header_.sequence + 1;
  header.autoclear = 0;  // of features that this version does not know
  SealHeader(header);
  RINGSIDE_RETURN_IF_ERROR(file_.Write(HeaderSlotOffset(slot_ ^ 1), BytesOf(header)));
  RINGSIDE_RETURN_IF_ERROR(file_.Flush());
  header_ = header;
  slot_ ^= 1;
  return absl::OkStatus();
}

absl::Status OverlayImage::CheckIsWhole(uint64_t despite) const {
  const uint64_t flags = header_.flags & ~despite;
  const auto refused = [&](const char* why) {
    return absl::FailedPreconditionError(absl::StrFormat("%s %s", name(), why));
  };
  if ((flags & OverlayHeader::kCorrupt) != 0) {
    return refused("was found to be damaged; 'ringside image check' says where");
  }
  if ((flags & OverlayHeader::kCommitting) != 0) {
    return refused("is being written into its base: finish that with 'ringside image commit'");
  }
  if ((flags & OverlayHeader::kApplying) != 0) {
    return refused("has a part of a backup only: finish that with 'ringside image apply'");
  }
  return absl::OkStatus();
}

absl::Status OverlayImage::BeginWriting(OverlayHeader header) {
  header.flags |= OverlayHeader::kInUse;
  RINGSIDE_ASSIGN_OR_RETURN(header.generation, NewOverlayId());
  return WriteHeader(header);
}

absl::Status OverlayImage::MendTornPages() {
  for (auto number = NextPage(0); number.has_value(); number = NextPage(*number + 1)) {
    RINGSIDE_ASSIGN_OR_RETURN(Page page, ReadPage(*number));
    if (page.is_torn) RINGSIDE_RETURN_IF_ERROR(WritePage(*number, page));
  }
  return absl::OkStatus();
}

absl::Status OverlayImage::EndWriting(uint64_t flags) {
  RINGSIDE_RETURN_IF_ERROR(MendTornPages());
  RINGSIDE_RETURN_IF_ERROR(file_.Flush());
  OverlayHeader header = header_;
  header.flags &= ~(flags | OverlayHeader::kInUse);
  return WriteHeader(header);
}

MapPlane DirtyBlocks(const MapPage& page, const OverlayHeader& header) {
  MapPlane dirty = {};
  if (header.period != 0 && page.period != header.period) return dirty;
  for (size_t i = 0; i < dirty.size(); ++i) {
    const uint64_t region = i * 64 / kBlocksPerIntent;
    const bool all = header.period == 0 || (page.intents >> region & 1) != 0;
    const uint64_t there = page.here[i] | page.zeroes[i];
    dirty[i] = all ? there : page.dirty[i] & there;
  }
  return dirty;
}

absl::Status OverlayRuns::VisitPage(uint64_t number, const MapPage& bits,
                                    const Visit& visit) const {
  const OverlayHeader& header = overlay_.header();
  const uint64_t first = number * kBlocksPerMapPage;
  const uint64_t end = std::min(OverlayBlocks(header.size) - first, kBlocksPerMapPage);
  MapPlane wanted = DirtyBlocks(bits, header);
  if (which_ == Which::kAll) {
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = bits.here[i] | bits.zeroes[i];
  }
  uint64_t block = 0;
  while (block < end) {
    if (wanted[block / 64] == 0) {
      block = (block / 64 + 1) * 64;
      continue;
    }
    if (!HasBit(wanted, block)) {
      ++block;
      continue;
    }
    const bool is_data = HasBit(bits.here, block);
    const uint64_t begin = block;
    while (block < end && HasBit(wanted, block) && HasBit(bits.here, block) == is_data) ++block;
    const uint64_t offset = (first + begin) * kOverlayBlock;
    RINGSIDE_RETURN_IF_ERROR(
        visit({.offset = offset,
               .length = std::min((first + block) * kOverlayBlock, header.size) - offset,
               .source = is_data ? &overlay_.file() : nullptr,
               .at = header.data_offset + offset}));
  }
  return absl::OkStatus();
}

absl::Status OverlayRuns::ForEach(const Visit& visit) const {
  for (auto number = overlay_.NextPage(0); number.has_value();
       number = overlay_.NextPage(*number + 1)) {
    RINGSIDE_ASSIGN_OR_RETURN(const OverlayImage::Page page, overlay_.ReadPage(*number));
    RINGSIDE_RETURN_IF_ERROR(VisitPage(*number, page.bits, visit));
  }
  return absl::OkStatus();
}

}  // namespace ringside
