// The memory of a saved machine as a file: its regions one behind the other, then a page that says
// what they are. The file is sparse: what the guest has never touched takes no room and no time.
//
//   regions  in the order of their addresses, from offset 0, so that the file can be mapped
//   trailer  one page: "RSMEMORY", u32 format, u32 regions, u64 bytes of all, 16 bytes of identity,
//            u32 CRC of what stands before it in the page
//
// The identity is random, and stands in the state that goes with the memory, too: of another pair
// nothing is restored. What is in the memory is checked by Verify alone, as restoring reads none of
// it; its checksum is in the state.
//
// Threads: none. Errors: InvalidArgument for a file that is not one or was changed, those of the
// system for others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/memory_region.h"

namespace ringside {

using SnapshotIdentity = std::array<uint8_t, 16>;

struct MemoryImage {
  SnapshotIdentity identity = {};
  uint64_t size = 0;  // bytes of all regions
  uint32_t regions = 0;
  uint32_t crc = 0;  // CRC-32C of the pages that are not all zero, each behind its number
};

// Is told how many bytes are done, and of how many.
using MemoryProgress = std::function<void(uint64_t done, uint64_t of)>;

// Likewise, behind each piece, of at most a MiB; an error ends what it is told of.
using MemoryStep = std::function<absl::Status(uint64_t done, uint64_t of)>;

// Of these regions, with an identity of its own, and not written yet.
absl::StatusOr<MemoryImage> NewMemoryImage(std::span<const MemoryRegion> regions);
// Writes what is in these pieces of memory one behind the other, which nobody changes meanwhile,
// into a file that is empty, and has it reach the disk; the checksum becomes the image's.
// `is_shared`: what was changed is seen through the pieces' descriptors, too; else they are mapped
// copy on write.
absl::Status WriteMemoryImage(std::span<const MemoryRegion> pieces, bool is_shared,
                              const UniqueFd& file, const std::string& path,
                              const MemoryStep& step, MemoryImage& image);

// Whether the file is this image, as far as its length and trailer tell.
absl::Status CheckMemoryImage(const MemoryImage& image, const UniqueFd& file,
                              const std::string& path);

// The same of the page that ends it alone: what is wrong with that, to stand behind what the memory
// is called ("belongs to another snapshot"); empty: nothing.
std::string_view WrongWithTrailer(const MemoryImage& image, std::span<const std::byte> page);

// Reads all of it.
absl::Status VerifyMemoryImage(const MemoryImage& image, const UniqueFd& file,
                               const std::string& path, const MemoryProgress& progress);

// Reads it into the machine's memory, which is all zero, and verifies it on the way.
absl::Status CopyMemoryImage(const MemoryImage& image, const UniqueFd& file,
                             const std::string& path, std::span<const MemoryRegion> regions);

}  // namespace ringside
