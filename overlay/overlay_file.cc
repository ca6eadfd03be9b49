#include "overlay/overlay_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include "base/open_error.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "block/file_lock.h"

namespace ringside {
namespace {

// Pages of the map that are read or written at a time.
constexpr size_t kBatch = 64;

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};

// Objects as O_DIRECT wants them.
template <typename T>
std::unique_ptr<T[], FreeMemory> Aligned(size_t count) {
  auto* const memory = static_cast<T*>(std::aligned_alloc(kOverlaySlotBytes, count * sizeof(T)));
  if (memory == nullptr) std::abort();
  std::uninitialized_value_construct_n(memory, count);
  return std::unique_ptr<T[], FreeMemory>(memory);
}

// -errno, EIO for what the file does not have.
int ReadAt(int fd, void* to, size_t bytes, uint64_t offset) {
  const ssize_t got = ReadWholeAt(fd, {static_cast<std::byte*>(to), bytes}, offset);
  if (got < 0) return static_cast<int>(got);
  return static_cast<size_t>(got) == bytes ? 0 : -EIO;
}

int WriteAt(int fd, const void* from, size_t bytes, uint64_t offset) {
  return WriteWholeAt(fd, {static_cast<const std::byte*>(from), bytes}, offset);
}

absl::Status CannotOpen(int error, const std::string& name, OverlayAccess access) {
  return OpenError(
      error, "cannot open " + name,
      {.missing = "correct the path",
       .forbidden = access == OverlayAccess::kRead ? "give yourself the right to read it"
                                                   : "give yourself the right to write it"});
}

std::string NameOf(const std::string& path) {
  return absl::StrFormat("overlay '%s'", path);
}

}  // namespace

OverlayFile::OverlayFile(UniqueFd fd, std::string path)
    : fd_(std::move(fd)), path_(std::move(path)), name_(NameOf(path_)) {}

bool OverlayFile::IsMissing(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return errno == ENOENT;
  if (!S_ISREG(info.st_mode)) return false;
  if (info.st_size == 0) return true;
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return fd.valid() && lseek(fd.get(), 0, SEEK_DATA) < 0 && errno == ENXIO;
}

absl::StatusOr<OverlayFile> OverlayFile::Create(const std::string& path, OverlayHeader header) {
  const std::string name = NameOf(path);
  const bool stands_there = access(path.c_str(), F_OK) == 0;
  if (stands_there && !IsMissing(path)) {
    return absl::AlreadyExistsError(
        absl::StrFormat("%s exists: remove it, or give another path", name));
  }
  const int exclusive = stands_there ? 0 : O_EXCL;
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | exclusive,
                   S_IRUSR | S_IWUSR));
  if (!fd.valid()) {
    const absl::Status error = ErrnoError(errno, "cannot make " + name,
                                          "correct the path, or the rights to its directory");
    return errno == ENOSPC ? error : absl::FailedPreconditionError(error.message());
  }
  RINGSIDE_RETURN_IF_ERROR(LockFile(fd.get(), false, name));
  // Somebody else may have been quicker.
  if (stands_there && !IsMissing(path)) {
    return absl::AlreadyExistsError(absl::StrFormat("%s has just been made; try again", name));
  }
  OverlayFile file(std::move(fd), path);
  file.is_new_ = true;
  file.has_durable_name_ = false;
  const uint64_t bytes = OverlayFileBytes(header.data_offset, header.size);
  if (ftruncate(file.fd(), 0) != 0 || ftruncate(file.fd(), static_cast<off_t>(bytes)) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot make %s %d bytes long", name, bytes),
                      "give it to a file system that takes such files, or make the disk smaller");
  }
  header.flags |= OverlayHeader::kInUse;
  file.slot_ = 1;  // so that it goes to the first
  RINGSIDE_RETURN_IF_ERROR(file.PutHeader(header));
  return file;
}

absl::StatusOr<OverlayFile> OverlayFile::Open(const std::string& path, OverlayAccess access) {
  const int mode = access == OverlayAccess::kWrite ? O_RDWR : O_RDONLY;
  const std::string name = NameOf(path);
  // A look before the open: opening a tape or a watchdog has effects.
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return CannotOpen(errno, name, access);
  if (!S_ISREG(info.st_mode)) return BadInput("%s is not a regular file; name one", name);
  UniqueFd fd(open(path.c_str(), mode | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!fd.valid()) return CannotOpen(errno, name, access);
  // O_NONBLOCK was for a FIFO put in its place meanwhile; io_uring would take it amiss.
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || fcntl(fd.get(), F_SETFL, 0) != 0) {
    return absl::FailedPreconditionError(name + " was replaced while it was opened; try again");
  }
  RINGSIDE_RETURN_IF_ERROR(LockFile(fd.get(), access == OverlayAccess::kRead, name));
  if (access == OverlayAccess::kRead) RINGSIDE_RETURN_IF_ERROR(RefuseWriters(fd.get(), name));
  OverlayFile file(std::move(fd), path);
  RINGSIDE_RETURN_IF_ERROR(file.ReadHeader());
  if ((file.header_.flags & OverlayHeader::kApplying) != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s has a part of a backup only: finish that with 'ringside image apply'", name));
  }
  return file;
}

absl::Status OverlayFile::ReadHeader() {
  struct stat info;
  if (fstat(fd(), &info) != 0) return ErrnoError(errno, "cannot stat " + name_);
  const auto length = static_cast<uint64_t>(info.st_size);
  if (length < kOverlayMapOffset) {
    return BadInput("%s is not an overlay; name one, or a file that is not there yet", name_);
  }
  const auto memory = Aligned<OverlayHeader>(2);
  if (const int error = ReadAt(fd(), memory.get(), kOverlayMapOffset, 0); error != 0) {
    return ErrnoError(-error, "cannot read " + name_);
  }
  const std::array<OverlayHeader, 2> slots = {memory[0], memory[1]};
  RINGSIDE_ASSIGN_OR_RETURN(const ChosenHeader chosen, ChooseHeader(slots, name_));
  header_ = chosen.header;
  slot_ = chosen.slot;
  const uint64_t least = OverlayFileBytes(header_.data_offset, header_.size);
  if (length < least) {
    return absl::DataLossError(
        absl::StrFormat("%s is truncated: it has %d bytes of %d", name_, length, least));
  }
  return absl::OkStatus();
}

// The next data of the map at `from` or behind it, up to `end`. False: there is none.
absl::StatusOr<bool> OverlayFile::FindData(uint64_t& from, uint64_t& end) const {
  const off_t data = lseek(fd(), static_cast<off_t>(from), SEEK_DATA);
  if (data < 0 && errno == ENXIO) return false;
  if (data < 0) return ErrnoError(errno, "cannot look for the map of " + name_);
  if (static_cast<uint64_t>(data) >= end) return false;
  const off_t hole = lseek(fd(), data, SEEK_HOLE);
  if (hole < 0) return ErrnoError(errno, "cannot look for the map of " + name_);
  from = static_cast<uint64_t>(data);
  end = std::min(end, static_cast<uint64_t>(hole));
  return true;
}

absl::StatusOr<OverlayFile::Loaded> OverlayFile::Load() const {
  Loaded loaded;
  RINGSIDE_ASSIGN_OR_RETURN(loaded.map, BlockMap::Create(header_));
  const uint64_t map_end = PageSlotOffset(header_.capacity / kBytesPerMapPage, 0);
  uint64_t next_page = 0;
  while (true) {
    uint64_t from = PageSlotOffset(next_page, 0);
    if (from >= map_end) return loaded;
    uint64_t end = map_end;
    RINGSIDE_ASSIGN_OR_RETURN(const bool any, FindData(from, end));
    if (!any) return loaded;
    const uint64_t first = (from - kOverlayMapOffset) / (2 * kOverlaySlotBytes);
    const uint64_t last = (end - 1 - kOverlayMapOffset) / (2 * kOverlaySlotBytes);
    RINGSIDE_RETURN_IF_ERROR(LoadPages(first, last + 1, loaded));
    next_page = last + 1;
  }
}

absl::Status OverlayFile::LoadPages(uint64_t first, uint64_t end, Loaded& loaded) const {
  const PageRules rules(header_);
  const auto memory = Aligned<MapPage>(2 * kBatch);
  for (uint64_t batch = first; batch < end; batch += kBatch) {
    const uint64_t count = std::min<uint64_t>(kBatch, end - batch);
    const int error =
        ReadAt(fd(), memory.get(), count * 2 * kOverlaySlotBytes, PageSlotOffset(batch, 0));
    if (error != 0) return ErrnoError(-error, "cannot read the map of " + name_);
    for (uint64_t i = 0; i < count; ++i) {
      const std::array<MapPage, 2> slots = {memory[2 * i], memory[2 * i + 1]};
      const ChosenPage chosen = ChoosePage(slots, batch + i, rules);
      if (chosen.is_corrupt) {
        ++loaded.corrupt_pages;
        loaded.map->SetBad(batch + i);
        continue;
      }
      if (chosen.slot) {
        ++loaded.pages;
        loaded.map->Load(batch + i, slots[*chosen.slot], *chosen.slot);
      }
      if (!chosen.is_torn) continue;
      ++loaded.torn_pages;
      // So that none is left when the file is closed.
      loaded.map->MarkChanged(batch + i);
    }
  }
  return absl::OkStatus();
}

absl::Status OverlayFile::PutHeader(OverlayHeader header) {
  SealHeader(header);
  const auto memory = Aligned<OverlayHeader>(1);
  memory[0] = header;
  const unsigned slot = slot_ ^ 1;
  const int error = WriteAt(fd(), memory.get(), kOverlaySlotBytes, HeaderSlotOffset(slot));
  if (error != 0) return ErrnoError(-error, "cannot write the header of " + name_);
  header_ = header;
  slot_ = slot;
  return absl::OkStatus();
}

// A slot counts as soon as it is there: nothing may be durable that it has to say of afterwards.
absl::Status OverlayFile::WriteHeader(const OverlayHeader& header) {
  const OverlayHeader before = header_;
  OverlayHeader next = header;
  next.sequence = header_.sequence + 1;
  RINGSIDE_RETURN_IF_ERROR(PutHeader(next));
  const absl::Status status = Flush();
  if (!status.ok()) {
    // The other slot may be all that is durable.
    header_ = before;
    slot_ ^= 1;
  }
  return status;
}

absl::Status OverlayFile::BeginUse() {
  if ((header_.flags & OverlayHeader::kCorrupt) != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s was found to be damaged; read what is left of it with readonly=on, or see 'ringside "
        "image check'",
        name_));
  }
  if ((header_.flags & OverlayHeader::kCommitting) != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s is being written into its base: finish that with 'ringside image commit'", name_));
  }
  // The slot of the last EndUse is durable before the other one is written over.
  RINGSIDE_RETURN_IF_ERROR(Flush());
  OverlayHeader next = header_;
  next.flags |= OverlayHeader::kInUse;
  next.autoclear &= kKnownAutoclear;
  RINGSIDE_ASSIGN_OR_RETURN(next.generation, NewOverlayId());
  return WriteHeader(next);
}

absl::Status OverlayFile::WriteMap(BlockMap& map) {
  if (!map.has_changes()) return absl::OkStatus();
  RINGSIDE_RETURN_IF_ERROR(Flush());
  std::vector<uint64_t> numbers;
  absl::Status status = PutPages(map, numbers);
  if (status.ok()) status = Flush();
  // Until they are durable, the slots before them are what counts.
  for (const uint64_t number : numbers) {
    if (status.ok()) {
      map.Written(number);
    } else {
      map.NotWritten(number);
    }
  }
  return status;
}

absl::Status OverlayFile::PutPages(BlockMap& map, std::vector<uint64_t>& numbers) {
  const auto memory = Aligned<MapPage>(1);
  while (const std::optional<uint64_t> number = map.PopChanged()) {
    numbers.push_back(*number);
    map.Copy(*number, memory[0]);
    const int error = WriteAt(fd(), memory.get(), kOverlaySlotBytes,
                              PageSlotOffset(*number, map.NextSlot(*number)));
    if (error != 0) return ErrnoError(-error, "cannot write the map of " + name_);
  }
  return absl::OkStatus();
}

absl::Status OverlayFile::EndUse(BlockMap& map, const std::optional<OverlayId>& unchanged) {
  map.DropIntents();
  RINGSIDE_RETURN_IF_ERROR(WriteMap(map));
  OverlayHeader next = header_;
  next.flags &= ~OverlayHeader::kInUse;
  if (unchanged.has_value() && *unchanged != header_.generation) {
    // What stands on it knows this one only.
    next.generation = *unchanged;
    return WriteHeader(next);
  }
  next.sequence = header_.sequence + 1;
  // Not flushed: until it is durable, the file is one that nobody has closed, and as good.
  return PutHeader(next);
}

absl::Status OverlayFile::Flush() {
  if (fdatasync(fd()) != 0) {
    has_failed_to_flush_ = true;
    return ErrnoError(errno, "cannot flush " + name_);
  }
  if (has_durable_name_) return absl::OkStatus();
  if (const int error = FlushDirectoryOf(path_); error != 0) {
    return ErrnoError(-error, "cannot flush the directory of " + name_);
  }
  has_durable_name_ = true;
  return absl::OkStatus();
}

absl::Status OverlayFile::Read(uint64_t offset, std::span<std::byte> bytes) const {
  const int error = ReadAt(fd(), bytes.data(), bytes.size(), header_.data_offset + offset);
  return error == 0 ? absl::OkStatus() : ErrnoError(-error, "cannot read " + name_);
}

absl::Status OverlayFile::Write(uint64_t offset, std::span<const std::byte> bytes) {
  const int error = WriteAt(fd(), bytes.data(), bytes.size(), header_.data_offset + offset);
  return error == 0 ? absl::OkStatus() : ErrnoError(-error, "cannot write " + name_);
}

int FlushDirectoryOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  const UniqueFd directory(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return directory.valid() && fsync(directory.get()) == 0 ? 0 : -errno;
}

absl::StatusOr<BaseIdentity> RawBaseIdentity(const std::string& path, uint64_t size) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot stat base '%s'", path));
  }
  BaseIdentity identity = {.kind = BaseKind::kRaw, .size = size};
  if (S_ISREG(info.st_mode)) {
    constexpr int64_t kNsPerSecond = 1'000'000'000;
    identity.modified_ns = info.st_mtim.tv_sec * kNsPerSecond + info.st_mtim.tv_nsec;
  }
  return identity;
}

BaseIdentity OverlayBaseIdentity(const OverlayHeader& header) {
  return {.kind = BaseKind::kOverlay,
          .size = header.size,
          .id = header.id,
          .generation = header.generation};
}

}  // namespace ringside
