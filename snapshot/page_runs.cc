#include "snapshot/page_runs.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/pages.h"
#include "base/status.h"
#include "snapshot/page_map.h"

namespace ringside {
namespace {

constexpr size_t kPagesPerRead = 4096;

absl::Status FindIn(const MemoryRegion& region, const PageMap& pages, TouchedPages& found) {
  std::array<uint64_t, kPagesPerRead> buffer;
  const uint64_t first = region.fd_offset / kPageSize, end = region.size / kPageSize;
  for (uint64_t page = 0; page < end;) {
    const size_t count = std::min<uint64_t>(buffer.size(), end - page);
    const auto entries = pages.Read(region.host + page * kPageSize, std::span(buffer).first(count));
    if (entries.empty()) return ErrnoError(errno, "cannot read /proc/self/pagemap");
    for (const uint64_t entry : entries) {
      if (PageMap::IsThere(entry)) {
        Append(PageMap::IsAnonymous(entry) ? found.written : found.read, first + page);
      }
      ++page;
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t PagesOf(std::span<const PageRun> runs) {
  uint64_t pages = 0;
  for (const PageRun& run : runs) pages += run.count;
  return pages;
}

void Append(PageRuns& runs, uint64_t page) {
  if (!runs.empty() && runs.back().end() == page) {
    ++runs.back().count;
  } else {
    runs.push_back({page, 1});
  }
}

void Coarsen(PageRuns& runs, size_t most) {
  for (uint64_t gap = 1; runs.size() > most; gap *= 2) {
    auto last = runs.begin();
    for (const PageRun& run : std::span(runs).subspan(1)) {
      if (run.first - last->end() <= gap) {
        last->count = run.end() - last->first;
      } else {
        *++last = run;
      }
    }
    runs.erase(last + 1, runs.end());
  }
}

bool GetRuns(StateReader& bytes, uint64_t pages, PageRuns& runs) {
  bytes.GetList(runs);
  uint64_t next = 0;
  return bytes.IsFine() && std::ranges::all_of(runs, [&](const PageRun& run) {
           const bool is_fine = run.count > 0 && run.first >= next && run.first < pages &&
                                run.count <= pages - run.first;
           next = run.end() + 1;
           return is_fine;
         });
}

absl::StatusOr<TouchedPages> FindTouchedPages(std::span<const MemoryRegion> regions) {
  const PageMap pages;
  TouchedPages found;
  for (const MemoryRegion& region : regions) {
    RINGSIDE_RETURN_IF_ERROR(FindIn(region, pages, found));
  }
  return found;
}

std::vector<MemoryRegion> PartsOf(std::span<const PageRun> runs,
                                  std::span<const MemoryRegion> regions) {
  std::vector<MemoryRegion> parts;
  for (const MemoryRegion& region : regions) {
    const uint64_t first = region.fd_offset / kPageSize, end = first + region.size / kPageSize;
    for (const PageRun& run : runs) {
      const uint64_t from = std::max(run.first, first), to = std::min(run.end(), end);
      if (from >= to) continue;
      const uint64_t offset = (from - first) * kPageSize;
      parts.push_back({.guest_address = region.guest_address + offset,
                       .size = (to - from) * kPageSize,
                       .host = region.host + offset,
                       .fd = region.fd,
                       .fd_offset = region.fd_offset + offset,
                       .index = region.index});
    }
  }
  return parts;
}

}  // namespace ringside
