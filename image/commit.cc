#include "image/commit.h"

#include <algorithm>

#include "base/status.h"
#include "image/new_file.h"
#include "image/sinks.h"

namespace ringside {
namespace {

// One overlay on its way into its base.
class Committing {
 public:
  Committing(Chain& chain, Progress& progress)
      : chain_(chain),
        top_(chain.top()),
        base_overlay_(chain.base_overlay()),
        was_begun_((top_.header().flags & OverlayHeader::kCommitting) != 0),
        progress_(progress) {}
  absl::StatusOr<CommitResult> Run();

 private:
  absl::Status Check() const;
  absl::Status CheckGoesOn() const;
  absl::Status Begin();
  absl::Status GrowOrCancel();
  absl::Status Grow();
  absl::Status WriteBase();
  absl::Status End();

  Chain& chain_;
  OverlayImage& top_;
  OverlayImage* const base_overlay_;
  const bool was_begun_;
  Progress& progress_;
};

absl::StatusOr<CommitResult> Committing::Run() {
  RINGSIDE_RETURN_IF_ERROR(Check());
  CommitResult result = {.was_resumed = was_begun_};
  // Before anything is written, so that a damaged map changes nothing.
  const OverlayRuns runs(top_, OverlayRuns::Which::kAll);
  RINGSIDE_RETURN_IF_ERROR(runs.ForEach([&](const ringside::Run& run) {
    (run.source != nullptr ? result.data_bytes : result.zero_bytes) += run.length;
    return absl::OkStatus();
  }));
  RINGSIDE_RETURN_IF_ERROR(Begin());
  RINGSIDE_RETURN_IF_ERROR(GrowOrCancel());
  RINGSIDE_RETURN_IF_ERROR(WriteBase());
  RINGSIDE_RETURN_IF_ERROR(End());
  return result;
}

absl::Status Committing::Check() const {
  if (chain_.raw() == nullptr) return BadInput("commit needs the overlay's base: give --base");
  RINGSIDE_RETURN_IF_ERROR(top_.CheckIsWhole(OverlayHeader::kCommitting));
  if (base_overlay_ != nullptr) RINGSIDE_RETURN_IF_ERROR(base_overlay_->CheckIsWhole(0));
  if (was_begun_) return CheckGoesOn();
  const OverlayHeader& header = top_.header();
  if (header.base_bytes < std::min(header.size, header.base.size)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s hides what its base has from byte %d on; use 'ringside image flatten' instead",
        top_.name(), header.base_bytes));
  }
  if (base_overlay_ != nullptr && header.size % kOverlayBlock != 0 &&
      header.size < base_overlay_->header().size) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s ends at %d, in the middle of a block that %s has more of; use 'ringside image flatten' "
        "instead",
        top_.name(), header.size, base_overlay_->name()));
  }
  return chain_.CheckTop();
}

// The base has changed, by the commit that was cut off. It has to be that base all the same.
absl::Status Committing::CheckGoesOn() const {
  const OverlayHeader& header = top_.header();
  RINGSIDE_ASSIGN_OR_RETURN(const BaseIdentity base, chain_.Base());
  const bool is_same = base.kind == header.base.kind && base.id == header.base.id &&
                       (base.size == header.base.size || base.size == header.size);
  if (is_same && (base.kind == BaseKind::kOverlay || chain_.BaseHint() == header.base_hint)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrFormat(
      "%s is being written into '%s', and '%s' is another: give that, or if it was moved use "
      "'ringside image rebase --unsafe'",
      top_.name(), header.base_hint.data(), chain_.base_path()));
}

absl::Status Committing::Begin() {
  OverlayHeader header = top_.header();
  header.flags |= OverlayHeader::kCommitting;
  header.base_hint = chain_.BaseHint();  // for CheckGoesOn
  return top_.BeginWriting(header);
}

// After the mark: until it is there nobody may find that the base has grown. A base that cannot
// grow has nothing of the overlay, which is then as it was.
absl::Status Committing::GrowOrCancel() {
  absl::Status status = Grow();
  if (status.ok() || was_begun_) return status;
  status.Update(top_.EndWriting(OverlayHeader::kCommitting));
  return status;
}

// Behind its old end the base is a hole, as which the overlay has it.
absl::Status Committing::Grow() {
  const uint64_t size = top_.header().size;
  if (base_overlay_ == nullptr) {
    RINGSIDE_ASSIGN_OR_RETURN(const uint64_t there, chain_.raw()->Size());
    return there < size ? chain_.raw()->Resize(size) : absl::OkStatus();
  }
  const OverlayHeader& header = base_overlay_->header();
  if (size > header.capacity) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has a map for %d bytes, and %s has %d; use 'ringside image flatten' instead",
        base_overlay_->name(), header.capacity, top_.name(), size));
  }
  if (size <= header.size) return absl::OkStatus();
  return base_overlay_->file().Resize(OverlayFileBytes(header.data_offset, size));
}

absl::Status Committing::WriteBase() {
  const OverlayRuns runs(top_, OverlayRuns::Which::kAll);
  progress_.Begin("writing to the base", runs.disk_bytes());
  if (base_overlay_ == nullptr) {
    RINGSIDE_RETURN_IF_ERROR(WriteToRaw(runs, *chain_.raw(), /*is_new=*/false, progress_));
    return chain_.raw()->Flush();
  }
  OverlayHeader header = base_overlay_->header();
  header.size = std::max(header.size, top_.header().size);
  RINGSIDE_RETURN_IF_ERROR(base_overlay_->BeginWriting(header));
  RINGSIDE_RETURN_IF_ERROR(WriteToOverlay(runs, *base_overlay_, /*dirty=*/true, progress_));
  return base_overlay_->EndWriting(0);
}

absl::Status Committing::End() {
  OverlayHeader header = top_.header();
  RINGSIDE_ASSIGN_OR_RETURN(header.base, chain_.Base());
  header.base_bytes = std::min(header.size, header.base.size);
  header.flags &= ~OverlayHeader::kCommitting;
  ++header.epoch;  // so that no page of the map counts
  header.period = 0;
  header.point = {};
  header.previous_point = {};
  RINGSIDE_RETURN_IF_ERROR(top_.WriteHeader(header));
  // From here on all is as it should be; what is left is space.
  const uint64_t end = OverlayFileBytes(header.data_offset, header.size);
  RINGSIDE_RETURN_IF_ERROR(top_.file().Discard(kOverlayMapOffset, end - kOverlayMapOffset));
  return top_.EndWriting(0);
}

}  // namespace

absl::StatusOr<CommitResult> Commit(const Chain::Names& names, Progress& progress,
                                    const CommitObservers& observers) {
  RINGSIDE_ASSIGN_OR_RETURN(Chain chain, Chain::Open(names, Chain::Writes::kTopAndBase));
  chain.top().file().Observe(observers.top);
  if (chain.base_overlay() != nullptr) {
    chain.base_overlay()->file().Observe(observers.base);
  } else if (chain.raw() != nullptr) {
    chain.raw()->Observe(observers.base);
  }
  return Committing(chain, progress).Run();
}

absl::StatusOr<FlattenResult> Flatten(const Chain::Names& names, const std::string& image,
                                      Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(const Chain chain, Chain::OpenToRead(names));
  RINGSIDE_ASSIGN_OR_RETURN(const ChainRuns runs, ChainRuns::Create(chain));
  RINGSIDE_ASSIGN_OR_RETURN(NewFile made, NewFile::Create(image, "image"));
  RINGSIDE_RETURN_IF_ERROR(made.file().Resize(runs.disk_bytes()));
  progress.Begin("flattening", runs.disk_bytes());
  RINGSIDE_RETURN_IF_ERROR(WriteToRaw(runs, made.file(), /*is_new=*/true, progress));
  RINGSIDE_RETURN_IF_ERROR(made.Publish(/*durable=*/true));
  return FlattenResult{.disk_bytes = runs.disk_bytes(), .bytes_on_host = made.file().BytesOnHost()};
}

}  // namespace ringside
