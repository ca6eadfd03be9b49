// Which pages of a snapshot's memory its machine used when it went on from there: those that it
// wrote, which the next one to go on can be given before it runs, at a thirtieth of the price of a
// page fault of a guest; and those that it read, which the kernel can read ahead.
//
// It stands in a file of sections (snapshot/state_file.h), one of which has the identity of the
// memory that it is about.
//
// Threads: none. Errors: as MemoryImage.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_region.h"
#include "snapshot/memory_image.h"
#include "snapshot/page_runs.h"

namespace ringside {

// What a restore had prepared by an earlier working set counts as used.
using WorkingSet = TouchedPages;

std::vector<uint8_t> EncodeWorkingSet(const WorkingSet& set, const SnapshotIdentity& memory);
absl::StatusOr<WorkingSet> DecodeWorkingSet(std::span<const uint8_t> bytes,
                                            const MemoryImage& memory);

// Prepares memory that is mapped copy on write from the memory's file. What cannot be done is left
// to the guest's faults.
void PrepareMemory(const WorkingSet& set, std::span<const MemoryRegion> regions);

}  // namespace ringside
