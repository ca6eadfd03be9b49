#include "snapshot/working_set.h"

#include <algorithm>
#include <array>
#include <sys/mman.h>

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

absl::Status DecodeRuns(const StateSection& section, uint64_t pages, PageRuns& runs) {
  StateReader bytes(section.payload);
  if (section.version == kVersion && GetRuns(bytes, pages, runs) && bytes.IsExact()) {
    return absl::OkStatus();
  }
  return BadInput("section '%s' is no list of pages of this memory", StateTagName(section.tag));
}

}  // namespace

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
  const uint64_t pages = memory.size / kPageSize;
  RINGSIDE_RETURN_IF_ERROR(DecodeRuns(sections[1], pages, set.written));
  RINGSIDE_RETURN_IF_ERROR(DecodeRuns(sections[2], pages, set.read));
  return set;
}

void PrepareMemory(const WorkingSet& set, std::span<const MemoryRegion> regions) {
  for (const MemoryRegion& part : PartsOf(set.read, regions)) {
    madvise(part.host, part.size, MADV_WILLNEED);  // begins to read, and does not wait
  }
  for (const MemoryRegion& part : PartsOf(set.written, regions)) {
    madvise(part.host, part.size, MADV_POPULATE_WRITE);  // since Linux 5.14
  }
}

}  // namespace ringside
