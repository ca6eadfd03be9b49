#include "vmm/snapshot_writer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <ranges>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "snapshot/state_file.h"
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
  // It tells whoever clears up whose the memory is, which says so itself at its end alone.
  RINGSIDE_ASSIGN_OR_RETURN(state_, Create(kPartialState));
  if (!WriteState(std::as_bytes(std::span(kStateMagic)))) {
    return ErrnoError(errno, absl::StrFormat("cannot write '%s/%s'", directory_, kPartialState),
                      "make room, or save elsewhere");
  }
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
// own, which belongs to the state that has not. After a power cut a state may be empty.
absl::Status SnapshotWriter::ClearUp() {
  const auto is_there = [this](const char* name) {
    return Unusable(EEXIST, absl::StrFormat("cannot make '%s/%s'", directory_, name),
                    "save into a directory that has no snapshot yet");
  };
  if (Has(kStateFile)) return is_there(kStateFile);
  const bool has_memory = Has(kMemoryFile);
  if (has_memory) {
    const std::string state = absl::StrFormat("%s/%s", directory_, kPartialState);
    if (!OpenSnapshotFiles(state, MemoryPath(directory_)).ok()) return is_there(kMemoryFile);
  }
  const bool has_state = BeginsAsState(kPartialState) || IsEmpty(kPartialState);
  RINGSIDE_RETURN_IF_ERROR(CheckIsOurs(kPartialState, has_state));
  RINGSIDE_RETURN_IF_ERROR(CheckIsOurs(kPartialMemory, has_state || IsEmpty(kPartialMemory)));
  RINGSIDE_RETURN_IF_ERROR(CheckIsOurs(kWorkingSetFile, BeginsAsState(kWorkingSetFile)));
  if (has_memory) Remove(kMemoryFile);
  Remove(kPartialMemory);
  Remove(kPartialState);
  Remove(kWorkingSetFile);  // of a snapshot that is gone
  return absl::OkStatus();
}

absl::Status SnapshotWriter::CheckIsOurs(const std::string& name, bool is_ours) const {
  if (is_ours || !Has(name)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "'%s/%s' is nothing that a save has left, and stays: move it away, or save elsewhere",
      directory_, name));
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

bool SnapshotWriter::IsEmpty(const std::string& name) const {
  struct stat status;
  return fstatat(folder_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISREG(status.st_mode) && status.st_size == 0;
}

bool SnapshotWriter::BeginsAsState(const std::string& name) const {
  // Not to wait for whoever writes into a pipe of that name.
  const UniqueFd fd(
      openat(folder_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  std::array<char, kStateMagic.size()> beginning;
  return fd.valid() &&
         pread(fd.get(), beginning.data(), beginning.size(), 0) == std::ssize(beginning) &&
         beginning == kStateMagic;
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

bool SnapshotWriter::WriteState(std::span<const std::byte> bytes) const {
  const ssize_t written = pwrite(state_.get(), bytes.data(), bytes.size(), 0);
  if (written == std::ssize(bytes)) return true;
  if (written >= 0) errno = ENOSPC;  // it was cut off
  return false;
}

absl::Status SnapshotWriter::Commit(std::span<const uint8_t> state) {
  // The state last, as a snapshot without one is none; after a power cut, too.
  if (!WriteState(std::as_bytes(state)) || fsync(state_.get()) != 0 || !Finish(kMemoryFile) ||
      !Finish(kStateFile)) {
    return ErrnoError(errno, absl::StrFormat("cannot write '%s'", StatePath(directory_)));
  }
  if (is_made_) {
    // Its own name, too, where whoever writes there may also read.
    const UniqueFd parent(openat(folder_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (parent.valid() && fsync(parent.get()) != 0) {
      return ErrnoError(errno, absl::StrFormat("cannot flush the directory of '%s'", directory_));
    }
  }
  written_.clear();
  is_made_ = false;
  return absl::OkStatus();
}

SnapshotWriter::~SnapshotWriter() {
  // The state last, which tells whose the memory is.
  for (const std::string& name : std::views::reverse(written_)) Remove(name);
  if (is_made_)
    rmdir(directory_.c_str());  // nothing happens if it is another one now, or not empty
}

}  // namespace ringside
