// Which pages of a machine's memory were written since a snapshot of it: by its guest and by KVM,
// which notes them while it is asked to, and by its devices. A machine whose memory is a copy on
// write of a snapshot's needs no notes for the difference to that: it is the pages of its own.
//
// Threads: one at a time, which holds the machine still (Pauser::Hold); but for the first, its
// maker. Ownership: what it is given outlives it.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/guest_memory.h"
#include "kvm/kvm.h"
#include "snapshot/memory_image.h"
#include "snapshot/page_runs.h"

namespace ringside {

class WriteTracking {
 public:
  // `copied`: the snapshot that the memory is a copy on write of.
  WriteTracking(GuestMemory& memory, KvmVm& vm, std::optional<SnapshotIdentity> copied)
      : memory_(memory), vm_(vm), copied_(copied) {}

  // What Written is the difference to; FailedPrecondition: to nothing, as no notes were taken.
  absl::StatusOr<SnapshotIdentity> Base() const;
  // The pages that have been written since the base. A page may be among them that was not.
  absl::StatusOr<PageRuns> Written();
  // Takes notes from now on, if it does not do so already; what there is by then SetBase forgets.
  // No device has a chain that it has walked before: none can be saved with one.
  absl::Status Begin();
  bool has_notes() const { return noted_.has_value(); }
  // The snapshot is there, with all that was written until now.
  void SetBase(const SnapshotIdentity& base);
  // No notes any more.
  void End();

 private:
  // Puts KVM's notes, which it forgets, to those of the host.
  absl::Status Gather();
  std::span<uint64_t> NotesOf(const MemoryRegion& region);

  GuestMemory& memory_;
  KvmVm& vm_;
  const std::optional<SnapshotIdentity> copied_;
  std::optional<SnapshotIdentity> noted_;  // since when the notes are; none: they are of no use
};

}  // namespace ringside
