#include "image/image_file.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open_error.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "block/file_lock.h"
#include "file/file_open.h"

namespace ringside {
namespace {

absl::Status CannotOpen(int error, const std::string& name, ImageFile::Access access) {
  const std::string what = "cannot open " + name;
  const OpenRemedies remedies = {.missing = "correct the path",
                                 .forbidden = access == ImageFile::Access::kWrite
                                                  ? "give yourself the right to write it"
                                                  : "give yourself the right to read it",
                                 .busy = "unmount it, or end what uses it"};
  if (error != EAGAIN) return OpenError(error, what, remedies);
  // Somebody has a lease of it.
  return absl::FailedPreconditionError(ErrnoError(error, what, remedies.busy).message());
}

absl::Status CheckType(const struct stat& info, const std::string& name) {
  if (S_ISREG(info.st_mode) || S_ISBLK(info.st_mode)) return absl::OkStatus();
  return BadInput("%s is neither a regular file nor a block device; name one of these", name);
}

}  // namespace

absl::StatusOr<ImageFile> ImageFile::Open(const std::string& path, Access access,
                                          std::string_view what) {
  const std::string name = absl::StrFormat("%s '%s'", what, path);
  // A look before the open, as opening a device may have effects; O_NONBLOCK as it may have become
  // a FIFO meanwhile.
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return CannotOpen(errno, name, access);
  RINGSIDE_RETURN_IF_ERROR(CheckType(info, name));
  const bool writes = access == Access::kWrite;
  const int exclusive = S_ISBLK(info.st_mode) && writes ? O_EXCL : 0;
  UniqueFd fd(open(path.c_str(),
                   (writes ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | exclusive));
  if (!fd.valid()) return CannotOpen(errno, name, access);
  if (fstat(fd.get(), &info) != 0) return ErrnoError(errno, "cannot stat " + name);
  RINGSIDE_RETURN_IF_ERROR(CheckType(info, name));
  if (access != Access::kLook) {
    RINGSIDE_RETURN_IF_ERROR(LockFile(fd.get(), !writes, name));
    RINGSIDE_RETURN_IF_ERROR(writes ? RefuseOthers(fd.get(), name) : RefuseWriters(fd.get(), name));
  }
  ImageFile file(std::move(fd), path, what);
  file.is_block_device_ = S_ISBLK(info.st_mode);
  return file;
}

ImageFile::ImageFile(UniqueFd fd, std::string path, std::string_view what)
    : fd_(std::move(fd)), path_(std::move(path)), name_(absl::StrFormat("%s '%s'", what, path_)) {}

absl::Status ImageFile::Error(int error, const char* what) const {
  return ErrnoError(error, absl::StrFormat("cannot %s %s", what, name_),
                    error == ENOSPC ? "make room on its file system, and repeat this" : "");
}

absl::StatusOr<uint64_t> ImageFile::Size() const {
  absl::StatusOr<uint64_t> size = ReadFileSize(fd_.get(), is_block_device_);
  if (size.ok()) return size;
  return Of(name_, size.status());
}

uint64_t ImageFile::BytesOnHost() const {
  struct stat info = {};
  constexpr uint64_t kUnit = 512;  // stat(2), st_blocks
  return fstat(fd_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_blocks) * kUnit : 0;
}

absl::Status ImageFile::Read(uint64_t offset, std::span<std::byte> bytes) const {
  const ssize_t got = ReadWholeAt(fd_.get(), bytes, offset);
  if (got < 0) return Error(static_cast<int>(-got), "read");
  if (static_cast<size_t>(got) < bytes.size()) {
    return BadInput("%s ends at byte %d, before its content does; it was cut short", name_,
                    offset + static_cast<uint64_t>(got));
  }
  return absl::OkStatus();
}

template <typename Change>
absl::Status ImageFile::Observed(BlockOp op, uint64_t offset, uint64_t length,
                                 std::span<const std::byte> data, const Change& change) {
  if (observer_ == nullptr) return change();
  const uint64_t number = observer_->Begins(op, offset, length, data);
  const absl::Status status = change();
  observer_->Ended(number, status.ok());
  return status;
}

absl::Status ImageFile::Write(uint64_t offset, std::span<const std::byte> bytes) {
  return Observed(BlockOp::kWrite, offset, bytes.size(), bytes, [&]() -> absl::Status {
    const int error = WriteWholeAt(fd_.get(), bytes, offset);
    return error == 0 ? absl::OkStatus() : Error(-error, "write");
  });
}

absl::Status ImageFile::WriteZeroes(uint64_t offset, uint64_t length) {
  const std::vector<std::byte> zeroes(std::min<uint64_t>(length, kPiece));
  while (length > 0) {
    const uint64_t piece = std::min<uint64_t>(length, zeroes.size());
    RINGSIDE_RETURN_IF_ERROR(Write(offset, std::span(zeroes).first(piece)));
    offset += piece;
    length -= piece;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> ImageFile::PunchHole(BlockOp op, uint64_t offset, uint64_t length) {
  if (length == 0) return true;
  bool is_able = true;
  RINGSIDE_RETURN_IF_ERROR(Observed(op, offset, length, {}, [&]() -> absl::Status {
    constexpr int kMode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    int result = 0;
    do {
      result = fallocate(fd_.get(), kMode, static_cast<off_t>(offset), static_cast<off_t>(length));
    } while (result != 0 && errno == EINTR);
    is_able = result == 0 || (errno != EOPNOTSUPP && errno != ENOSYS);
    return result == 0 || !is_able ? absl::OkStatus() : Error(errno, "punch a hole into");
  }));
  return is_able;
}

absl::Status ImageFile::Zero(uint64_t offset, uint64_t length) {
  RINGSIDE_ASSIGN_OR_RETURN(const bool is_done, PunchHole(BlockOp::kWriteZeroes, offset, length));
  return is_done ? absl::OkStatus() : WriteZeroes(offset, length);
}

absl::Status ImageFile::Discard(uint64_t offset, uint64_t length) {
  return PunchHole(BlockOp::kDiscard, offset, length).status();
}

uint64_t ImageFile::CopyInKernel(const ImageFile& source, uint64_t from, uint64_t to,
                                 uint64_t length) {
  uint64_t done = 0;
  while (kernel_copies_ && done < length) {
    auto in = static_cast<off_t>(from + done), out = static_cast<off_t>(to + done);
    const ssize_t copied = copy_file_range(source.fd(), &in, fd_.get(), &out, length - done, 0);
    if (copied < 0 && errno == EINTR) continue;
    // Different file systems, a kernel that cannot, the source's end: a copy through memory will
    // do, or say what is wrong.
    if (copied <= 0) kernel_copies_ = false;
    if (copied > 0) done += static_cast<uint64_t>(copied);
  }
  return done;
}

absl::Status ImageFile::CopyFrom(const ImageFile& source, uint64_t from, uint64_t to,
                                 uint64_t length) {
  // What is observed has to be seen.
  uint64_t done = observer_ == nullptr ? CopyInKernel(source, from, to, length) : 0;
  if (done < length) buffer_.resize(kPiece);
  while (done < length) {
    const auto piece = std::span(buffer_).first(std::min<uint64_t>(length - done, kPiece));
    RINGSIDE_RETURN_IF_ERROR(source.Read(from + done, piece));
    RINGSIDE_RETURN_IF_ERROR(Write(to + done, piece));
    done += piece.size();
  }
  return absl::OkStatus();
}

absl::Status ImageFile::Resize(uint64_t size) {
  if (ftruncate(fd_.get(), static_cast<off_t>(size)) != 0) return Error(errno, "resize");
  return absl::OkStatus();
}

absl::Status ImageFile::Flush() {
  return Observed(BlockOp::kFlush, 0, 0, {}, [&]() -> absl::Status {
    int result = 0;
    do {
      result = fsync(fd_.get());
    } while (result != 0 && errno == EINTR);
    return result == 0 ? absl::OkStatus() : Error(errno, "flush");
  });
}

ImageFile::Run ImageFile::NextRun(uint64_t offset, uint64_t limit) const {
  if (is_block_device_) return {.length = limit, .is_data = true};
  const off_t data = lseek(fd_.get(), static_cast<off_t>(offset), SEEK_DATA);
  if (data < 0) return {.length = limit, .is_data = errno != ENXIO};
  const auto begin = static_cast<uint64_t>(data);
  if (begin > offset) return {.length = std::min(begin - offset, limit), .is_data = false};
  const off_t hole = lseek(fd_.get(), data, SEEK_HOLE);
  if (hole <= data) return {.length = limit, .is_data = true};
  return {.length = std::min(static_cast<uint64_t>(hole) - offset, limit), .is_data = true};
}

}  // namespace ringside
