// Writes the directory of a snapshot, which is one as soon as its state is there: whoever is killed
// before has left nothing that a restore would take, and the next one to write there clears it up.
// What is not Ringside's is never removed: where it is in the way, nothing is.
//
// Threads: none; a lock keeps out other processes. All is done in the directory that was opened,
// whatever its name is given to meanwhile. Errors: FailedPrecondition where the directory cannot be
// used, else those of the system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ringside {

class SnapshotWriter {
 public:
  // Makes the directory if it is not there.
  static absl::StatusOr<std::unique_ptr<SnapshotWriter>> In(const std::string& directory);
  SnapshotWriter(const SnapshotWriter&) = delete;
  SnapshotWriter& operator=(const SnapshotWriter&) = delete;
  // Nothing is left of what was not committed.
  ~SnapshotWriter();

  // An empty file, for the memory, and what errors call it.
  const UniqueFd& memory() const { return memory_; }
  std::string memory_path() const;
  // The memory is written and has reached the disk, and this is its machine's state.
  absl::Status Commit(std::span<const uint8_t> state);

 private:
  explicit SnapshotWriter(const std::string& directory) : directory_(directory) {}
  absl::Status Begin();
  absl::Status Lock();
  absl::Status ClearUp();
  absl::Status CheckIsOurs(const std::string& name, bool is_ours) const;
  absl::StatusOr<UniqueFd> Create(const std::string& name);
  bool Has(const std::string& name) const;
  bool IsEmpty(const std::string& name) const;
  bool BeginsAsState(const std::string& name) const;
  void Remove(const std::string& name) const;
  // From its beginning; errno.
  bool WriteState(std::span<const std::byte> bytes) const;
  // To its name without ".partial", and has that reach the disk.
  bool Finish(const std::string& name);

  const std::string directory_;
  UniqueFd folder_;
  bool is_made_ = false;  // by this one, which has locked it
  UniqueFd state_;
  UniqueFd memory_;
  std::vector<std::string> written_;  // files to be taken away again
};

}  // namespace ringside
