// Which pages of a snapshot's memory its machine used when it went on from there: those that it
// wrote, which the next one to go on can be given before it runs, at a thirtieth of the price of a
// page fault of a guest; and those that it read, which the kernel can read ahead.
//
// It stands in a file of sections (snapshot/state_file.h), one of which has the identity of the
// memory that it is about. Pages count from the beginning of the memory's file.
//
// Threads: none. Errors: as MemoryImage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_region.h"
#include "snapshot/memory_image.h"

namespace ringside {

struct PageRun {
  uint64_t first;
  uint64_t count;
};

struct WorkingSet {
  std::vector<PageRun> written, read;  // ascending, none empty, and none beside or in another
};

uint64_t PagesOf(std::span<const PageRun> runs);

std::vector<uint8_t> EncodeWorkingSet(const WorkingSet& set, const SnapshotIdentity& memory);
absl::StatusOr<WorkingSet> DecodeWorkingSet(std::span<const uint8_t> bytes,
                                            const MemoryImage& memory);

// Of memory that this process has mapped copy on write from the memory's file. What a restore had
// prepared by an earlier working set counts as used.
absl::StatusOr<WorkingSet> FindWorkingSet(std::span<const MemoryRegion> regions);

// Prepares such memory. What cannot be done is left to the guest's faults.
void PrepareMemory(const WorkingSet& set, std::span<const MemoryRegion> regions);

}  // namespace ringside
