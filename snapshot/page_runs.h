// Which pages of a memory: runs of them, as sections of a state and files beside it have them.
// Pages count from the beginning of the memory's file.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_region.h"
#include "snapshot/state_bytes.h"

namespace ringside {

struct PageRun {
  uint64_t first;
  uint64_t count;

  uint64_t end() const { return first + count; }
};
// Ascending; none is empty, and none beside or in another.
using PageRuns = std::vector<PageRun>;

uint64_t PagesOf(std::span<const PageRun> runs);
// A page behind all that are there.
void Append(PageRuns& runs, uint64_t page);
// Not more than `most` runs: the pages in the narrowest gaps are added to them until that is so.
void Coarsen(PageRuns& runs, size_t most);

// The runs that come next. False: they are no runs of a memory of so many pages.
bool GetRuns(StateReader& bytes, uint64_t pages, PageRuns& runs);

// Of memory that this process has mapped copy on write from a file: those pages that are in memory
// or swapped out, those that were written, which are no longer the file's, and those only read.
struct TouchedPages {
  PageRuns written, read;
};
absl::StatusOr<TouchedPages> FindTouchedPages(std::span<const MemoryRegion> regions);

// A region for each part of the runs: parts of the memory's own.
std::vector<MemoryRegion> PartsOf(std::span<const PageRun> runs,
                                  std::span<const MemoryRegion> regions);

}  // namespace ringside
