// An overlay with all that it stands on, as `--base` and FILE name it; and what a disk of it holds.
//
// Threads: one at a time. Errors: as of ImageFile and OverlayImage; FailedPrecondition, too: a base
// is not the one that an overlay was made on.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "image/overlay_image.h"
#include "image/run.h"

namespace ringside {

class Chain {
 public:
  static constexpr size_t kMostBases = 16;

  // Bottom first: a raw image, then overlays. Those below the last one stand on each other.
  struct Names {
    std::vector<std::string> bases;
    std::string top;  // an overlay; empty: the bases alone
  };
  // Which are opened for writing; all others are opened to be read.
  enum class Writes { kNothing, kTop, kTopAndBase };

  // Whether the top stands on these bases is for the caller to ask (CheckTop).
  static absl::StatusOr<Chain> Open(const Names& names, Writes writes);
  // With all of that asked, of a top that is whole.
  static absl::StatusOr<Chain> OpenToRead(const Names& names);

  OverlayImage& top() { return overlays_.back(); }
  const OverlayImage& top() const { return overlays_.back(); }
  // What stands right below the top: an overlay, or if that is null the raw image; neither, of a
  // top that stands on nothing.
  OverlayImage* base_overlay();
  ImageFile* raw() { return raw_.has_value() ? &*raw_ : nullptr; }
  const std::string& base_path() const { return base_path_; }
  // For headers: its whole path, as far as there is room for it.
  std::array<char, OverlayHeader::kHintBytes> BaseHint() const;
  // What stands right below the top is now.
  absl::StatusOr<BaseIdentity> Base() const;
  absl::Status CheckTop() const;

 private:
  friend class ChainRuns;

  // The first `count` layers' top, as a base.
  absl::StatusOr<BaseIdentity> IdentityOf(size_t count) const;
  size_t bases() const { return overlays_.size() - (has_top_ ? 1 : 0); }  // that are overlays

  std::optional<ImageFile> raw_;
  std::vector<OverlayImage> overlays_;  // bottom first
  std::string base_path_;
  bool has_top_ = false;
};

// All of the disk that a chain is: its data, and zeroes for all else.
class ChainRuns final : public RunSource {
 public:
  // `chain` outlives the object.
  static absl::StatusOr<ChainRuns> Create(const Chain& chain);
  uint64_t disk_bytes() const override;
  absl::Status ForEach(const Visit& visit) const override;

 private:
  struct Piece {
    uint64_t offset;
    uint64_t length;
    int layer;         // of the overlays; kRaw, kNowhere
    uint64_t visible;  // of the disk, what can be seen of that layer
  };
  static constexpr int kRaw = -1;
  static constexpr int kNowhere = -2;

  ChainRuns(const Chain& chain, ImageFile scratch) : chain_(chain), scratch_(std::move(scratch)) {}
  using Pages = std::vector<OverlayImage::Page>;  // of each overlay, one
  Piece Owner(const Pages& pages, uint64_t block) const;
  absl::Status VisitPage(uint64_t number, Pages& pages, const Visit& visit) const;
  absl::Status VisitPiece(const Piece& piece, const Visit& visit) const;
  absl::Status VisitData(const Piece& piece, const Visit& visit) const;
  absl::Status VisitEdge(const Piece& piece, const Visit& visit) const;

  const Chain& chain_;
  // For the block in which a base ends: data, and zeroes behind it.
  mutable ImageFile scratch_;
};

}  // namespace ringside
