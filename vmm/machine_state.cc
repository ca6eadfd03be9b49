#include "vmm/machine_state.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/pages.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "snapshot/state_bytes.h"
#include "snapshot/state_file.h"
#include "vmm/state_codec.h"

namespace ringside {
namespace {

constexpr uint32_t kMachineTag = StateTag("MACH");
constexpr uint32_t kVmTag = StateTag("VM  ");
constexpr uint32_t kVcpuTag = StateTag("VCPU");
constexpr uint32_t kDevicesTag = StateTag("DEVS");
constexpr uint32_t kHostTag = StateTag("HOST");        // not of a Ringside that had none
constexpr uint32_t kDifferenceTag = StateTag("DIFF");  // not of a whole one
constexpr uint32_t kMachineVersion = 1;
constexpr uint32_t kDifferenceVersion = 1;

std::vector<uint8_t> EncodeShape(const SavedMachine& state) {
  StateWriter bytes;
  bytes.Put(state.memory.identity);
  bytes.Put(state.memory.size);
  bytes.Put(state.memory.regions);
  bytes.Put(state.memory.crc);
  bytes.Put(state.saved_at_ns);
  bytes.Put(static_cast<uint32_t>(state.vcpus.size()));
  return bytes.bytes();
}

// How many vCPUs it says there are.
absl::StatusOr<uint32_t> DecodeShape(const StateSection& section, SavedMachine& state) {
  StateReader bytes(section.payload);
  bytes.Get(state.memory.identity);
  bytes.Get(state.memory.size);
  bytes.Get(state.memory.regions);
  bytes.Get(state.memory.crc);
  bytes.Get(state.saved_at_ns);
  const auto vcpus = bytes.Get<uint32_t>();
  if (section.version != kMachineVersion || !bytes.IsExact()) {
    return BadInput("the saved machine has version %d, and this Ringside reads version %d",
                    section.version, kMachineVersion);
  }
  return vcpus;
}

std::vector<uint8_t> EncodeDifference(const SavedDifference& difference) {
  StateWriter bytes;
  bytes.Put(difference.base);
  bytes.PutList(difference.pages);
  return bytes.bytes();
}

absl::Status DecodeDifference(const StateSection& section, SavedMachine& state) {
  StateReader bytes(section.payload);
  SavedDifference& difference = state.difference.emplace();
  bytes.Get(difference.base);
  if (section.version == kDifferenceVersion &&
      GetRuns(bytes, state.memory.size / kPageSize, difference.pages) && bytes.IsExact()) {
    return absl::OkStatus();
  }
  return BadInput("section '%s' is no list of pages of this memory", StateTagName(section.tag));
}

absl::Status DecodeSection(const StateSection& section, SavedMachine& state) {
  switch (section.tag) {
    case kVmTag:
      return Decode(section.version, section.payload, state.vm);
    case kVcpuTag:
      return Decode(section.version, section.payload, state.vcpus.emplace_back());
    case kDevicesTag:
      return Decode(section.version, section.payload, state.devices);
    case kHostTag:
      return Decode(section.version, section.payload, state.host);
    case kDifferenceTag:
      return DecodeDifference(section, state);
    default:
      return BadInput(
          "the state has a section '%s', which this Ringside does not know: use the one "
          "that saved it, or a newer one",
          StateTagName(section.tag));
  }
}

absl::Status CheckCounts(const std::vector<StateSection>& sections, uint32_t vcpus) {
  const auto check = [&](uint32_t tag, ptrdiff_t least, ptrdiff_t most) -> absl::Status {
    const ptrdiff_t count = std::ranges::count(sections, tag, &StateSection::tag);
    if (count >= least && count <= most) return absl::OkStatus();
    return BadInput("the state has %d sections '%s', and such a machine's %d", count,
                    StateTagName(tag), most);
  };
  RINGSIDE_RETURN_IF_ERROR(check(kVcpuTag, vcpus, vcpus));
  RINGSIDE_RETURN_IF_ERROR(check(kVmTag, 1, 1));
  RINGSIDE_RETURN_IF_ERROR(check(kDevicesTag, 1, 1));
  RINGSIDE_RETURN_IF_ERROR(check(kDifferenceTag, 0, 1));
  return check(kHostTag, 0, 1);
}

// Not a FIFO, on which an open would wait.
absl::StatusOr<UniqueFd> OpenFile(const std::string& path, uint64_t& size) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (!fd.valid() || fstat(fd.get(), &status) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot open '%s'", path),
                      "give the directory of a snapshot");
  }
  if (!S_ISREG(status.st_mode)) return BadInput("'%s' is no file", path);
  size = static_cast<uint64_t>(status.st_size);
  return fd;
}

// Of a file of sections.
absl::StatusOr<std::vector<uint8_t>> ReadFile(const std::string& path) {
  uint64_t size = 0;
  RINGSIDE_ASSIGN_OR_RETURN(const UniqueFd file, OpenFile(path, size));
  if (size > kMostStateBytes) {
    return BadInput("'%s' has %d bytes, and such a file has %d at most", path, size,
                    kMostStateBytes);
  }
  std::vector<uint8_t> bytes(size);
  const ssize_t got = ReadWholeAt(file.get(), std::as_writable_bytes(std::span(bytes)), 0);
  if (got < 0) {
    return ErrnoError(static_cast<int>(-got), absl::StrFormat("cannot read '%s'", path));
  }
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

absl::Status ReadWorkingSet(Snapshot& snapshot) {
  const std::string path = WorkingSetPath(snapshot.directory);
  const absl::StatusOr<std::vector<uint8_t>> bytes = ReadFile(path);
  if (absl::IsNotFound(bytes.status())) return absl::OkStatus();
  RINGSIDE_RETURN_IF_ERROR(bytes.status());
  absl::StatusOr<WorkingSet> set = DecodeWorkingSet(*bytes, snapshot.state.memory);
  if (!set.ok()) {
    return BadInput("'%s': %s; a restore can do without it: delete it", path,
                    Message(set.status()));
  }
  snapshot.working_set = *std::move(set);
  return absl::OkStatus();
}

absl::StatusOr<Snapshot> ReadState(const std::string& state_path) {
  Snapshot snapshot;
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, ReadFile(state_path));
  absl::StatusOr<SavedMachine> state = DecodeMachine(bytes);
  if (!state.ok()) return Of(absl::StrFormat("'%s'", state_path), state.status());
  snapshot.state = *std::move(state);
  const uint64_t size = snapshot.state.memory.size;
  if (size == 0 || size % kPageSize != 0) {
    return BadInput("'%s' is of a machine with %d bytes of memory, which is none", state_path,
                    size);
  }
  return snapshot;
}

absl::Status CheckIsWhole(const Snapshot& snapshot, const std::string& directory) {
  if (!snapshot.state.difference.has_value()) return absl::OkStatus();
  return BadInput(
      "'%s' has only what has changed since another snapshot: make one of both with 'ringside "
      "snapshot merge'",
      directory);
}

}  // namespace

std::vector<uint8_t> EncodeMachine(const SavedMachine& state) {
  StateFileWriter file;
  file.Add(kMachineTag, kMachineVersion, EncodeShape(state));
  file.Add(kVmTag, kVmStateVersion, Encode(state.vm));
  for (const VcpuState& vcpu : state.vcpus) file.Add(kVcpuTag, kVcpuStateVersion, Encode(vcpu));
  file.Add(kDevicesTag, kDevicesStateVersion, Encode(state.devices));
  file.Add(kHostTag, kHostStateVersion, Encode(state.host));
  if (state.difference.has_value()) {
    file.Add(kDifferenceTag, kDifferenceVersion, EncodeDifference(*state.difference));
  }
  return std::move(file).Finish();
}

absl::StatusOr<SavedMachine> DecodeMachine(std::span<const uint8_t> bytes) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<StateSection> sections, ReadStateFile(bytes));
  if (sections.empty() || sections.front().tag != kMachineTag) {
    return BadInput("the state does not begin with what machine it is of");
  }
  SavedMachine state;
  RINGSIDE_ASSIGN_OR_RETURN(const uint32_t vcpus, DecodeShape(sections.front(), state));
  for (const StateSection& section : std::span(sections).subspan(1)) {
    RINGSIDE_RETURN_IF_ERROR(DecodeSection(section, state));
  }
  RINGSIDE_RETURN_IF_ERROR(CheckCounts(sections, vcpus));
  return state;
}

MemoryImage FileImage(const SavedMachine& state) {
  if (!state.difference.has_value()) return state.memory;
  const PageRuns& pages = state.difference->pages;
  return {.identity = state.memory.identity,
          .size = PagesOf(pages) * kPageSize,
          .regions = static_cast<uint32_t>(pages.size()),
          .crc = state.memory.crc};
}

absl::StatusOr<Snapshot> OpenSnapshotState(const std::string& directory) {
  RINGSIDE_ASSIGN_OR_RETURN(Snapshot snapshot, ReadState(StatePath(directory)));
  RINGSIDE_RETURN_IF_ERROR(CheckIsWhole(snapshot, directory));
  return snapshot;
}

absl::StatusOr<Snapshot> OpenSnapshot(const std::string& directory) {
  RINGSIDE_ASSIGN_OR_RETURN(Snapshot snapshot, OpenAnySnapshot(directory));
  RINGSIDE_RETURN_IF_ERROR(CheckIsWhole(snapshot, directory));
  return snapshot;
}

absl::StatusOr<Snapshot> OpenSnapshotFiles(const std::string& state, const std::string& memory) {
  RINGSIDE_ASSIGN_OR_RETURN(Snapshot snapshot, ReadState(state));
  uint64_t size = 0;
  RINGSIDE_ASSIGN_OR_RETURN(snapshot.memory, OpenFile(memory, size));
  RINGSIDE_RETURN_IF_ERROR(CheckMemoryImage(FileImage(snapshot.state), snapshot.memory, memory));
  snapshot.path = memory;
  return snapshot;
}

absl::StatusOr<Snapshot> OpenAnySnapshot(const std::string& directory) {
  RINGSIDE_ASSIGN_OR_RETURN(Snapshot snapshot,
                            OpenSnapshotFiles(StatePath(directory), MemoryPath(directory)));
  snapshot.directory = directory;
  snapshot.working_set_status = ReadWorkingSet(snapshot);
  return snapshot;
}

}  // namespace ringside
