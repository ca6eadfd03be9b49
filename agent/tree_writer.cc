#include "agent/tree_writer.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ringside {
namespace {

constexpr uint64_t kEntryBytes = 4096;  // that a name is counted as, be the file empty
constexpr int kInside = O_DIRECTORY | O_RDONLY | O_NOFOLLOW | O_CLOEXEC;

AgentFault OutOfOrder() {
  return {EPROTO, "a message of the tree is out of order"};
}

AgentFault HasNoName() {
  return {EISDIR, "what has no name of its own cannot be put into a directory: name the target"};
}

// Nobody else's: of several writers in one directory each has its own.
std::string TemporaryName() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) number = 0;  // then O_EXCL refuses it
  return ".ringside-" + std::to_string(number) + ".tmp";
}

}  // namespace

TreeWriter::~TreeWriter() {
  if (file_.valid()) unlinkat(place(), temporary_name_.c_str(), 0);
}

AgentFault TreeWriter::Open(std::string_view path) {
  std::string directory(path);
  top_ = UniqueFd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (top_.valid()) return {};
  // "a/b/" names a directory, and there is none.
  if (directory.empty() || directory.ends_with('/') || (errno != ENOENT && errno != ENOTDIR)) {
    return AgentFault::Of(directory.empty() ? ENOENT : errno, "cannot open", path);
  }
  const size_t slash = directory.rfind('/');
  top_name_ = slash == std::string::npos ? directory : directory.substr(slash + 1);
  directory = slash == std::string::npos ? "." : directory.substr(0, slash + 1);
  top_ = UniqueFd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top_.valid()) return AgentFault::Of(errno, "cannot open", directory);
  return {};
}

AgentFault TreeWriter::OpenToGet(std::string_view path, std::string_view source,
                                 bool with_directories, uint64_t most_bytes) {
  if (AgentFault fault = Open(path)) return fault;
  most_bytes_ = room_ = most_bytes;
  if (top_name_.empty()) top_name_ = NameOfTree(source);
  with_directories_ = with_directories;
  return top_name_.empty() ? HasNoName() : AgentFault{};
}

AgentFault TreeWriter::Take(const AgentFrame& frame) {
  if (!top_.valid() || is_complete_) return OutOfOrder();
  switch (frame.type) {
    case AgentType::kEntry: {
      const std::optional<EntryMessage> entry = DecodeEntry(frame.payload);
      if (!entry) return {EPROTO, "an entry of the tree is malformed"};
      return TakeEntry(*entry);
    }
    case AgentType::kData:
      return TakeData(frame.payload);
    case AgentType::kFileEnd:
      return EndFile();
    case AgentType::kLeave:
      return Leave();
    case AgentType::kTreeEnd:
      if (file_.valid() || !entered_.empty() || !has_begun_) return OutOfOrder();
      is_complete_ = true;
      return {};
    default:
      return OutOfOrder();
  }
}

AgentFault TreeWriter::TakeEntry(const EntryMessage& sent) {
  const bool is_top = entered_.empty();
  if (file_.valid() || (is_top && has_begun_)) return OutOfOrder();
  has_begun_ = true;
  EntryMessage entry = sent;
  if (is_top && !top_name_.empty()) entry.name = top_name_;
  if (entry.name.empty()) return HasNoName();
  // Who sends a tree follows a link at its top.
  if (is_top && entry.kind == EntryKind::kLink) return {EPROTO, "the tree is a symbolic link"};
  if (entry.kind == EntryKind::kDirectory && !with_directories_) {
    return {EISDIR, "a directory came where a file was asked for"};
  }
  if (!is_top) {
    if (AgentFault fault = Count(kEntryBytes)) return fault;
  }
  switch (entry.kind) {
    case EntryKind::kFile:
      return BeginFile(entry);
    case EntryKind::kDirectory:
      return EnterDirectory(entry);
    case EntryKind::kLink:
      return MakeLink(entry);
  }
  return OutOfOrder();
}

// A device, a FIFO or a socket is more than a name that may be had: nor is a link to one, such as
// /dev/stdout, replaced where the user has named it. Links within a tree are whatever its sender
// has made them, and lead nobody anywhere.
AgentFault TreeWriter::CheckIsReplaced(std::string_view name) const {
  struct stat there = {};
  const int flags = entered_.empty() ? 0 : AT_SYMLINK_NOFOLLOW;
  if (fstatat(place(), std::string(name).c_str(), &there, flags) != 0) return {};
  if (S_ISREG(there.st_mode) || S_ISDIR(there.st_mode) || S_ISLNK(there.st_mode)) return {};
  constexpr char kWhy[] =
      "' is a device, a FIFO or a socket, and copies replace files and links alone; give another "
      "name";
  return {EOPNOTSUPP, "'" + std::string(name) + kWhy};
}

AgentFault TreeWriter::BeginFile(const EntryMessage& entry) {
  if (AgentFault fault = CheckIsReplaced(entry.name)) return fault;
  temporary_name_ = TemporaryName();
  file_ = UniqueFd(openat(place(), temporary_name_.c_str(),
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file_.valid()) return AgentFault::Of(errno, "cannot make", entry.name);
  file_name_ = entry.name;
  file_mode_ = entry.mode;
  return {};
}

AgentFault TreeWriter::TakeData(std::string_view data) {
  if (!file_.valid()) return OutOfOrder();
  if (AgentFault fault = Count(data.size())) return fault;
  while (!data.empty()) {
    const ssize_t written = write(file_.get(), data.data(), data.size());
    if (written < 0 && errno != EINTR) return AgentFault::Of(errno, "cannot write", file_name_);
    if (written > 0) data.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

AgentFault TreeWriter::Count(uint64_t bytes) {
  if (bytes > room_) {
    return {EFBIG, "what is sent has more than " + std::to_string(most_bytes_) +
                       " bytes, the most that were asked for"};
  }
  room_ -= bytes;
  return {};
}

AgentFault TreeWriter::EndFile() {
  if (!file_.valid()) return OutOfOrder();
  if (fchmod(file_.get(), file_mode_) != 0 ||
      renameat(place(), temporary_name_.c_str(), place(), file_name_.c_str()) != 0) {
    return AgentFault::Of(errno, "cannot make", file_name_);
  }
  file_ = UniqueFd();
  return {};
}

AgentFault TreeWriter::EnterDirectory(const EntryMessage& entry) {
  if (entered_.size() >= kMostTreeDepth) return {ELOOP, "the tree is too deep"};
  Directory directory = {
      .fd = {}, .mode = entry.mode, .is_new = true, .name = std::string(entry.name)};
  if (mkdirat(place(), directory.name.c_str(), 0700) != 0) {
    if (errno != EEXIST) return AgentFault::Of(errno, "cannot make directory", entry.name);
    directory.is_new = false;
  }
  directory.fd = UniqueFd(openat(place(), directory.name.c_str(), kInside));
  if (!directory.fd.valid()) return AgentFault::Of(errno, "cannot open directory", entry.name);
  entered_.push_back(std::move(directory));
  return {};
}

AgentFault TreeWriter::Leave() {
  if (entered_.empty() || file_.valid()) return OutOfOrder();
  const Directory& left = entered_.back();
  if (left.is_new && fchmod(left.fd.get(), left.mode) != 0) {
    return AgentFault::Of(errno, "cannot set the permissions of", left.name);
  }
  entered_.pop_back();
  return {};
}

// Instead of what has the name, as a file does it.
AgentFault TreeWriter::MakeLink(const EntryMessage& entry) {
  if (AgentFault fault = CheckIsReplaced(entry.name)) return fault;
  const std::string name(entry.name), target(entry.target), temporary = TemporaryName();
  if (symlinkat(target.c_str(), place(), temporary.c_str()) != 0) {
    return AgentFault::Of(errno, "cannot make link", name);
  }
  if (renameat(place(), temporary.c_str(), place(), name.c_str()) == 0) return {};
  const int error = errno;
  unlinkat(place(), temporary.c_str(), 0);
  return AgentFault::Of(error, "cannot make link", name);
}

}  // namespace ringside
