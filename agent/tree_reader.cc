#include "agent/tree_reader.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/agent_message.h"

namespace ringside {
namespace {

// A FIFO that nobody writes, or a terminal, must not hold the reader.
constexpr int kCareful = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

// Of a stream that another process has made one that does not wait. Whether it is worth a try.
// Files of the kernel's that may have nothing to read, such as /proc/kmsg, are not waited for.
bool AwaitInput(int fd) {
  pollfd input = {.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&input, 1, -1) > 0 || errno == EINTR;
}

uint32_t Permissions(mode_t mode) {
  return mode & 0777;
}

}  // namespace

void TreeReader::Open(std::string_view path, bool with_directories) {
  path_ = path;
  top_name_ = NameOfTree(path);
  with_directories_ = with_directories;
}

void TreeReader::OpenStream(UniqueFd fd, uint32_t mode) {
  file_ = std::move(fd);
  stream_mode_ = mode;
  is_stream_ = true;
}

AgentFault TreeReader::Step(std::string& out) {
  if (!has_begun_) {
    has_begun_ = true;
    if (!is_stream_) return Begin(AT_FDCWD, path_, 0, out);
    Encode(EntryMessage{.mode = stream_mode_}, out);
    return {};
  }
  if (file_.valid()) return StepFile(out);
  if (!entered_.empty()) return StepDirectory(out);
  AppendFrame(AgentType::kTreeEnd, {}, out);
  is_complete_ = true;
  return {};
}

// It is looked at before it is opened: opening a device may do something.
AgentFault TreeReader::Begin(int place, const std::string& name, int flags, std::string& out) {
  struct stat before = {};
  if (fstatat(place, name.c_str(), &before, flags) != 0) {
    return AgentFault::Of(errno, "cannot read", name);
  }
  if (S_ISLNK(before.st_mode)) return BeginLink(place, name, out);
  if (!S_ISREG(before.st_mode) && !S_ISDIR(before.st_mode)) {
    return {EOPNOTSUPP, "'" + name + "' is no file, directory or symbolic link"};
  }
  const bool is_top = place == AT_FDCWD;
  UniqueFd fd(openat(place, name.c_str(), is_top ? kCareful : kCareful | O_NOFOLLOW));
  struct stat now = {};
  if (!fd.valid() || fstat(fd.get(), &now) != 0) {
    return AgentFault::Of(errno, "cannot read", name);
  }
  const std::string shown = is_top ? top_name_ : name;
  if (S_ISREG(now.st_mode)) return BeginFile(std::move(fd), shown, out);
  if (S_ISDIR(now.st_mode)) return BeginDirectory(std::move(fd), shown, out);
  return {EOPNOTSUPP, "'" + name + "' is no file, directory or symbolic link"};
}

AgentFault TreeReader::BeginFile(UniqueFd fd, const std::string& name, std::string& out) {
  struct stat file = {};
  if (fstat(fd.get(), &file) != 0) return AgentFault::Of(errno, "cannot read", name);
  file_ = std::move(fd);
  file_name_ = name;
  file_size_ = static_cast<uint64_t>(file.st_size);
  file_read_ = 0;
  Encode(EntryMessage{.kind = EntryKind::kFile,
                      .mode = Permissions(file.st_mode),
                      .size = file_size_,
                      .name = name},
         out);
  return {};
}

AgentFault TreeReader::BeginDirectory(UniqueFd fd, const std::string& name, std::string& out) {
  if (!with_directories_) return {EISDIR, "'" + name + "' is a directory; copy it with -r"};
  if (entered_.size() >= kMostTreeDepth) return {ELOOP, "the tree is too deep"};
  struct stat directory = {};
  DirectoryStream stream;
  if (fstat(fd.get(), &directory) == 0) {
    stream.reset(fdopendir(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)));
  }
  if (!stream) return AgentFault::Of(errno, "cannot read directory", name);
  Encode(
      EntryMessage{
          .kind = EntryKind::kDirectory, .mode = Permissions(directory.st_mode), .name = name},
      out);
  entered_.push_back(std::move(stream));
  return {};
}

AgentFault TreeReader::BeginLink(int place, const std::string& name, std::string& out) {
  std::array<char, kMostPath + 1> target;
  const ssize_t size = readlinkat(place, name.c_str(), target.data(), target.size());
  if (size <= 0 || static_cast<size_t>(size) > kMostPath) {
    return AgentFault::Of(size < 0 ? errno : ENAMETOOLONG, "cannot read link", name);
  }
  Encode(EntryMessage{.kind = EntryKind::kLink,
                      .name = name,
                      .target = {target.data(), static_cast<size_t>(size)}},
         out);
  return {};
}

AgentFault TreeReader::StepFile(std::string& out) {
  std::array<char, kMostData> data;
  ssize_t got;
  do {
    got = read(file_.get(), data.data(), data.size());
  } while (got < 0 &&
           (errno == EINTR || (errno == EAGAIN && is_stream_ && AwaitInput(file_.get()))));
  if (got < 0) return AgentFault::Of(errno, "cannot read", file_name_);
  if (got == 0) {
    file_ = UniqueFd();
    AppendFrame(AgentType::kFileEnd, {}, out);
    return {};
  }
  file_read_ += static_cast<uint64_t>(got);
  AppendFrame(AgentType::kData, {data.data(), static_cast<size_t>(got)}, out);
  return {};
}

AgentFault TreeReader::StepDirectory(std::string& out) {
  DIR* const directory = entered_.back().get();
  errno = 0;
  const dirent* entry;
  do {
    entry = readdir(directory);  // NOLINT(concurrency-mt-unsafe): a stream of its own
  } while (entry != nullptr &&
           (std::string_view(entry->d_name) == "." || std::string_view(entry->d_name) == ".."));
  if (entry != nullptr) return Begin(dirfd(directory), entry->d_name, AT_SYMLINK_NOFOLLOW, out);
  if (errno != 0) return AgentFault::Of(errno, "cannot read directory", top_name_);
  entered_.pop_back();
  AppendFrame(AgentType::kLeave, {}, out);
  return {};
}

}  // namespace ringside
