// The file of an overlay, by plain calls that wait: made, opened, checked, its map loaded and
// written. The device does so before its first request and after its last; tools at any time.
//
// Threads: one at a time. Ownership: the file is locked for as long as the descriptor, or a copy of
// it, lives: against all others if it is open for writing, against writers if not.
// Errors: NotFound, InvalidArgument, FailedPrecondition, PermissionDenied: the user's to mend;
// DataLoss: the file is damaged. In one line that names it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "overlay/block_map.h"
#include "overlay/overlay_header.h"

namespace ringside {

enum class OverlayAccess { kRead, kWrite };

class OverlayFile {
 public:
  // A file that is not there, empty, or has a size and no data: what a power cut may leave of one
  // that was made and never flushed. Such a file is made anew by Create.
  static bool IsMissing(const std::string& path);

  // Nothing of it is durable before Flush: that takes microseconds. It is in use.
  static absl::StatusOr<OverlayFile> Create(const std::string& path, OverlayHeader header);
  // Only what the header says is checked.
  static absl::StatusOr<OverlayFile> Open(const std::string& path, OverlayAccess access);

  const OverlayHeader& header() const { return header_; }
  const std::string& name() const { return name_; }  // "overlay 'vm1.cow'"
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  bool is_new() const { return is_new_; }  // made by this object
  // Whether a flush has failed, which the kernel tells of once.
  bool has_failed_to_flush() const { return has_failed_to_flush_; }

  struct Loaded {
    std::unique_ptr<BlockMap> map;
    uint64_t pages = 0;          // that have been written at any time
    uint64_t torn_pages = 0;     // whose last write was cut off: the one before counts
    uint64_t corrupt_pages = 0;  // of which nobody knows what they said
  };
  // Reads what is there of the map: nothing, of a new one.
  absl::StatusOr<Loaded> Load() const;

  // The header with `header`'s content, into the slot that does not count, durable.
  absl::Status WriteHeader(const OverlayHeader& header);
  // For writing: as the header says from now on. With an own generation, so that overlays on this
  // one notice. FailedPrecondition: it is corrupt, or being committed.
  absl::Status BeginUse();
  // The pages of the map that were changed; what was written before them is durable before.
  absl::Status WriteMap(BlockMap& map);
  // All of it is durable, and no slot of it can be torn from now on. `unchanged`: nothing was
  // written since BeginUse, and this is the generation that it had before, and has again.
  absl::Status EndUse(BlockMap& map, const std::optional<OverlayId>& unchanged = {});
  // Data, metadata, and of a new file the name.
  absl::Status Flush();

  // Blocks of data. Multiples of 4096, and of memory too, as the descriptor may have O_DIRECT.
  absl::Status Read(uint64_t offset, std::span<std::byte> bytes) const;
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes);

 private:
  OverlayFile(UniqueFd fd, std::string path);
  absl::Status ReadHeader();
  absl::Status PutHeader(OverlayHeader header);
  absl::Status PutPages(BlockMap& map, std::vector<uint64_t>& numbers);
  absl::StatusOr<bool> FindData(uint64_t& from, uint64_t& end) const;
  absl::Status LoadPages(uint64_t first, uint64_t end, Loaded& loaded) const;

  UniqueFd fd_;
  std::string path_;
  std::string name_;
  OverlayHeader header_;
  unsigned slot_ = 0;  // that the header is in
  bool is_new_ = false;
  bool has_durable_name_ = true;
  bool has_failed_to_flush_ = false;
};

// Makes the name of a file durable. 0 or -errno.
int FlushDirectoryOf(const std::string& path);

// What `path`, a raw file or a block device of this size, is as a base.
absl::StatusOr<BaseIdentity> RawBaseIdentity(const std::string& path, uint64_t size);
// What an overlay is as a base.
BaseIdentity OverlayBaseIdentity(const OverlayHeader& header);

}  // namespace ringside
