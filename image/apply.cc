#include <algorithm>
#include <optional>
#include <sys/stat.h>

#include "base/status.h"
#include "image/backup.h"
#include "image/new_file.h"
#include "image/sinks.h"
#include "overlay/overlay_header.h"

namespace ringside {
namespace {

constexpr OverlayId kNoPoint = {};

absl::Status DoesNotFollow(const DeltaFile& delta, const std::string& name, const OverlayId& at) {
  const auto text = [](const OverlayId& point) {
    return point == kNoPoint ? std::string("that of its base") : OverlayIdText(point);
  };
  return absl::FailedPreconditionError(
      absl::StrFormat("%s follows point %s, and %s is at %s: apply those between them first",
                      delta.name(), text(delta.header().parent), name, text(at)));
}

// All files, verified, each following the one before.
absl::StatusOr<std::vector<DeltaFile>> OpenAll(const std::vector<std::string>& paths,
                                               Progress& progress) {
  std::vector<DeltaFile> deltas;
  for (const std::string& path : paths) {
    RINGSIDE_ASSIGN_OR_RETURN(DeltaFile delta, DeltaFile::Open(path));
    RINGSIDE_RETURN_IF_ERROR(delta.Verify(progress).status());
    if (!deltas.empty()) {
      const DeltaHeader& before = deltas.back().header();
      if (delta.header().parent != before.point) {
        return DoesNotFollow(delta, deltas.back().name(), before.point);
      }
      if (delta.disk_bytes() < before.disk_bytes) {
        return BadInput("%s is of a smaller disk than %s", delta.name(), deltas.back().name());
      }
    }
    deltas.push_back(std::move(delta));
  }
  if (deltas.empty()) return BadInput("there is no backup to apply: name its files, oldest first");
  return deltas;
}

void Count(const DeltaFile& delta, ApplyResult& result, const DeltaFile::Contents& contents) {
  result.point = delta.header().point;
  result.data_bytes += contents.data_bytes;
  result.zero_bytes += contents.zero_bytes;
  ++result.applied;
}

// Tells what is written, as it is written.
class Counted final : public RunSource {
 public:
  explicit Counted(const DeltaFile& delta) : delta_(delta) {}
  uint64_t disk_bytes() const override { return delta_.disk_bytes(); }
  absl::Status ForEach(const Visit& visit) const override {
    contents_ = {};
    return delta_.ForEach([&](const Run& run) {
      (run.source != nullptr ? contents_.data_bytes : contents_.zero_bytes) += run.length;
      return visit(run);
    });
  }
  const DeltaFile::Contents& contents() const { return contents_; }

 private:
  const DeltaFile& delta_;
  mutable DeltaFile::Contents contents_;
};

// ---- Onto a raw image ----

absl::Status CheckRaw(const DeltaFile& first, const OverlayId& onto) {
  if (first.is_full() || first.header().parent == onto) return absl::OkStatus();
  const std::string parent = OverlayIdText(first.header().parent);
  return absl::FailedPreconditionError(
      first.header().parent == kNoPoint
          ? first.name() + " begins at its base: leave out --onto, and give a copy of that"
          : absl::StrFormat("%s follows point %s: name the backups before it, too, or if the image "
                            "is at that point add --onto %s",
                            first.name(), parent, parent));
}

absl::StatusOr<ApplyResult> WriteAllToRaw(const std::vector<DeltaFile>& deltas, ImageFile& image,
                                          bool is_new, Progress& progress) {
  ApplyResult result;
  uint64_t before = deltas.front().disk_bytes();
  for (const DeltaFile& delta : deltas) {
    RINGSIDE_ASSIGN_OR_RETURN(const uint64_t size, image.Size());
    // One that was cut off may have made it as large as the last of them.
    if (size > deltas.back().disk_bytes()) {
      return BadInput("%s has %d bytes, and %s is of a disk of %d", image.name(), size,
                      deltas.back().name(), deltas.back().disk_bytes());
    }
    const uint64_t bytes = delta.disk_bytes();
    // A disk that grows has zeroes there.
    if (before < std::min(size, bytes)) {
      RINGSIDE_RETURN_IF_ERROR(image.Zero(before, std::min(size, bytes) - before));
    }
    before = bytes;
    if (size < bytes) RINGSIDE_RETURN_IF_ERROR(image.Resize(bytes));
    progress.Begin("applying", delta.disk_bytes());
    const Counted runs(delta);
    const bool is_hole = is_new && &delta == &deltas.front();
    RINGSIDE_RETURN_IF_ERROR(WriteToRaw(runs, image, is_hole, progress));
    Count(delta, result, runs.contents());
  }
  RINGSIDE_RETURN_IF_ERROR(image.Flush());
  return result;
}

absl::StatusOr<ApplyResult> ApplyToRaw(const ApplyOptions& options,
                                       const std::vector<DeltaFile>& deltas, Progress& progress) {
  RINGSIDE_RETURN_IF_ERROR(CheckRaw(deltas.front(), options.onto));
  struct stat info = {};
  if (deltas.front().is_full() && lstat(options.image.c_str(), &info) != 0) {
    RINGSIDE_ASSIGN_OR_RETURN(NewFile made, NewFile::Create(options.image, "image"));
    RINGSIDE_ASSIGN_OR_RETURN(const ApplyResult result,
                              WriteAllToRaw(deltas, made.file(), /*is_new=*/true, progress));
    RINGSIDE_RETURN_IF_ERROR(made.Publish(/*durable=*/true));
    return result;
  }
  RINGSIDE_ASSIGN_OR_RETURN(ImageFile image,
                            ImageFile::Open(options.image, ImageFile::Access::kWrite, "image"));
  image.Observe(options.observer);
  return WriteAllToRaw(deltas, image, /*is_new=*/false, progress);
}

// ---- Onto an overlay ----

class ApplyingToOverlay {
 public:
  ApplyingToOverlay(OverlayImage& overlay, const std::vector<DeltaFile>& deltas, Progress& progress)
      : overlay_(overlay), deltas_(deltas), progress_(progress) {}
  absl::StatusOr<ApplyResult> Run();

 private:
  bool is_applying() const { return (overlay_.header().flags & OverlayHeader::kApplying) != 0; }
  absl::StatusOr<size_t> FindFirst() const;
  absl::Status CheckHasNothing(OverlayRuns::Which which, const char* what) const;
  absl::Status CheckFit(std::span<const DeltaFile> deltas) const;
  absl::Status Write(const DeltaFile& delta, ApplyResult& result);

  OverlayImage& overlay_;
  const std::vector<DeltaFile>& deltas_;
  Progress& progress_;
};

absl::StatusOr<ApplyResult> ApplyingToOverlay::Run() {
  RINGSIDE_RETURN_IF_ERROR(overlay_.CheckIsWhole(OverlayHeader::kApplying));
  RINGSIDE_ASSIGN_OR_RETURN(const size_t first, FindFirst());
  const std::span deltas = std::span(deltas_).subspan(first);
  RINGSIDE_RETURN_IF_ERROR(CheckFit(deltas));
  ApplyResult result = {.point = overlay_.header().point};
  for (const DeltaFile& delta : deltas) {
    RINGSIDE_RETURN_IF_ERROR(Write(delta, result));
  }
  return result;
}

absl::Status ApplyingToOverlay::CheckHasNothing(OverlayRuns::Which which, const char* what) const {
  return OverlayRuns(overlay_, which).ForEach([&](const ringside::Run&) {
    return absl::FailedPreconditionError(absl::StrFormat("%s %s", overlay_.name(), what));
  });
}

// The first file that the overlay does not have yet, whole.
absl::StatusOr<size_t> ApplyingToOverlay::FindFirst() const {
  const OverlayHeader& header = overlay_.header();
  const auto same = std::ranges::find_if(
      deltas_, [&](const DeltaFile& delta) { return delta.header().point == header.point; });
  const auto index = static_cast<size_t>(same - deltas_.begin());
  if (is_applying()) {
    if (same != deltas_.end()) return index;
    return absl::FailedPreconditionError(
        absl::StrFormat("%s has a part of the backup with point %s: apply that again",
                        overlay_.name(), OverlayIdText(header.point)));
  }
  constexpr char kWritten[] = "was written to since its point: backups do not fit it any more";
  if (same != deltas_.end()) {
    RINGSIDE_RETURN_IF_ERROR(CheckHasNothing(OverlayRuns::Which::kDirty, kWritten));
    return index + 1;
  }
  const DeltaFile& first = deltas_.front();
  if (first.header().parent != kNoPoint) {
    if (first.header().parent != header.point) {
      return DoesNotFollow(first, overlay_.name(), header.point);
    }
    RINGSIDE_RETURN_IF_ERROR(CheckHasNothing(OverlayRuns::Which::kDirty, kWritten));
    return 0;
  }
  if (header.point != kNoPoint) return DoesNotFollow(first, overlay_.name(), header.point);
  RINGSIDE_RETURN_IF_ERROR(CheckHasNothing(
      OverlayRuns::Which::kAll, "was written to: a first backup goes onto a new overlay"));
  if (!first.is_full() && !IsSameBase(first.header().base, header.base)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is of an overlay on another base than %s", first.name(), overlay_.name()));
  }
  return 0;
}

absl::Status ApplyingToOverlay::CheckFit(std::span<const DeltaFile> deltas) const {
  const OverlayHeader& header = overlay_.header();
  if (deltas.empty() || (deltas.front().disk_bytes() >= header.size &&
                         deltas.back().disk_bytes() <= header.capacity)) {
    return absl::OkStatus();
  }
  return BadInput("%s has %d bytes and room for %d, and the backups are of a disk of %d",
                  overlay_.name(), header.size, header.capacity, deltas.back().disk_bytes());
}

absl::Status ApplyingToOverlay::Write(const DeltaFile& delta, ApplyResult& result) {
  OverlayHeader header = overlay_.header();
  if (!is_applying()) header.previous_point = header.point;
  header.point = delta.header().point;
  header.flags |= OverlayHeader::kApplying;
  header.period = std::max(header.period, 1U);  // dirty is what is written from now on
  if (delta.disk_bytes() > header.size) {
    header.size = delta.disk_bytes();
    RINGSIDE_RETURN_IF_ERROR(
        overlay_.file().Resize(OverlayFileBytes(header.data_offset, header.size)));
  }
  RINGSIDE_RETURN_IF_ERROR(overlay_.BeginWriting(header));
  progress_.Begin("applying", delta.disk_bytes());
  const Counted runs(delta);
  RINGSIDE_RETURN_IF_ERROR(WriteToOverlay(runs, overlay_, /*dirty=*/false, progress_));
  RINGSIDE_RETURN_IF_ERROR(overlay_.EndWriting(OverlayHeader::kApplying));
  Count(delta, result, runs.contents());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ApplyResult> Apply(const ApplyOptions& options, Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<DeltaFile> deltas, OpenAll(options.deltas, progress));
  if (options.bases.empty()) return ApplyToRaw(options, deltas, progress);
  if (options.onto != kNoPoint) {
    return BadInput("--onto is for raw images: an overlay knows its point");
  }
  RINGSIDE_ASSIGN_OR_RETURN(Chain chain, Chain::Open({.bases = options.bases, .top = options.image},
                                                     Chain::Writes::kTop));
  RINGSIDE_RETURN_IF_ERROR(chain.CheckTop());
  chain.top().file().Observe(options.observer);
  return ApplyingToOverlay(chain.top(), deltas, progress).Run();
}

}  // namespace ringside
