// A machine's whole state but its memory, as it stands in the file `state` of a snapshot's
// directory, beside the file `memory`.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "kvm/vcpu_state.h"
#include "kvm/vm_state.h"
#include "ringside/machine_template.h"
#include "snapshot/memory_image.h"
#include "snapshot/working_set.h"
#include "vmm/devices_state.h"
#include "vmm/host_state.h"

namespace ringside {

// More pieces than these are not told apart: 16 MiB of the state's 64.
inline constexpr size_t kMostRuns = 1 << 20;

inline constexpr char kStateFile[] = "state";
inline constexpr char kMemoryFile[] = "memory";
inline constexpr char kWorkingSetFile[] = "working-set";

// Of a snapshot that has only what has changed since another one.
struct SavedDifference {
  SnapshotIdentity base;  // of that one's memory
  PageRuns pages;         // of which the file `memory` has the content, one behind the other
};

struct SavedMachine {
  MemoryImage memory;  // `crc`: of what is in the file
  std::optional<SavedDifference> difference;
  int64_t saved_at_ns = 0;  // since 1970
  VmState vm;
  std::vector<VcpuState> vcpus;
  DevicesState devices;
  HostState host;
};

// What the file `memory` has: all of it, or the pages of the difference.
MemoryImage FileImage(const SavedMachine& state);

inline std::string StatePath(const std::string& directory) {
  return directory + '/' + kStateFile;
}
inline std::string MemoryPath(const std::string& directory) {
  return directory + '/' + kMemoryFile;
}
inline std::string WorkingSetPath(const std::string& directory) {
  return directory + '/' + kWorkingSetFile;
}

std::vector<uint8_t> EncodeMachine(const SavedMachine& state);
// InvalidArgument: it is damaged, incomplete, or of another Ringside; says what.
absl::StatusOr<SavedMachine> DecodeMachine(std::span<const uint8_t> bytes);

struct Snapshot {
  SavedMachine state;
  UniqueFd memory;                  // opened to be read; none: another process gives it
  std::string path;                 // of the memory's file; empty: it is in no file system
  std::string directory;            // likewise
  WorkingSet working_set;           // empty: none was recorded
  absl::Status working_set_status;  // why there is none that could be read
};
// Errors name the file. The memory is this state's; its content is not looked at.
absl::StatusOr<Snapshot> OpenSnapshotFiles(const std::string& state, const std::string& memory);
// Of a directory, with its working set.
absl::StatusOr<Snapshot> OpenAnySnapshot(const std::string& directory);
// Of one that is no difference, from which a machine can go on.
absl::StatusOr<Snapshot> OpenSnapshot(const std::string& directory);
// The same, of a directory whose memory's file nobody looks for, and which need not be there.
absl::StatusOr<Snapshot> OpenSnapshotState(const std::string& directory);

struct MachineTemplate::Parts {
  Snapshot snapshot;
  std::string name;  // "the snapshot in 'snap'"

  // As MachineTemplate::Load, of what was opened.
  static absl::StatusOr<std::shared_ptr<const MachineTemplate>> Of(
      absl::StatusOr<Snapshot> snapshot, const std::string& directory);
};

}  // namespace ringside
