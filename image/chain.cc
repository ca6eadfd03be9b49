#include "image/chain.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/mman.h>

#include "base/host_files.h"
#include "base/status.h"
#include "overlay/overlay_file.h"
#include "overlay/overlay_header.h"

namespace ringside {

absl::StatusOr<Chain> Chain::Open(const Names& names, Writes writes) {
  if (names.bases.size() > kMostBases) {
    return BadInput("%d bases are too many: an overlay stands on %d at most", names.bases.size(),
                    kMostBases);
  }
  using Access = ImageFile::Access;
  Chain chain;
  for (const std::string& path : names.bases) {
    const bool is_last = &path == &names.bases.back();
    const Access access = is_last && writes == Writes::kTopAndBase ? Access::kWrite : Access::kRead;
    if (!chain.raw_.has_value()) {
      RINGSIDE_ASSIGN_OR_RETURN(chain.raw_, ImageFile::Open(path, access, "base"));
    } else {
      RINGSIDE_ASSIGN_OR_RETURN(OverlayImage overlay, OverlayImage::Open(path, access));
      chain.overlays_.push_back(std::move(overlay));
    }
    chain.base_path_ = path;
  }
  for (size_t i = 0; i < chain.overlays_.size(); ++i) {
    const OverlayImage& overlay = chain.overlays_[i];
    RINGSIDE_ASSIGN_OR_RETURN(const BaseIdentity below, chain.IdentityOf(i));
    RINGSIDE_RETURN_IF_ERROR(CheckBase(overlay.header(), below, overlay.name()));
  }
  if (names.top.empty()) return chain;
  const Access access = writes == Writes::kNothing ? Access::kRead : Access::kWrite;
  RINGSIDE_ASSIGN_OR_RETURN(OverlayImage top, OverlayImage::Open(names.top, access));
  chain.overlays_.push_back(std::move(top));
  chain.has_top_ = true;
  return chain;
}

absl::StatusOr<Chain> Chain::OpenToRead(const Names& names) {
  RINGSIDE_ASSIGN_OR_RETURN(Chain chain, Open(names, Writes::kNothing));
  for (const OverlayImage& overlay : chain.overlays_) {
    RINGSIDE_RETURN_IF_ERROR(overlay.CheckIsWhole(0));
  }
  RINGSIDE_RETURN_IF_ERROR(chain.CheckTop());
  return chain;
}

OverlayImage* Chain::base_overlay() {
  return bases() == 0 ? nullptr : &overlays_[bases() - 1];
}

absl::StatusOr<BaseIdentity> Chain::IdentityOf(size_t count) const {
  if (count > 0) return OverlayBaseIdentity(overlays_[count - 1].header());
  if (!raw_.has_value()) return BaseIdentity();
  RINGSIDE_ASSIGN_OR_RETURN(const uint64_t size, raw_->Size());
  return RawBaseIdentity(raw_->path(), size);
}

std::array<char, OverlayHeader::kHintBytes> Chain::BaseHint() const {
  const std::string whole = RealPath(base_path_);
  std::array<char, OverlayHeader::kHintBytes> hint = {};
  whole.copy(hint.data(), hint.size() - 1);
  return hint;
}

absl::StatusOr<BaseIdentity> Chain::Base() const {
  return IdentityOf(bases());
}

absl::Status Chain::CheckTop() const {
  RINGSIDE_ASSIGN_OR_RETURN(const BaseIdentity base, Base());
  return CheckBase(overlays_.back().header(), base, overlays_.back().name());
}

// ---- What it holds ----

absl::StatusOr<ChainRuns> ChainRuns::Create(const Chain& chain) {
  UniqueFd fd(memfd_create("ringside-edge", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoError(errno, "cannot make a file in memory");
  ImageFile scratch(std::move(fd), "memory", "file in");
  RINGSIDE_RETURN_IF_ERROR(scratch.Resize(kOverlayBlock));
  return ChainRuns(chain, std::move(scratch));
}

uint64_t ChainRuns::disk_bytes() const {
  if (!chain_.overlays_.empty()) return chain_.overlays_.back().header().size;
  return chain_.raw_.has_value() ? chain_.raw_->Size().value_or(0) : 0;
}

// Where the block's content is: in the topmost layer that has it, as far as all above it let see.
ChainRuns::Piece ChainRuns::Owner(const Pages& pages, uint64_t block) const {
  const uint64_t in_page = block % kBlocksPerMapPage;
  Piece piece = {.offset = block * kOverlayBlock,
                 .length = kOverlayBlock,
                 .layer = kRaw,
                 .visible = disk_bytes()};
  for (size_t i = pages.size(); i > 0; --i) {
    const MapPage& bits = pages[i - 1].bits;
    if (HasBit(bits.zeroes, in_page)) piece.layer = kNowhere;
    if (HasBit(bits.here, in_page)) piece.layer = static_cast<int>(i - 1);
    if (piece.layer != kRaw) break;
    piece.visible = std::min(piece.visible, chain_.overlays_[i - 1].header().base_bytes);
  }
  if (piece.layer == kRaw && !chain_.raw_.has_value()) piece.layer = kNowhere;
  return piece;
}

absl::Status ChainRuns::VisitPage(uint64_t number, Pages& pages, const Visit& visit) const {
  bool any = false;
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i] = {.bits = {}};
    if (number >= chain_.overlays_[i].pages()) continue;
    RINGSIDE_ASSIGN_OR_RETURN(pages[i], chain_.overlays_[i].ReadPage(number));
    any = any || pages[i].is_there;
  }
  const uint64_t first = number * kBlocksPerMapPage;
  const uint64_t end = std::min(OverlayBlocks(disk_bytes()), first + kBlocksPerMapPage);
  Piece piece = Owner(pages, first);
  if (!any) piece.length = (end - first) * kOverlayBlock;
  for (uint64_t block = first + 1; any && block < end; ++block) {
    const Piece next = Owner(pages, block);
    if (next.layer == piece.layer && next.visible == piece.visible) {
      piece.length += kOverlayBlock;
      continue;
    }
    RINGSIDE_RETURN_IF_ERROR(VisitPiece(piece, visit));
    piece = next;
  }
  return VisitPiece(piece, visit);
}

absl::Status ChainRuns::ForEach(const Visit& visit) const {
  Pages pages(chain_.overlays_.size());
  const uint64_t count = (disk_bytes() + kBytesPerMapPage - 1) / kBytesPerMapPage;
  for (uint64_t number = 0; number < count; ++number) {
    RINGSIDE_RETURN_IF_ERROR(VisitPage(number, pages, visit));
  }
  return absl::OkStatus();
}

absl::Status ChainRuns::VisitPiece(const Piece& piece, const Visit& visit) const {
  const uint64_t end = std::min(piece.offset + piece.length, disk_bytes());
  const uint64_t visible = piece.layer == kNowhere ? 0 : piece.visible;
  // Up to where all of a block is seen; up to where any of it is.
  const uint64_t whole =
      visible >= end ? end : std::max(visible / kOverlayBlock * kOverlayBlock, piece.offset);
  const uint64_t any = visible > whole ? std::min(whole + kOverlayBlock, end) : whole;
  if (whole > piece.offset) {
    RINGSIDE_RETURN_IF_ERROR(VisitData({.offset = piece.offset,
                                        .length = whole - piece.offset,
                                        .layer = piece.layer,
                                        .visible = visible},
                                       visit));
  }
  if (any > whole) {
    RINGSIDE_RETURN_IF_ERROR(VisitEdge(
        {.offset = whole, .length = any - whole, .layer = piece.layer, .visible = visible}, visit));
  }
  if (end > any) return visit({.offset = any, .length = end - any, .source = nullptr, .at = 0});
  return absl::OkStatus();
}

absl::Status ChainRuns::VisitData(const Piece& piece, const Visit& visit) const {
  if (piece.layer != kRaw) {
    const OverlayImage& overlay = chain_.overlays_[static_cast<size_t>(piece.layer)];
    return visit({.offset = piece.offset,
                  .length = piece.length,
                  .source = &overlay.file(),
                  .at = overlay.header().data_offset + piece.offset});
  }
  // Holes of a raw image are zeroes, too, as far as they are whole blocks.
  const uint64_t end = piece.offset + piece.length;
  for (uint64_t at = piece.offset; at < end;) {
    const ImageFile::Run run = chain_.raw_->NextRun(at, end - at);
    uint64_t length = run.length / kOverlayBlock * kOverlayBlock;
    const bool is_data = run.is_data || length == 0;
    if (is_data) length = (run.length + kOverlayBlock - 1) / kOverlayBlock * kOverlayBlock;
    length = std::min(length, end - at);
    if (run.length == end - at) length = run.length;
    RINGSIDE_RETURN_IF_ERROR(visit(
        {.offset = at, .length = length, .source = is_data ? &*chain_.raw_ : nullptr, .at = at}));
    at += length;
  }
  return absl::OkStatus();
}

absl::Status ChainRuns::VisitEdge(const Piece& piece, const Visit& visit) const {
  std::array<std::byte, kOverlayBlock> block = {};
  const auto seen = std::span(block).first(piece.visible - piece.offset);
  const bool is_raw = piece.layer == kRaw;
  const auto layer = static_cast<size_t>(is_raw ? 0 : piece.layer);
  const ImageFile& file = is_raw ? *chain_.raw_ : chain_.overlays_[layer].file();
  const uint64_t at = piece.offset + (is_raw ? 0 : chain_.overlays_[layer].header().data_offset);
  RINGSIDE_RETURN_IF_ERROR(file.Read(at, seen));
  RINGSIDE_RETURN_IF_ERROR(scratch_.Write(0, block));
  return visit({.offset = piece.offset, .length = piece.length, .source = &scratch_, .at = 0});
}

}  // namespace ringside
