#include "image/sinks.h"

#include <algorithm>
#include <optional>

#include "base/status.h"

namespace ringside {
namespace {

// So many bytes are copied before the progress is shown.
constexpr uint64_t kStep = uint64_t{16} << 20;

absl::Status CopyRun(const Run& run, ImageFile& target, uint64_t to, Progress& progress) {
  for (uint64_t done = 0; done < run.length;) {
    const uint64_t step = std::min(kStep, run.length - done);
    RINGSIDE_RETURN_IF_ERROR(target.CopyFrom(*run.source, run.at + done, to + done, step));
    done += step;
    progress.At(run.offset + done);
  }
  return absl::OkStatus();
}

// Changes pages of an overlay's map one after the other, each written when the next is begun.
class PageWriter {
 public:
  explicit PageWriter(OverlayImage& overlay) : overlay_(overlay) {}

  // The blocks of a run are data here, or zeroes.
  absl::Status Mark(const Run& run, bool dirty) {
    const uint64_t end = OverlayBlocks(run.offset + run.length);
    for (uint64_t block = run.offset / kOverlayBlock; block < end; ++block) {
      RINGSIDE_RETURN_IF_ERROR(GoTo(block / kBlocksPerMapPage));
      const uint64_t in_page = block % kBlocksPerMapPage;
      SetBit(page_.bits.here, in_page, run.source != nullptr);
      SetBit(page_.bits.zeroes, in_page, run.source == nullptr);
      if (dirty) SetBit(page_.bits.dirty, in_page, true);
    }
    return absl::OkStatus();
  }

  // The last page, too, is written.
  absl::Status Finish() {
    return number_.has_value() ? overlay_.WritePage(*number_, page_) : absl::OkStatus();
  }

 private:
  absl::Status GoTo(uint64_t number) {
    if (number_ == number) return absl::OkStatus();
    if (number_.has_value()) RINGSIDE_RETURN_IF_ERROR(overlay_.WritePage(*number_, page_));
    number_.reset();
    RINGSIDE_ASSIGN_OR_RETURN(page_, overlay_.ReadPage(number));
    // What a former backup followed is over.
    if (page_.bits.period != overlay_.header().period) {
      page_.bits.dirty = {};
      page_.bits.intents = 0;
    }
    number_ = number;
    return absl::OkStatus();
  }

  OverlayImage& overlay_;
  std::optional<uint64_t> number_;
  OverlayImage::Page page_;
};

}  // namespace

absl::Status WriteToRaw(const RunSource& runs, ImageFile& image, bool is_new, Progress& progress) {
  return runs.ForEach([&](const Run& run) -> absl::Status {
    progress.At(run.offset);
    if (run.source != nullptr) return CopyRun(run, image, run.offset, progress);
    return is_new ? absl::OkStatus() : image.Zero(run.offset, run.length);
  });
}

absl::Status WriteToOverlay(const RunSource& runs, OverlayImage& overlay, bool dirty,
                            Progress& progress) {
  const uint64_t data_offset = overlay.header().data_offset;
  RINGSIDE_RETURN_IF_ERROR(runs.ForEach([&](const Run& run) {
    progress.At(run.offset);
    return run.source == nullptr ? absl::OkStatus()
                                 : CopyRun(run, overlay.file(), data_offset + run.offset, progress);
  }));
  PageWriter pages(overlay);
  RINGSIDE_RETURN_IF_ERROR(runs.ForEach([&](const Run& run) { return pages.Mark(run, dirty); }));
  RINGSIDE_RETURN_IF_ERROR(pages.Finish());
  return runs.ForEach([&](const Run& run) {
    return run.source != nullptr
               ? absl::OkStatus()
               : overlay.file().Discard(data_offset + run.offset,
                                        OverlayBlocks(run.length) * kOverlayBlock);
  });
}

}  // namespace ringside
