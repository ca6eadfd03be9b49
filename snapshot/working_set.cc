#include "snapshot/working_set.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/pages.h"
#include "base/status.h"
#include "snapshot/state_bytes.h"
#include "snapshot/state_file.h"

namespace ringside {
namespace {

constexpr uint32_t kMemoryTag = StateTag("WSOF");
constexpr uint32_t kWrittenTag = StateTag("WSWR");
constexpr uint32_t kReadTag = StateTag("WSRD");
constexpr uint32_t kVersion = 1;

// What /proc/PID/pagemap says of a page (the kernel's admin-guide/mm/pagemap).
constexpr uint64_t kPresent = uint64_t{1} << 63;
constexpr uint64_t kSwapped = uint64_t{1} << 62;
constexpr uint64_t kOfAFile = uint64_t{1} << 61;
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

absl::Status FindIn(const MemoryRegion& region, const UniqueFd& pagemap, WorkingSet& set) {
  std::array<uint64_t, kPagesPerRead> entries;
  const uint64_t first = region.fd_offset / kPageSize, pages = region.size / kPageSize;
  const uint64_t mapped_at = reinterpret_cast<uintptr_t>(region.host) / kPageSize;
  for (uint64_t done = 0; done < pages;) {
    const size_t wanted = std::min<uint64_t>(entries.size(), pages - done) * sizeof entries[0];
    const ssize_t got = pread(pagemap.get(), entries.data(), wanted,
                              static_cast<off_t>((mapped_at + done) * sizeof entries[0]));
    if (got < static_cast<ssize_t>(sizeof entries[0])) {
      return ErrnoError(got < 0 ? errno : EIO, "cannot read /proc/self/pagemap");
    }
    const uint64_t read = static_cast<uint64_t>(got) / sizeof entries[0];
    for (uint64_t i = 0; i < read; ++i) {
      if ((entries[i] & (kPresent | kSwapped)) == 0) continue;
      Append((entries[i] & kOfAFile) != 0 ? set.read : set.written, first + done + i);
    }
    done += read;
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
  const UniqueFd pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (!pagemap.valid()) return ErrnoError(errno, "cannot open /proc/self/pagemap");
  WorkingSet set;
  for (const MemoryRegion& region : regions) {
    RINGSIDE_RETURN_IF_ERROR(FindIn(region, pagemap, set));
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
