// A file or block device of the host as the offline tools read and write it: blocking, through the
// page cache, in large pieces.
//
// Everything that the tools change goes through here, so an observer of a file sees its writes and
// flushes in their order: tests make records for tools/powercut of them.
//
// Threads: one at a time. Units: bytes. Errors: one line with the file's name; ENOSPC is
// ResourceExhausted.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "block/block_device.h"

namespace ringside {

// Who is told of a file's writes, zeroings and flushes.
class WriteObserver {
 public:
  virtual ~WriteObserver() = default;
  // Before it goes to the file. `data`: of a write. Returns a number for Ended.
  virtual uint64_t Begins(BlockOp op, uint64_t offset, uint64_t length,
                          std::span<const std::byte> data) = 0;
  virtual void Ended(uint64_t number, bool succeeded) = 0;
};

class ImageFile {
 public:
  static constexpr size_t kPiece = 1 << 20;  // bytes, of copies through memory

  enum class Access {
    kLook,   // read, while others may be changing it
    kRead,   // refused while anybody has it open for writing
    kWrite,  // refused while anybody else has it open at all
  };

  // `what`: the file's part, as "base"; in messages, "base 'FILE'". It is locked as a machine would
  // lock it, for as long as it is open, unless for a look.
  // InvalidArgument, NotFound, PermissionDenied, FailedPrecondition: the user's to mend.
  static absl::StatusOr<ImageFile> Open(const std::string& path, Access access,
                                        std::string_view what);
  // Of a file that nobody else knows yet.
  ImageFile(UniqueFd fd, std::string path, std::string_view what);

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  bool is_block_device() const { return is_block_device_; }
  absl::StatusOr<uint64_t> Size() const;
  // That the file takes of its file system.
  uint64_t BytesOnHost() const;
  void Observe(WriteObserver* observer) { observer_ = observer; }

  // All of them; a file that ends before is an error.
  absl::Status Read(uint64_t offset, std::span<std::byte> bytes) const;
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes);
  // Makes them zeroes, and gives back their space where the file system can.
  absl::Status Zero(uint64_t offset, uint64_t length);
  // Gives back their space where the file system can; nobody reads them any more.
  absl::Status Discard(uint64_t offset, uint64_t length);
  // By a shared extent where the file system has such, else within the kernel if it can.
  absl::Status CopyFrom(const ImageFile& source, uint64_t from, uint64_t to, uint64_t length);
  absl::Status Resize(uint64_t size);
  // What was written is there after a power cut, and so is its time, by which a base is known.
  absl::Status Flush();

  struct Run {
    uint64_t length;
    bool is_data;  // else a hole: zeroes
  };
  // From `offset` on, up to `limit` bytes, which are in the file. Where holes cannot be told all is
  // data.
  Run NextRun(uint64_t offset, uint64_t limit) const;

 private:
  // Tells the observer, if there is one.
  template <typename Change>
  absl::Status Observed(BlockOp op, uint64_t offset, uint64_t length,
                        std::span<const std::byte> data, const Change& change);
  absl::Status Error(int error, const char* what) const;
  absl::Status WriteZeroes(uint64_t offset, uint64_t length);
  // False: the file system cannot.
  absl::StatusOr<bool> PunchHole(BlockOp op, uint64_t offset, uint64_t length);
  // How many bytes the kernel has copied; fewer than `length`: it cannot.
  uint64_t CopyInKernel(const ImageFile& source, uint64_t from, uint64_t to, uint64_t length);

  UniqueFd fd_;
  std::string path_;
  std::string name_;
  bool is_block_device_ = false;
  bool kernel_copies_ = true;  // no copy has failed yet
  WriteObserver* observer_ = nullptr;
  std::vector<std::byte> buffer_;  // of copies, once there is one
};

}  // namespace ringside
