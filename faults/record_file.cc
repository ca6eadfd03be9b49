#include "faults/record_file.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bad_input_errno.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/status.h"
#include "block/file_lock.h"

namespace ringside {
namespace {

constexpr size_t kVectors = 64;  // in a system call

// All of them, at `offset`; false, and errno, if they cannot be written.
bool WriteAll(int fd, std::span<iovec> vectors, uint64_t offset) {
  while (!vectors.empty()) {
    const ssize_t written =
        pwritev(fd, vectors.data(), static_cast<int>(vectors.size()), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    offset += static_cast<uint64_t>(written);
    auto left = static_cast<size_t>(written);
    while (!vectors.empty() && left >= vectors.front().iov_len) {
      left -= vectors.front().iov_len;
      vectors = vectors.subspan(1);
    }
    if (vectors.empty()) break;
    vectors.front().iov_base = static_cast<std::byte*>(vectors.front().iov_base) + left;
    vectors.front().iov_len -= left;
  }
  return true;
}

// An older record may be replaced, but nothing that somebody else might miss.
absl::Status CheckReplaceable(int fd, const std::string& path) {
  struct stat info;
  if (fstat(fd, &info) != 0) return ErrnoError(errno, absl::StrFormat("cannot look at '%s'", path));
  if (!S_ISREG(info.st_mode)) {
    return BadInput("record=%s is no regular file: give the path of one, or of none yet", path);
  }
  std::array<char, RecordHeader::kMagic.size()> magic = {};
  if (info.st_size == 0) return absl::OkStatus();
  if (pread(fd, magic.data(), magic.size(), 0) == ssize_t{magic.size()} &&
      magic == RecordHeader::kMagic) {
    return absl::OkStatus();
  }
  return BadInput("record=%s holds something that is no record: move it away, or give another path",
                  path);
}

}  // namespace

RecordFile::RecordFile(UniqueFd file, std::string path, uint64_t limit, Logger logger)
    : file_(std::move(file)),
      path_(std::move(path)),
      limit_(limit),
      logger_(logger),
      start_ns_(MonotonicNs()) {}

absl::StatusOr<std::unique_ptr<RecordFile>> RecordFile::Create(const std::string& path,
                                                               uint64_t limit,
                                                               const BlockInfo& info,
                                                               Logger logger) {
  // Without waiting for the other end of a pipe.
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!file.valid()) return BadInputErrno(errno, absl::StrFormat("cannot make record=%s", path));
  RINGSIDE_RETURN_IF_ERROR(CheckReplaceable(file.get(), path));
  RINGSIDE_RETURN_IF_ERROR(LockFile(file.get(), false, path));
  if (ftruncate(file.get(), 0) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot empty record=%s", path));
  }
  std::unique_ptr<RecordFile> record(new RecordFile(std::move(file), path, limit, logger));
  const RecordHeader header = {.disk_bytes = info.size, .logical_block = info.logical_block};
  const MutexLock lock(record->mutex_);
  if (!record->Write(&header, sizeof header, {})) {
    return ErrnoError(errno, absl::StrFormat("cannot write record=%s", path));
  }
  return record;
}

RecordEntry RecordFile::EntryOf(RecordEntry::Kind kind, uint64_t number,
                                const BlockRequest& request) const {
  uint64_t length = 0;
  if (request.op == BlockOp::kWrite) {
    length = TotalLength(request.segments);
  } else if (request.op != BlockOp::kFlush) {
    length = request.length;
  }
  return {.kind = kind,
          .op = static_cast<uint8_t>(request.op),
          .flags = static_cast<uint16_t>((request.durable ? RecordEntry::kDurable : 0) |
                                         (request.unmap ? RecordEntry::kUnmap : 0)),
          .number = number,
          .offset = request.op == BlockOp::kFlush ? 0 : request.offset,
          .length = length,
          .time_ns = MonotonicNs() - start_ns_};
}

uint64_t RecordFile::Submitted(const BlockRequest& request) {
  const MutexLock lock(mutex_);
  const uint64_t number = ++last_number_;
  if (ended_) return number;
  const bool has_data = request.op == BlockOp::kWrite;
  Append(EntryOf(RecordEntry::Kind::kSubmitted, number, request),
         has_data ? request.segments : std::span<const Segment>());
  return number;
}

bool RecordFile::Completed(uint64_t number, const BlockRequest& request, int result) {
  const MutexLock lock(mutex_);
  if (ended_) return false;
  RecordEntry entry = EntryOf(RecordEntry::Kind::kCompleted, number, request);
  entry.result = result;
  Append(entry, {});
  return !ended_;
}

void RecordFile::Append(const RecordEntry& entry, std::span<const Segment> data) {
  const uint64_t end = sizeof(RecordEntry);
  if (bytes_ + sizeof entry + TotalLength(data) + end > limit_) {
    return EndHere(
        absl::StrFormat("it has reached its limit of %s (record-limit=)", FormatSize(limit_)));
  }
  if (!Write(&entry, sizeof entry, data))
    EndHere(std::string(Message(ErrnoError(errno, "it cannot be written"))));
}

bool RecordFile::Write(const void* head, size_t head_bytes, std::span<const Segment> data) {
  std::array<iovec, kVectors> vectors;
  vectors[0] = {const_cast<void*>(head), head_bytes};  // pwritev(2) reads it
  size_t count = 1;
  uint64_t at = bytes_, bytes = head_bytes;
  const auto write = [&] {
    if (!WriteAll(file_.get(), std::span(vectors).first(count), at)) return false;
    at += bytes;
    count = bytes = 0;
    return true;
  };
  for (const Segment& segment : data) {
    if (count == kVectors && !write()) return false;
    vectors[count++] = {segment.host, segment.length};
    bytes += segment.length;
  }
  if (!write()) return false;
  bytes_ = at;
  return true;
}

void RecordFile::EndHere(const std::string& reason) {
  ended_ = true;
  // Part of an entry may stand behind the last whole one.
  const bool is_whole = ftruncate(file_.get(), static_cast<off_t>(bytes_)) == 0;
  const RecordEntry end = {.kind = RecordEntry::Kind::kEnd, .time_ns = MonotonicNs() - start_ns_};
  if (is_whole) Write(&end, sizeof end, {});
  logger_.Log(Severity::kWarning, "record '%s' ends here, and the disk goes on without: %s", path_,
              reason);
}

uint64_t RecordFile::bytes() const {
  const MutexLock lock(mutex_);
  return bytes_;
}

bool RecordFile::has_ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

}  // namespace ringside
