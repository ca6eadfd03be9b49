#include "vmm/write_tracking.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "base/pages.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr uint64_t kBits = 64;

}  // namespace

absl::StatusOr<SnapshotIdentity> WriteTracking::Base() const {
  if (noted_.has_value()) return *noted_;
  if (copied_.has_value()) return *copied_;
  return absl::FailedPreconditionError(
      "nobody has noted what was written since an earlier snapshot: save all of the machine with "
      "track=on first");
}

absl::StatusOr<PageRuns> WriteTracking::Written() {
  if (!noted_.has_value()) {
    RINGSIDE_ASSIGN_OR_RETURN(TouchedPages touched, FindTouchedPages(memory_.regions()));
    return std::move(touched.written);
  }
  RINGSIDE_RETURN_IF_ERROR(Gather());
  PageRuns pages;
  for (const MemoryRegion& region : memory_.regions()) {
    const uint64_t first = region.fd_offset / kPageSize, count = region.size / kPageSize;
    uint64_t page = 0;
    for (uint64_t bits : NotesOf(region)) {
      for (; bits != 0; bits &= bits - 1) {
        const uint64_t at = page + static_cast<uint64_t>(std::countr_zero(bits));
        if (at < count) Append(pages, first + at);
      }
      page += kBits;
    }
  }
  return pages;
}

// A region begins at a multiple of 64 pages, as its bits in KVM's notes do.
std::span<uint64_t> WriteTracking::NotesOf(const MemoryRegion& region) {
  const uint64_t count = region.size / kPageSize;
  return memory_.write_log()->words().subspan(region.guest_address / kPageSize / kBits,
                                              (count + kBits - 1) / kBits);
}

absl::Status WriteTracking::Gather() {
  for (const MemoryRegion& region : memory_.regions()) {
    const std::span<uint64_t> all = NotesOf(region);
    std::vector<uint64_t> noted(all.size());
    RINGSIDE_RETURN_IF_ERROR(vm_.TakeWrites(region.index, noted));
    std::ranges::transform(all, noted, all.begin(), std::bit_or());
  }
  return absl::OkStatus();
}

absl::Status WriteTracking::Begin() {
  if (noted_.has_value()) return Gather();  // so that KVM's begin anew, too
  memory_.NoteWrites(true);
  return vm_.NoteWrites(memory_.regions(), true);
}

void WriteTracking::SetBase(const SnapshotIdentity& base) {
  memory_.NoteWrites(true);  // anew
  noted_ = base;
}

void WriteTracking::End() {
  noted_.reset();
  if (memory_.write_log() == nullptr) return;
  memory_.NoteWrites(false);
  (void)vm_.NoteWrites(memory_.regions(), false);  // they cost the guest time, and no more
}

}  // namespace ringside
