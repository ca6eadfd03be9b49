#include "snapshot/memory_image.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "base/crc32c.h"
#include "base/pages.h"
#include "base/random.h"
#include "base/status.h"
#include "base/whole_io.h"
#include "snapshot/page_map.h"

namespace ringside {
namespace {

constexpr uint64_t kPiece = 1 << 20;
constexpr uint32_t kImageFormat = 1;
constexpr std::array<char, 8> kMagic = {'R', 'S', 'M', 'E', 'M', 'O', 'R', 'Y'};

struct Trailer {
  std::array<char, 8> magic = kMagic;
  uint32_t format = kImageFormat;
  uint32_t regions = 0;
  uint64_t size = 0;
  SnapshotIdentity identity = {};
  uint32_t crc = 0;
  uint32_t zero = 0;
};

uint32_t CrcOf(const Trailer& trailer) {
  return Crc32c(std::as_bytes(std::span(&trailer, 1)).first(offsetof(Trailer, crc)));
}

Trailer TrailerOf(const MemoryImage& image) {
  Trailer trailer = {.regions = image.regions, .size = image.size, .identity = image.identity};
  trailer.crc = CrcOf(trailer);
  return trailer;
}

bool IsZero(std::span<const std::byte> bytes) {
  return bytes.front() == std::byte{0} &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

uint32_t AddPage(std::span<const std::byte> page, uint64_t number, uint32_t crc) {
  return Crc32c(page, Crc32c(std::as_bytes(std::span(&number, 1)), crc));
}

absl::Status WriteAll(const UniqueFd& file, const std::string& path,
                      std::span<const std::byte> bytes, uint64_t offset) {
  const int error = WriteWholeAt(file.get(), bytes, offset);
  if (error != 0) {
    return ErrnoError(-error, absl::StrFormat("cannot write '%s'", path),
                      "make room, or save elsewhere");
  }
  return absl::OkStatus();
}

// Where the next data of a descriptor begins, from `offset` on: a hole is all zero. `end`: none.
uint64_t NextData(int fd, uint64_t offset, uint64_t end) {
  const off_t data = lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data >= 0) return std::min(static_cast<uint64_t>(data), end);
  return errno == ENXIO ? end : offset;  // ENXIO: nothing but a hole; else it cannot tell
}

// The first page that has been changed, from `offset` to `end` of what is mapped copy on write at
// `host`; `end`: none.
uint64_t NextChanged(const PageMap& pages, const std::byte* host, uint64_t offset, uint64_t end) {
  std::array<uint64_t, 512> buffer;
  while (offset < end) {
    const size_t count = std::min<size_t>(buffer.size(), (end - offset) / kPageSize);
    const auto entries = pages.Read(host + offset, std::span(buffer).first(count));
    if (entries.empty()) return offset;  // it cannot be told
    const auto changed = std::ranges::find_if(entries, PageMap::IsAnonymous);
    offset += static_cast<uint64_t>(changed - entries.begin()) * kPageSize;
    if (changed != entries.end()) return offset;
  }
  return end;
}

// Of one piece: writes runs of pages that are not zero.
absl::Status WritePiece(std::span<const std::byte> piece, uint64_t offset, const UniqueFd& file,
                        const std::string& path, uint32_t& crc) {
  for (uint64_t at = 0; at < piece.size();) {
    uint64_t end = at;
    for (; end < piece.size() && !IsZero(piece.subspan(end, kPageSize)); end += kPageSize) {
      crc = AddPage(piece.subspan(end, kPageSize), (offset + end) / kPageSize, crc);
    }
    RINGSIDE_RETURN_IF_ERROR(WriteAll(file, path, piece.subspan(at, end - at), offset + at));
    at = end + kPageSize;  // that one is zero, or beyond
  }
  return absl::OkStatus();
}

absl::Status Damaged(const std::string& path, std::string_view what) {
  return BadInput("the saved memory '%s' %s: restore from another copy of the snapshot", path,
                  what);
}

// Reads all that is no hole, into where `place` says that the bytes from an offset on go, a few at
// a time, and compares it with the checksum.
template <typename Place>
absl::Status ReadPieces(const MemoryImage& image, const UniqueFd& file, const std::string& path,
                        Place place) {
  uint32_t crc = 0;
  for (uint64_t at = 0;;) {
    at = PageDown(NextData(file.get(), at, image.size));
    if (at == image.size) break;
    const std::span<std::byte> piece = place(at);
    const ssize_t got = ReadWholeAt(file.get(), piece, at);
    if (got < 0)
      return ErrnoError(static_cast<int>(-got), absl::StrFormat("cannot read '%s'", path));
    if (got != std::ssize(piece)) return Damaged(path, "ends before its end");
    for (uint64_t page = 0; page < piece.size(); page += kPageSize) {
      const std::span<const std::byte> bytes = piece.subspan(page, kPageSize);
      if (!IsZero(bytes)) crc = AddPage(bytes, (at + page) / kPageSize, crc);
    }
    at += piece.size();
  }
  return crc == image.crc ? absl::OkStatus() : Damaged(path, "has another content than was saved");
}

}  // namespace

absl::StatusOr<MemoryImage> NewMemoryImage(std::span<const MemoryRegion> regions) {
  MemoryImage image = {.regions = static_cast<uint32_t>(regions.size())};
  RINGSIDE_RETURN_IF_ERROR(FillRandom(std::as_writable_bytes(std::span(image.identity))));
  for (const MemoryRegion& region : regions) image.size += region.size;
  return image;
}

absl::Status WriteMemoryImage(std::span<const MemoryRegion> pieces, bool is_shared,
                              const UniqueFd& file, const std::string& path, const MemoryStep& step,
                              MemoryImage& image) {
  image.crc = 0;
  const PageMap pages;
  uint64_t base = 0;
  for (const MemoryRegion& piece : pieces) {
    for (uint64_t at = 0; at < piece.size;) {
      // Reading a page that nobody has touched would give it memory.
      uint64_t data =
          NextData(piece.fd, piece.fd_offset + at, piece.fd_offset + piece.size) - piece.fd_offset;
      if (!is_shared) data = NextChanged(pages, piece.host, at, data);
      at = PageDown(data);
      const uint64_t size = std::min(kPiece, piece.size - at);
      const std::span<const std::byte> bytes(piece.host + at, size);
      RINGSIDE_RETURN_IF_ERROR(WritePiece(bytes, base + at, file, path, image.crc));
      at += size;
      RINGSIDE_RETURN_IF_ERROR(step(base + at, image.size));
    }
    base += piece.size;
  }
  const Trailer trailer = TrailerOf(image);
  RINGSIDE_RETURN_IF_ERROR(WriteAll(file, path, std::as_bytes(std::span(&trailer, 1)), image.size));
  if (ftruncate(file.get(), static_cast<off_t>(image.size + kPageSize)) != 0 ||
      fdatasync(file.get()) != 0) {
    return ErrnoError(errno, absl::StrFormat("cannot write '%s'", path));
  }
  return absl::OkStatus();
}

absl::Status CheckMemoryImage(const MemoryImage& image, const UniqueFd& file,
                              const std::string& path) {
  if (image.size % kPageSize != 0) return Damaged(path, "is not of whole pages");
  struct stat status;
  if (fstat(file.get(), &status) != 0) return ErrnoError(errno, "cannot look at " + path);
  if (static_cast<uint64_t>(status.st_size) != image.size + kPageSize) {
    return Damaged(path, absl::StrFormat("has %d bytes instead of %d", status.st_size,
                                         image.size + kPageSize));
  }
  std::array<std::byte, sizeof(Trailer)> page;
  const ssize_t got = ReadWholeAt(file.get(), page, image.size);
  if (got < 0) return ErrnoError(static_cast<int>(-got), "cannot read " + path);
  if (got != std::ssize(page)) return Damaged(path, "became shorter meanwhile");
  const std::string_view wrong = WrongWithTrailer(image, page);
  return wrong.empty() ? absl::OkStatus() : Damaged(path, wrong);
}

std::string_view WrongWithTrailer(const MemoryImage& image, std::span<const std::byte> page) {
  Trailer trailer;
  std::memcpy(&trailer, page.data(), sizeof trailer);
  const Trailer expected = TrailerOf(image);
  if (trailer.magic != kMagic || trailer.crc != CrcOf(trailer)) return "is not one, or is damaged";
  return std::memcmp(&trailer, &expected, sizeof trailer) == 0 ? "" : "belongs to another snapshot";
}

absl::Status VerifyMemoryImage(const MemoryImage& image, const UniqueFd& file,
                               const std::string& path, const MemoryProgress& progress) {
  RINGSIDE_RETURN_IF_ERROR(CheckMemoryImage(image, file, path));
  std::vector<std::byte> piece(kPiece);
  return ReadPieces(image, file, path, [&](uint64_t at) {
    progress(at, image.size);
    return std::span(piece).first(std::min(kPiece, image.size - at));
  });
}

absl::Status CopyMemoryImage(const MemoryImage& image, const UniqueFd& file,
                             const std::string& path, std::span<const MemoryRegion> regions) {
  RINGSIDE_RETURN_IF_ERROR(CheckMemoryImage(image, file, path));
  return ReadPieces(image, file, path, [&](uint64_t at) {
    auto region = regions.begin();
    for (; at >= region->size; ++region) at -= region->size;
    return std::span(region->host + at, std::min(kPiece, region->size - at));
  });
}

}  // namespace ringside
