#include "vmm/snapshot_writer.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

constexpr mode_t kOwnerOnly = 0600;  // a guest's memory is as secret as what it holds
constexpr char kPartialMemory[] = "memory.partial";
constexpr char kPartialState[] = "state.partial";

absl::Status Unusable(int error, const std::string& what, std::string_view advice = "") {
  return absl::FailedPreconditionError(ErrnoError(error, what, advice).message());
}

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotWriter>> SnapshotWriter::In(const std::string& directory) {
  std::unique_ptr<SnapshotWriter> writer(new SnapshotWriter(directory));
  RINGSIDE_RETURN_IF_ERROR(writer->Begin());
  return writer;
}

std::string SnapshotWriter::memory_path() const {
  return absl::StrFormat("%s/%s", directory_, kPartialMemory);
}

absl::Status SnapshotWriter::Begin() {
  RINGSIDE_RETURN_IF_ERROR(Lock());
  RINGSIDE_RETURN_IF_ERROR(ClearUp());
  RINGSIDE_ASSIGN_OR_RETURN(memory_, Create(kPartialMemory));
  return absl::OkStatus();
}

absl::Status SnapshotWriter::Lock() {
  const bool is_made = mkdir(directory_.c_str(), 0700) == 0;
  if (!is_made && errno != EEXIST) {
    return Unusable(errno, absl::StrFormat("cannot make the directory '%s'", directory_));
  }
  folder_ = UniqueFd(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder_.valid()) return Unusable(errno, absl::StrFormat("cannot open '%s'", directory_));
  if (flock(folder_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Unusable(errno, absl::StrFormat("cannot lock '%s'", directory_),
                    errno == EWOULDBLOCK ? "another save or merge is writing there" : "");
  }
  is_made_ = is_made;
  return absl::OkStatus();
}

// What one that was killed has left: files under names for that, and a memory that already has its
// own, which belongs to the state that has not.
absl::Status SnapshotWriter::ClearUp() {
  const auto is_there = [this](const char* name) {
    return Unusable(EEXIST, absl::StrFormat("cannot make '%s/%s'", directory_, name),
                    "save into a directory that has no snapshot yet");
  };
  if (Has(kStateFile)) return is_there(kStateFile);
  if (Has(kMemoryFile)) {
    const std::string state = absl::StrFormat("%s/%s", directory_, kPartialState);
    if (!OpenSnapshotFiles(state, MemoryPath(directory_)).ok()) return is_there(kMemoryFile);
    Remove(kMemoryFile);
  }
  Remove(kPartialMemory);
  Remove(kPartialState);
  Remove(kWorkingSetFile);  // of a snapshot that is gone
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> SnapshotWriter::Create(const std::string& name) {
  UniqueFd fd(
      openat(folder_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kOwnerOnly));
  if (!fd.valid()) return Unusable(errno, absl::StrFormat("cannot make '%s/%s'", directory_, name));
  written_.push_back(name);
  return fd;
}

bool SnapshotWriter::Has(const std::string& name) const {
  return faccessat(folder_.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void SnapshotWriter::Remove(const std::string& name) const {
  unlinkat(folder_.get(), name.c_str(), 0);
}

bool SnapshotWriter::Finish(const std::string& name) {
  const std::string partial = name + ".partial";
  if (renameat(folder_.get(), partial.c_str(), folder_.get(), name.c_str()) != 0) return false;
  std::ranges::replace(written_, partial, name);
  return fsync(folder_.get()) == 0;
}

absl::Status SnapshotWriter::Commit(std::span<const uint8_t> state) {
  RINGSIDE_ASSIGN_OR_RETURN(const UniqueFd fd, Create(kPartialState));
  const ssize_t written = write(fd.get(), state.data(), state.size());
  if (written >= 0 && written != std::ssize(state)) errno = ENOSPC;
  // The state last, as a snapshot without one is none; after a power cut, too.
  if (written != std::ssize(state) || fsync(fd.get()) != 0 || !Finish(kMemoryFile) ||
      !Finish(kStateFile)) {
    return ErrnoError(errno, absl::StrFormat("cannot write '%s'", StatePath(directory_)));
  }
  written_.clear();
  is_made_ = false;
  return absl::OkStatus();
}

SnapshotWriter::~SnapshotWriter() {
  for (const std::string& name : written_) Remove(name);
  if (is_made_)
    rmdir(directory_.c_str());  // nothing happens if it is another one now, or not empty
}

}  // namespace ringside
