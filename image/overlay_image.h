// An overlay's file as the offline tools have it: its header, and its map a page at a time, so that
// no file makes them use more memory than a few pages.
//
// Threads: one at a time.
// Errors: InvalidArgument, FailedPrecondition: it is no overlay, or in use; DataLoss: it is
// damaged.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "image/image_file.h"
#include "image/run.h"
#include "overlay/map_page.h"
#include "overlay/overlay_format.h"

namespace ringside {

class OverlayImage {
 public:
  // A page of the map, with what else is known of its place.
  struct Page {
    MapPage bits;          // of the header's epoch; all zero if there is none
    unsigned slot = 1;     // that it is in, or that is void: not the one to write to
    bool is_torn = false;  // the other slot is
    bool is_there = false;
  };

  static absl::StatusOr<OverlayImage> Open(const std::string& path, ImageFile::Access access);
  static absl::StatusOr<OverlayImage> Read(ImageFile file);

  const OverlayHeader& header() const { return header_; }
  ImageFile& file() { return file_; }
  const ImageFile& file() const { return file_; }
  const std::string& name() const { return file_.name(); }

  // Pages that the disk has.
  uint64_t pages() const;
  // The first from `number` on that may hold a bit; the others are holes.
  std::optional<uint64_t> NextPage(uint64_t number) const;
  absl::StatusOr<Page> ReadPage(uint64_t number) const;
  // Writes it to the slot that does not count; the next flush makes it so.
  absl::Status WritePage(uint64_t number, Page& page);
  // The same for the header, which is flushed.
  absl::Status WriteHeader(OverlayHeader header);

  // FailedPrecondition: it is damaged, or in the middle of something that has to be finished first.
  // `despite`: flags of the header that do not matter to the caller.
  absl::Status CheckIsWhole(uint64_t despite) const;

  // To be written to: as `header` says, marked as in use and with a generation of its own.
  absl::Status BeginWriting(OverlayHeader header);
  // What was torn is mended and all is flushed; then `flags` go, and the mark with them.
  absl::Status EndWriting(uint64_t flags);

 private:
  OverlayImage(ImageFile file, const OverlayHeader& header, unsigned slot);
  absl::Status MendTornPages();

  ImageFile file_;
  OverlayHeader header_;
  unsigned slot_;
};

// Blocks of an overlay that it has itself: its data and its zeroes.
class OverlayRuns final : public RunSource {
 public:
  enum class Which {
    kAll,
    kDirty,  // those that may have changed since the last backup; without one, all
  };
  // `overlay` outlives the object.
  OverlayRuns(const OverlayImage& overlay, Which which) : overlay_(overlay), which_(which) {}
  uint64_t disk_bytes() const override { return overlay_.header().size; }
  absl::Status ForEach(const Visit& visit) const override;

 private:
  absl::Status VisitPage(uint64_t number, const MapPage& bits, const Visit& visit) const;

  const OverlayImage& overlay_;
  const Which which_;
};

// Of a page: the blocks that may have changed since the last backup.
MapPlane DirtyBlocks(const MapPage& page, const OverlayHeader& header);
inline bool HasBit(const MapPlane& plane, uint64_t block) {
  return (plane[block / 64] >> block % 64 & 1) != 0;
}
inline void SetBit(MapPlane& plane, uint64_t block, bool value) {
  const uint64_t bit = uint64_t{1} << block % 64;
  plane[block / 64] = value ? plane[block / 64] | bit : plane[block / 64] & ~bit;
}

}  // namespace ringside
