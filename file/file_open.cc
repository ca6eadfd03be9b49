#include "file/file_open.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/open_error.h"
#include "base/status.h"
#include "block/file_lock.h"
#include "block/op_memory.h"

namespace ringside {
namespace {

constexpr uint32_t kSector = 512;
constexpr uint32_t kMaxLogicalBlock = 4096;
constexpr size_t kProbeSize = size_t{2} * kMaxLogicalBlock;

// What O_DIRECT asks for.
struct DirectAlignment {
  uint32_t memory;
  uint32_t offset;
};

// One file on its way to being open.
class Opening {
 public:
  Opening(const FileConfig& config, Logger logger, UniqueFd opened)
      : config_(config), logger_(logger), is_given_(opened.valid()), fd_(std::move(opened)) {}
  absl::StatusOr<OpenedFile> Run();

 private:
  absl::Status CheckType(const struct stat& info) const;
  absl::StatusOr<UniqueFd> OpenPath(int extra_flags) const;
  absl::Status CannotOpen(int error) const;
  absl::Status Open();
  absl::Status TakeOpened();
  absl::Status ReadSize();
  void WarnOfFormat() const;
  absl::Status ChooseCache();
  absl::Status TurnDirectOn();
  absl::StatusOr<DirectAlignment> FindAlignment() const;
  absl::StatusOr<DirectAlignment> ProbeAlignment() const;
  absl::Status RefuseDirect(std::string_view why) const;
  InlineIo ChooseInline() const;
  void DescribeBlocks();
  uint64_t DiscardGranularity() const;

  bool is_block_device() const { return S_ISBLK(stat_.st_mode); }
  // These and no others. A read then writes nothing either, unless the file is somebody else's.
  bool SetFlags(int flags) const {
    return fcntl(fd_.get(), F_SETFL, flags | O_NOATIME) == 0 ||
           fcntl(fd_.get(), F_SETFL, flags) == 0;
  }

  const FileConfig& config_;
  const Logger logger_;
  const bool is_given_;  // by somebody who knows what it is
  const std::string name_ = absl::StrFormat("disk '%s'", config_.path);
  UniqueFd fd_;
  struct stat stat_ = {};
  uint64_t size_ = 0;
  CacheMode cache_ = CacheMode::kWriteback;
  DirectAlignment alignment_ = {.memory = 1, .offset = 1};
  BlockInfo info_;
};

absl::StatusOr<OpenedFile> Opening::Run() {
  RINGSIDE_RETURN_IF_ERROR(fd_.valid() ? TakeOpened() : Open());
  // Before anything is learned of the content: another writer may be about to change its size.
  RINGSIDE_RETURN_IF_ERROR(LockFile(fd_.get(), config_.read_only, name_));
  RINGSIDE_RETURN_IF_ERROR(ReadSize());
  if (!is_given_) WarnOfFormat();
  RINGSIDE_RETURN_IF_ERROR(ChooseCache());
  DescribeBlocks();
  auto target = std::make_unique<FileTarget>();
  target->inline_io = ChooseInline();
  target->fd = std::move(fd_);
  target->size = size_;
  target->read_only = config_.read_only;
  target->direct = IsDirect(cache_);
  target->ignore_flushes = cache_ == CacheMode::kUnsafe;
  target->memory_alignment = alignment_.memory;
  target->offset_alignment = alignment_.offset;
  return OpenedFile{.target = std::move(target), .info = info_, .cache = cache_};
}

absl::Status Opening::CheckType(const struct stat& info) const {
  if (S_ISREG(info.st_mode) || S_ISBLK(info.st_mode)) return absl::OkStatus();
  if (S_ISDIR(info.st_mode)) return BadInput("%s is a directory; name a file", name_);
  return BadInput("%s is neither a regular file nor a block device; name one of these", name_);
}

absl::Status Opening::CannotOpen(int error) const {
  return OpenError(
      error, "cannot open " + name_,
      {.missing = "make one with 'truncate -s 1G FILE', or correct the path",
       .forbidden = config_.read_only ? "give yourself the right to read it"
                                      : "give yourself the right to write it, or use readonly=on",
       .busy = "unmount it, end what uses it, or use readonly=on"});
}

absl::StatusOr<UniqueFd> Opening::OpenPath(int extra_flags) const {
  const int access = config_.read_only ? O_RDONLY : O_RDWR;
  UniqueFd fd(open(config_.path.c_str(), access | O_CLOEXEC | O_NOCTTY | extra_flags));
  if (!fd.valid()) return CannotOpen(errno);
  return fd;
}

absl::Status Opening::Open() {
  // A look before the open: opening a tape or a watchdog has effects.
  struct stat before;
  if (stat(config_.path.c_str(), &before) != 0) return CannotOpen(errno);
  RINGSIDE_RETURN_IF_ERROR(CheckType(before));
  // On a block device O_EXCL keeps mounts and other such openers out. O_NONBLOCK: a FIFO put in the
  // place meanwhile must not stall.
  const int exclusive = S_ISBLK(before.st_mode) && !config_.read_only ? O_EXCL : 0;
  RINGSIDE_ASSIGN_OR_RETURN(fd_, OpenPath(exclusive | O_NONBLOCK));
  if (fstat(fd_.get(), &stat_) != 0) return ErrnoError(errno, "cannot stat " + name_);
  RINGSIDE_RETURN_IF_ERROR(CheckType(stat_));
  if (is_block_device() != S_ISBLK(before.st_mode)) {
    return absl::FailedPreconditionError(name_ + " was replaced while it was opened; try again");
  }
  // O_NONBLOCK is over: io_uring takes it for the wish to fail with EAGAIN rather than wait.
  if (!SetFlags(0)) return ErrnoError(errno, "cannot set up " + name_);
  return absl::OkStatus();
}

absl::Status Opening::TakeOpened() {
  if (fstat(fd_.get(), &stat_) != 0) return ErrnoError(errno, "cannot stat " + name_);
  RINGSIDE_RETURN_IF_ERROR(CheckType(stat_));
  if (!SetFlags(0)) return ErrnoError(errno, "cannot set up " + name_);
  return absl::OkStatus();
}

absl::Status Opening::ReadSize() {
  // Again, now that it is locked.
  if (fstat(fd_.get(), &stat_) != 0) return ErrnoError(errno, "cannot stat " + name_);
  const absl::StatusOr<uint64_t> size = ReadFileSize(fd_.get(), is_block_device());
  RINGSIDE_RETURN_IF_ERROR(Of(name_, size.status()));
  size_ = *size;
  if (size_ == 0) {
    return BadInput("%s is empty; give it a size with 'truncate -s 1G %s'", name_, config_.path);
  }
  if (size_ % kSector != 0) {
    return BadInput(
        "%s has %d bytes, not a multiple of 512; if it is a raw image, extend it with "
        "'truncate -s %%512 %s'",
        name_, size_, config_.path);
  }
  return absl::OkStatus();
}

// The bytes are the disk, whatever they are: what acts on them lets a guest choose the files of its
// host, which has bitten others. But they may be another's way to keep a disk.
void Opening::WarnOfFormat() const {
  struct Format {
    std::string_view magic;
    const char* name;
    const char* remedy;
  };
  static constexpr std::array kFormats = {
      Format{"QFI\xfb", "a qcow2 image", "'qemu-img convert -O raw'"},
      Format{"KDMV", "a VMDK image", "'qemu-img convert -O raw'"},
      Format{"vhdxfile", "a VHDX image", "'qemu-img convert -O raw'"},
      Format{"RSOVLAY\n", "an overlay of Ringside", "base= and overlay= in place of path="}};
  std::array<char, 8> begin = {};
  if (pread(fd_.get(), begin.data(), begin.size(), 0) != std::ssize(begin)) return;
  for (const Format& format : kFormats) {
    if (!std::string_view(begin.data(), begin.size()).starts_with(format.magic)) continue;
    logger_.Log(
        Severity::kWarning,
        "%s begins like %s, and the guest gets these bytes as they are; if the disk in it is "
        "meant, use %s",
        name_, format.name, format.remedy);
  }
}

absl::Status Opening::ChooseCache() {
  cache_ = config_.cache.value_or(CacheMode::kNone);
  if (IsDirect(cache_)) {
    const absl::Status direct = TurnDirectOn();
    if (!direct.ok()) {
      if (config_.cache.has_value()) return direct;
      SetFlags(0);
      cache_ = CacheMode::kWriteback;
      logger_.Log(Severity::kInfo, "%s; using cache=writeback", Message(direct));
    }
  }
  if (config_.aio == Engine::kNative && !IsDirect(cache_)) {
    return BadInput(
        "%s: aio=native needs O_DIRECT but cache is %s; use cache=none or "
        "cache=directsync, or aio=threads",
        name_, CacheModeName(cache_));
  }
  return absl::OkStatus();
}

absl::Status Opening::RefuseDirect(std::string_view why) const {
  return BadInput("%s: cache=%s needs O_DIRECT, but %s; use cache=writeback", name_,
                  CacheModeName(cache_), why);
}

absl::Status Opening::TurnDirectOn() {
  if (!SetFlags(O_DIRECT)) {
    return RefuseDirect("its file system does not take it");
  }
  RINGSIDE_ASSIGN_OR_RETURN(const DirectAlignment found, FindAlignment());
  if (found.offset > kMaxLogicalBlock || found.memory > BouncePool::kAlignment) {
    return RefuseDirect(absl::StrFormat("that works in units of %d bytes here, more than 4096",
                                        std::max(found.offset, found.memory)));
  }
  if (size_ % found.offset != 0) {
    return RefuseDirect(
        absl::StrFormat("that works in units of %d bytes here and it has %d bytes, or extend it "
                        "with 'truncate -s %%%d %s'",
                        found.offset, size_, found.offset, config_.path));
  }
  alignment_ = {.memory = found.memory, .offset = std::max(found.offset, kSector)};
  return absl::OkStatus();
}

absl::StatusOr<DirectAlignment> Opening::FindAlignment() const {
#ifdef STATX_DIOALIGN
  struct statx info = {};
  if (statx(fd_.get(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    if (info.stx_dio_offset_align == 0) return RefuseDirect("this file does not take it");
    if (std::has_single_bit(info.stx_dio_offset_align) &&
        std::has_single_bit(info.stx_dio_mem_align)) {
      return DirectAlignment{.memory = info.stx_dio_mem_align, .offset = info.stx_dio_offset_align};
    }
  }
#endif
  int sector = 0;
  if (is_block_device() && ioctl(fd_.get(), BLKSSZGET, &sector) == 0 && sector > 0) {
    return DirectAlignment{.memory = static_cast<uint32_t>(sector),
                           .offset = static_cast<uint32_t>(sector)};
  }
  return ProbeAlignment();
}

absl::StatusOr<DirectAlignment> Opening::ProbeAlignment() const {
  const std::unique_ptr<void, decltype(&std::free)> buffer(
      std::aligned_alloc(kProbeSize, kProbeSize), &std::free);
  if (buffer == nullptr) return absl::ResourceExhaustedError("no memory to probe " + name_);
  for (const uint32_t unit : {kSector, kMaxLogicalBlock}) {
    // Aligned to the unit and to no more.
    ssize_t result = 0;
    do {
      result = pread(fd_.get(), static_cast<std::byte*>(buffer.get()) + unit, unit, 0);
    } while (result < 0 && errno == EINTR);
    if (result >= 0) return DirectAlignment{.memory = unit, .offset = unit};
    if (errno != EINVAL) return ErrnoError(errno, "cannot read " + name_);
  }
  return RefuseDirect("reads of 512 and of 4096 bytes fail with it");
}

InlineIo Opening::ChooseInline() const {
  if (!config_.inline_io) return InlineIo::kNever;
  // Pages of tmpfs that were swapped out have to be waited for, as those of guest memory have,
  // which the thread touches anyway. O_DIRECT changes nothing there. A block device is asked for by
  // type: its node lies in /dev, which is a tmpfs too.
  struct statfs system;
  if (!is_block_device() && fstatfs(fd_.get(), &system) == 0 && system.f_type == TMPFS_MAGIC) {
    return InlineIo::kMemory;
  }
  // With O_DIRECT, RWF_NOWAIT waits for the device all the same (seen with ext4).
  return IsDirect(cache_) ? InlineIo::kNever : InlineIo::kCached;
}

// What the guest is told. O_DIRECT must be able to do every block, and the page cache can do any.
void Opening::DescribeBlocks() {
  info_.size = size_;
  if (is_block_device()) info_.host_device = stat_.st_rdev;
  info_.read_only = config_.read_only;
  info_.write_back = cache_ != CacheMode::kWritethrough && cache_ != CacheMode::kDirectsync;
  info_.can_discard = !config_.read_only;
  info_.logical_block = std::max(alignment_.offset, kSector);
  uint64_t physical = static_cast<uint64_t>(stat_.st_blksize);
  uint64_t optimal = physical;
  if (is_block_device()) {
    unsigned value = 0;
    if (ioctl(fd_.get(), BLKPBSZGET, &value) == 0) physical = value;
    optimal = ioctl(fd_.get(), BLKIOOPT, &value) == 0 ? value : 0;
  } else if (physical > kMaxLogicalBlock) {
    physical = kMaxLogicalBlock;  // a file system that asks for more means its stripes
  }
  // A power of two, of logical blocks (VIRTIO 1.2 section 5.2.4); anything else goes untold.
  info_.physical_block =
      std::has_single_bit(physical) && physical >= info_.logical_block && physical <= (1U << 20)
          ? static_cast<uint32_t>(physical)
          : info_.logical_block;
  if (optimal > info_.physical_block && optimal % info_.logical_block == 0 &&
      optimal <= (1U << 30)) {
    info_.optimal_io = static_cast<uint32_t>(optimal);
  }
  const uint64_t granularity = DiscardGranularity();
  info_.discard_alignment = granularity % info_.logical_block == 0 && granularity != 0
                                ? static_cast<uint32_t>(std::min<uint64_t>(granularity, 1U << 30))
                                : info_.logical_block;
}

uint64_t Opening::DiscardGranularity() const {
  if (!is_block_device()) return static_cast<uint64_t>(stat_.st_blksize);
  const std::string path = absl::StrFormat("/sys/dev/block/%d:%d/queue/discard_granularity",
                                           major(stat_.st_rdev), minor(stat_.st_rdev));
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[32] = {};
  if (!file.valid() || read(file.get(), text, sizeof text - 1) <= 0) return 0;
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

// Closing the descriptor is not enough: a ring in which the file was registered holds it, and with
// it the lock, for a while longer, and who starts the next machine at once would be refused.
FileTarget::~FileTarget() {
  if (fd.valid()) UnlockFile(fd.get());
}

absl::StatusOr<uint64_t> ReadFileSize(int fd, bool is_block_device) {
  uint64_t size = 0;
  struct stat info = {};
  const int failed = is_block_device ? ioctl(fd, BLKGETSIZE64, &size) : fstat(fd, &info);
  if (failed != 0) return ErrnoError(errno, "cannot read its size");
  return is_block_device ? size : static_cast<uint64_t>(info.st_size);
}

absl::StatusOr<OpenedFile> OpenFile(const FileConfig& config, Logger logger, UniqueFd opened) {
  return Opening(config, logger, std::move(opened)).Run();
}

}  // namespace ringside
