// A machine's whole state but its memory, as it stands in the file `state` of a snapshot's
// directory, beside the file `memory`.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <memory>
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
#include "vmm/guest_devices.h"
#include "vmm/host_state.h"

namespace ringside {

inline constexpr char kStateFile[] = "state";
inline constexpr char kMemoryFile[] = "memory";

struct SavedMachine {
  MemoryImage memory;
  int64_t saved_at_ns = 0;  // since 1970
  VmState vm;
  std::vector<VcpuState> vcpus;
  DevicesState devices;
  HostState host;
};

inline std::string MemoryPath(const std::string& directory) {
  return directory + '/' + kMemoryFile;
}
inline std::string WorkingSetPath(const std::string& directory) {
  return directory + "/working-set";
}

std::vector<uint8_t> EncodeMachine(const SavedMachine& state);
// InvalidArgument: it is damaged, incomplete, or of another Ringside; says what.
absl::StatusOr<SavedMachine> DecodeMachine(std::span<const uint8_t> bytes);

struct Snapshot {
  SavedMachine state;
  UniqueFd memory;         // opened to be read; none: another process gives it
  std::string path;        // of the memory's file; empty: it is in no file system
  std::string directory;   // likewise
  WorkingSet working_set;  // empty: none was recorded
};
// Of a directory. Errors name the file. The memory is this state's; its content is not looked at.
absl::StatusOr<Snapshot> OpenSnapshot(const std::string& directory);
// Of a directory whose memory's file nobody looks for, and which need not be there.
absl::StatusOr<Snapshot> OpenSnapshotState(const std::string& directory);

struct MachineTemplate::Parts {
  Snapshot snapshot;
  std::string name;  // "the snapshot in 'snap'"

  // As MachineTemplate::Load, of what was opened.
  static absl::StatusOr<std::shared_ptr<const MachineTemplate>> Of(
      absl::StatusOr<Snapshot> snapshot, const std::string& directory);
};

}  // namespace ringside
