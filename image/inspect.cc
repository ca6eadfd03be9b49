#include "image/inspect.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/size.h"
#include "base/status.h"
#include "image/digest.h"

namespace ringside {
namespace {

absl::StatusOr<ImageKind> KindOf(const ImageFile& file) {
  RINGSIDE_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  // An overlay has its magic number twice, and one of them may be torn.
  for (const uint64_t slot : {HeaderSlotOffset(0), HeaderSlotOffset(1)}) {
    std::array<char, 8> magic = {};
    if (size < slot + magic.size()) break;
    RINGSIDE_RETURN_IF_ERROR(file.Read(slot, std::as_writable_bytes(std::span(magic))));
    if (magic == OverlayHeader::kMagic) return ImageKind::kOverlay;
    if (slot == 0 && magic == DeltaHeader::kMagic) return ImageKind::kBackup;
  }
  return ImageKind::kRaw;
}

uint64_t BytesIn(const MapPlane& plane) {
  uint64_t blocks = 0;
  for (const uint64_t word : plane) blocks += static_cast<uint64_t>(std::popcount(word));
  return blocks * kOverlayBlock;
}

using Findings = std::vector<CheckFinding>;

// Damage, and what does not fit, are what is looked for.
bool IsFinding(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status);
}

void Add(Findings& findings, CheckFinding::Kind kind, std::string text) {
  findings.push_back({.kind = kind, .text = std::move(text)});
}

absl::Status CheckBases(const ImageCheck& options, Findings& findings, Progress& progress) {
  const Chain::Names names = {.bases = options.bases, .top = options.file};
  RINGSIDE_ASSIGN_OR_RETURN(const Chain chain, Chain::Open(names, Chain::Writes::kNothing));
  RINGSIDE_RETURN_IF_ERROR(chain.CheckTop());
  Add(findings, CheckFinding::Kind::kFine, "it stands on these bases, which have not changed");
  if (!options.digest) return absl::OkStatus();
  const BaseIdentity& base = chain.top().header().base;
  if (base.has_digest == 0) {
    Add(findings, CheckFinding::Kind::kNote, "it has no digest of its base to compare");
    return absl::OkStatus();
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      const Chain below, Chain::Open({.bases = options.bases, .top = {}}, Chain::Writes::kNothing));
  RINGSIDE_ASSIGN_OR_RETURN(const ChainRuns runs, ChainRuns::Create(below));
  RINGSIDE_ASSIGN_OR_RETURN(const OverlayDigest digest, DigestOf(runs, progress));
  if (digest != base.digest) {
    Add(findings, CheckFinding::Kind::kBad,
        "its base does not hold what it held: the digest is another");
  } else {
    Add(findings, CheckFinding::Kind::kFine, "its base's digest is the one that it has");
  }
  return absl::OkStatus();
}

void CheckFlags(const OverlayImage& overlay, Findings& findings) {
  if (const absl::Status status = overlay.CheckIsWhole(0); !status.ok()) {
    Add(findings, CheckFinding::Kind::kBad, std::string(Message(status)));
  }
  if ((overlay.header().flags & OverlayHeader::kInUse) != 0) {
    Add(findings, CheckFinding::Kind::kNote,
        "whoever had it open last was killed; nothing needs repair");
  }
}

absl::Status CheckOverlay(const ImageCheck& options, OverlayImage overlay, Findings& findings,
                          Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const BlockCounts blocks, CountBlocks(overlay));
  CheckFlags(overlay, findings);
  if (blocks.corrupt_pages > 0) {
    Add(findings, CheckFinding::Kind::kBad,
        absl::StrFormat("%d of its map's %d pages cannot be relied on", blocks.corrupt_pages,
                        blocks.pages));
  } else {
    Add(findings, CheckFinding::Kind::kFine,
        absl::StrFormat("its header and the %d pages of its map are sound: %s of data, %s of "
                        "zeroes",
                        blocks.pages, FormatSize(blocks.here_bytes),
                        FormatSize(blocks.zero_bytes)));
  }
  if (blocks.torn_pages > 0) {
    Add(findings, CheckFinding::Kind::kNote,
        absl::StrFormat("%d pages were being written when it ended; what they said before counts",
                        blocks.torn_pages));
  }
  if (options.bases.empty()) return absl::OkStatus();
  return CheckBases(options, findings, progress);
}

absl::Status CheckBackup(ImageFile file, Findings& findings, Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::Read(std::move(file)));
  RINGSIDE_ASSIGN_OR_RETURN(const DeltaFile::Contents contents, delta.Verify(progress));
  Add(findings, CheckFinding::Kind::kFine,
      absl::StrFormat("all checksums of the backup are right: %s of data, %s of zeroes",
                      FormatSize(contents.data_bytes), FormatSize(contents.zero_bytes)));
  return absl::OkStatus();
}

}  // namespace

const char* ImageKindName(ImageKind kind) {
  constexpr std::array kNames = {"raw", "overlay", "backup"};
  return kNames[static_cast<size_t>(kind)];
}

absl::StatusOr<BlockCounts> CountBlocks(const OverlayImage& overlay) {
  BlockCounts counts;
  for (auto number = overlay.NextPage(0); number.has_value();
       number = overlay.NextPage(*number + 1)) {
    const absl::StatusOr<OverlayImage::Page> page = overlay.ReadPage(*number);
    ++counts.pages;
    if (absl::IsDataLoss(page.status())) {
      ++counts.corrupt_pages;
      continue;
    }
    if (!page.ok()) return page.status();
    if (page->is_torn) ++counts.torn_pages;
    counts.here_bytes += BytesIn(page->bits.here);
    counts.zero_bytes += BytesIn(page->bits.zeroes);
    counts.dirty_bytes += BytesIn(DirtyBlocks(page->bits, overlay.header()));
  }
  return counts;
}

absl::StatusOr<ImageInfo> Inspect(const std::string& path) {
  RINGSIDE_ASSIGN_OR_RETURN(ImageFile file,
                            ImageFile::Open(path, ImageFile::Access::kLook, "image"));
  ImageInfo info;
  RINGSIDE_ASSIGN_OR_RETURN(info.file_bytes, file.Size());
  RINGSIDE_ASSIGN_OR_RETURN(info.kind, KindOf(file));
  info.bytes_on_host = file.BytesOnHost();
  info.disk_bytes = info.file_bytes;
  if (info.kind == ImageKind::kOverlay) {
    RINGSIDE_ASSIGN_OR_RETURN(const OverlayImage overlay, OverlayImage::Read(std::move(file)));
    RINGSIDE_ASSIGN_OR_RETURN(info.blocks, CountBlocks(overlay));
    info.overlay = overlay.header();
    info.disk_bytes = overlay.header().size;
  } else if (info.kind == ImageKind::kBackup) {
    RINGSIDE_ASSIGN_OR_RETURN(const DeltaFile delta, DeltaFile::Read(std::move(file)));
    info.backup = delta.header();
    info.disk_bytes = delta.disk_bytes();
  }
  return info;
}

absl::StatusOr<std::vector<CheckFinding>> CheckImage(const ImageCheck& options,
                                                     Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(ImageFile file,
                            ImageFile::Open(options.file, ImageFile::Access::kRead, "image"));
  RINGSIDE_ASSIGN_OR_RETURN(const ImageKind kind, KindOf(file));
  Findings findings;
  absl::Status status;
  if (kind == ImageKind::kBackup) {
    status = CheckBackup(std::move(file), findings, progress);
  } else if (kind == ImageKind::kRaw && options.bases.empty()) {
    Add(findings, CheckFinding::Kind::kNote, "it is a raw image, in which nothing can be checked");
  } else {
    absl::StatusOr<OverlayImage> overlay = OverlayImage::Read(std::move(file));
    status = overlay.ok() ? CheckOverlay(options, *std::move(overlay), findings, progress)
                          : overlay.status();
  }
  if (IsFinding(status)) {
    Add(findings, CheckFinding::Kind::kBad, std::string(Message(status)));
    return findings;
  }
  if (!status.ok()) return status;
  return findings;
}

}  // namespace ringside
