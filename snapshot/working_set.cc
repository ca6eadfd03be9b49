#include "snapshot/working_set.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/mman.h>

#include "base/pages.h"
#include "base/status.h"
#include "snapshot/page_map.h"
#include "snapshot/state_bytes.h"
#include "snapshot/state_file.h"

namespace ringside {
namespace {

constexpr uint32_t kMemoryTag = StateTag("WSOF");
constexpr uint32_t kWrittenTag = StateTag("WSWR");
constexpr uint32_t kReadTag = StateTag("WSRD");
constexpr uint32_t kVersion = 1;

constexpr size_t kPagesPerRead = 4096;

void Append(std::vector<PageRun>& runs, uint64_t page) {
  if (!runs.empty() && runs.back().first + runs.back().count == page) {
    ++runs.back().count;
  } else {
    runs.push_back({page, 1});
  }
}

absl::StatusOr<std::vector<PageRun>> DecodeRuns(const StateSection& section, uint64_t pages) {
  StateReader bytes(section.payload);
  std::vector<PageRun> runs;
  bytes.GetList(runs);
  uint64_t next = 0;
  bool is_fine = section.version == kVersion && bytes.IsExact();
  for (const PageRun& run : runs) {
    is_fine = is_fine && run.count > 0 && run.first >= next && run.first < pages &&
              run.count <= pages - run.first;
    next = run.first + run.count + 1;
  }
  if (!is_fine) {
    return BadInput("section '%s' is no list of pages of this memory", StateTagName(section.tag));
  }
  return runs;
}

// Calls `use` with the host's address and length of each part of the runs.
template <typename Use>
void ForEachPart(std::span<const PageRun> runs, std::span<const MemoryRegion> regions, Use use) {
  for (const MemoryRegion& region : regions) {
    const uint64_t first = region.fd_offset / kPageSize, end = first + region.size / kPageSize;
    for (const PageRun& run : runs) {
      const uint64_t from = std::max(run.first, first), to = std::min(run.first + run.count, end);
      if (from >= to) continue;
      use(region.host + (from - first) * kPageSize, (to - from) * kPageSize);
    }
  }
}

absl::Status FindIn(const MemoryRegion& region, const PageMap& pages, WorkingSet& set) {
  std::array<uint64_t, kPagesPerRead> buffer;
  const uint64_t first = region.fd_offset / kPageSize, end = region.size / kPageSize;
  for (uint64_t page = 0; page < end;) {
    const size_t count = std::min<uint64_t>(buffer.size(), end - page);
    const auto entries = pages.Read(region.host + page * kPageSize, std::span(buffer).first(count));
    if (entries.empty()) return ErrnoError(errno, "cannot read /proc/self/pagemap");
    for (const uint64_t entry : entries) {
      if (PageMap::IsThere(entry)) {
        Append(PageMap::IsAnonymous(entry) ? set.written : set.read, first + page);
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

std::vector<uint8_t> EncodeWorkingSet(const WorkingSet& set, const SnapshotIdentity& memory) {
  StateFileWriter file;
  file.Add(kMemoryTag, kVersion, memory);
  for (const auto& [tag, runs] : {std::pair(kWrittenTag, &set.written), {kReadTag, &set.read}}) {
    StateWriter bytes;
    bytes.PutList(*runs);
    file.Add(tag, kVersion, bytes.bytes());
  }
  return std::move(file).Finish();
}

absl::StatusOr<WorkingSet> DecodeWorkingSet(std::span<const uint8_t> bytes,
                                            const MemoryImage& memory) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<StateSection> sections, ReadStateFile(bytes));
  constexpr std::array kTags = {kMemoryTag, kWrittenTag, kReadTag};
  if (!std::ranges::equal(sections, kTags, {}, &StateSection::tag)) {
    return BadInput("it is no working set");
  }
  if (!std::ranges::equal(sections[0].payload, memory.identity)) {
    return BadInput("it is of another snapshot");
  }
  WorkingSet set;
  RINGSIDE_ASSIGN_OR_RETURN(set.written, DecodeRuns(sections[1], memory.size / kPageSize));
  RINGSIDE_ASSIGN_OR_RETURN(set.read, DecodeRuns(sections[2], memory.size / kPageSize));
  return set;
}

absl::StatusOr<WorkingSet> FindWorkingSet(std::span<const MemoryRegion> regions) {
  const PageMap pages;
  WorkingSet set;
  for (const MemoryRegion& region : regions) {
    RINGSIDE_RETURN_IF_ERROR(FindIn(region, pages, set));
  }
  return set;
}

void PrepareMemory(const WorkingSet& set, std::span<const MemoryRegion> regions) {
  ForEachPart(set.read, regions, [](std::byte* host, uint64_t size) {
    madvise(host, size, MADV_WILLNEED);  // begins to read, and does not wait
  });
  ForEachPart(set.written, regions, [](std::byte* host, uint64_t size) {
    madvise(host, size, MADV_POPULATE_WRITE);  // since Linux 5.14
  });
}

}  // namespace ringside
