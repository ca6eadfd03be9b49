#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <limits>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "image/backup.h"
#include "image/new_file.h"
#include "overlay/overlay_header.h"

namespace ringside {
namespace {

bool IsThere(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0;
}

// One backup on its way. Until the overlay is at its point, it has a name that says that it is none
// yet: whoever is killed before can tell from it how far things are.
class Differing {
 public:
  Differing(Chain& chain, bool is_full, const std::string& file, Progress& progress)
      : chain_(chain),
        overlay_(chain.top()),
        is_full_(is_full),
        file_(file),
        part_(file + ".part"),
        progress_(progress) {}
  absl::StatusOr<DiffResult> Run();

 private:
  absl::StatusOr<DiffResult> Describe(const std::string& path) const;
  absl::StatusOr<bool> IsUnchanged() const;
  bool CameToNothing(const DiffResult& there) const;
  absl::StatusOr<DiffResult> TakeFinished() const;
  absl::StatusOr<DiffResult> Make();
  absl::Status SetPoint(const OverlayId& point);
  absl::Status Rename() const;

  Chain& chain_;
  OverlayImage& overlay_;
  const bool is_full_;
  const std::string file_;
  const std::string part_;
  Progress& progress_;
};

absl::StatusOr<DiffResult> Differing::Run() {
  if (IsThere(file_)) return TakeFinished();
  if (IsThere(part_)) {
    RINGSIDE_ASSIGN_OR_RETURN(const DiffResult there, Describe(part_));
    const OverlayHeader& header = overlay_.header();
    // One that others may follow already, too.
    if (there.point == header.point ||
        (there.point == header.previous_point && header.previous_point != OverlayId())) {
      RINGSIDE_RETURN_IF_ERROR(Rename());
      return there;
    }
    if (!CameToNothing(there)) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "'%s' is an earlier backup that later ones may follow; give another path, and rename or "
          "remove that file",
          part_));
    }
    if (unlink(part_.c_str()) != 0) {
      return ErrnoError(errno, absl::StrFormat("cannot remove '%s'", part_));
    }
  }
  return Make();
}

// Whether the overlay, which is at its parent, never came to its point: it is of no use. Of one
// without a parent later ones may follow and have been committed, which changes the base. That of a
// block device does not show.
bool Differing::CameToNothing(const DiffResult& there) const {
  const OverlayHeader& header = overlay_.header();
  if (there.is_full || there.parent != header.point) return false;
  if (header.point != OverlayId()) return true;
  const bool shows = there.base.kind != BaseKind::kRaw || there.base.modified_ns != 0;
  return shows && IsSameBase(there.base, header.base);
}

// Of a file that has to be this overlay's backup.
absl::StatusOr<DiffResult> Differing::Describe(const std::string& path) const {
  const absl::StatusOr<DeltaFile> delta = DeltaFile::Open(path);
  if (!delta.ok() || delta->header().overlay != overlay_.header().id) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "'%s' is there already, and is no backup of %s; give another path, or remove it", path,
        overlay_.name()));
  }
  DiffResult result = {.point = delta->header().point,
                       .parent = delta->header().parent,
                       .base = delta->header().base,
                       .is_full = delta->is_full(),
                       .was_there = true};
  RINGSIDE_ASSIGN_OR_RETURN(result.contents, delta->Verify(progress_));
  return result;
}

absl::StatusOr<bool> Differing::IsUnchanged() const {
  bool is_unchanged = overlay_.header().period != 0;
  const OverlayRuns dirty(overlay_, OverlayRuns::Which::kDirty);
  RINGSIDE_RETURN_IF_ERROR(dirty.ForEach([&](const ringside::Run&) {
    is_unchanged = false;
    return absl::OkStatus();
  }));
  return is_unchanged;
}

// It is what an earlier call made, or something else that must not be lost.
absl::StatusOr<DiffResult> Differing::TakeFinished() const {
  RINGSIDE_ASSIGN_OR_RETURN(const DiffResult there, Describe(file_));
  RINGSIDE_ASSIGN_OR_RETURN(const bool is_unchanged, IsUnchanged());
  if (there.point == overlay_.header().point && is_unchanged) return there;
  return absl::FailedPreconditionError(
      absl::StrFormat("'%s' is there already, an earlier backup; give another path", file_));
}

absl::StatusOr<DiffResult> Differing::Make() {
  const OverlayHeader& header = overlay_.header();
  if (header.period == std::numeric_limits<uint32_t>::max()) {
    return absl::FailedPreconditionError(overlay_.name() + " has had too many backups; commit it");
  }
  if (!is_full_ && header.point == OverlayId() &&
      header.base_bytes < std::min(header.size, header.base.size)) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s hides what its base has from byte %d on, which a copy of the base would show; add "
        "--full",
        overlay_.name(), header.base_bytes));
  }
  // No later than the point that says so, also if the power fails.
  RINGSIDE_RETURN_IF_ERROR(overlay_.file().Flush());
  RINGSIDE_ASSIGN_OR_RETURN(const OverlayId point, NewOverlayId());
  DeltaHeader delta = {.flags = is_full_ ? DeltaHeader::kFull : 0,
                       .overlay = header.id,
                       .point = point,
                       .parent = is_full_ ? OverlayId() : header.point};
  if (!is_full_ && delta.parent == OverlayId()) delta.base = header.base;
  RINGSIDE_ASSIGN_OR_RETURN(NewFile made, NewFile::Create(part_, "backup"));
  progress_.Begin("writing the backup", header.size);
  DiffResult result = {.point = delta.point, .parent = delta.parent, .is_full = is_full_};
  if (is_full_) {
    RINGSIDE_ASSIGN_OR_RETURN(const ChainRuns runs, ChainRuns::Create(chain_));
    RINGSIDE_ASSIGN_OR_RETURN(result.contents, WriteDelta(runs, delta, made.file(), progress_));
  } else {
    const OverlayRuns runs(overlay_, OverlayRuns::Which::kDirty);
    RINGSIDE_ASSIGN_OR_RETURN(result.contents, WriteDelta(runs, delta, made.file(), progress_));
  }
  RINGSIDE_RETURN_IF_ERROR(made.Publish(/*durable=*/true));
  RINGSIDE_RETURN_IF_ERROR(SetPoint(delta.point));
  RINGSIDE_RETURN_IF_ERROR(Rename());
  return result;
}

// A new period voids all dirty bits at once.
absl::Status Differing::SetPoint(const OverlayId& point) {
  OverlayHeader header = overlay_.header();
  header.previous_point = header.point;
  header.point = point;
  ++header.period;
  return overlay_.WriteHeader(header);
}

absl::Status Differing::Rename() const {
  int result = renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, file_.c_str(), RENAME_NOREPLACE);
  // A file system that does not know the flag.
  if (result != 0 && errno == EINVAL) {
    result = link(part_.c_str(), file_.c_str());
    if (result == 0) unlink(part_.c_str());
  }
  if (result != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot rename '%s' to '%s'", part_, file_),
                      "rename it yourself: the backup is whole");
  }
  return FlushName(file_);
}

}  // namespace

absl::StatusOr<DiffResult> Diff(const Chain::Names& names, bool is_full, const std::string& file,
                                Progress& progress) {
  RINGSIDE_ASSIGN_OR_RETURN(Chain chain, Chain::Open(names, Chain::Writes::kTop));
  RINGSIDE_RETURN_IF_ERROR(chain.top().CheckIsWhole(0));
  // What is not read need not be there.
  if (is_full || !names.bases.empty()) RINGSIDE_RETURN_IF_ERROR(chain.CheckTop());
  return Differing(chain, is_full, file, progress).Run();
}

}  // namespace ringside
