// A disk of which a private file has what was written, and a base, which others may share and which
// is only read, all else (docs/overlays.md).
//
// Threads: as BlockDevice. Ownership: it owns the devices of its file and of its base.
// Errors: of files that are not what they should be, as OverlayFile; of a base that is not the one
// that the overlay was made on, FailedPrecondition.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "block/block_backend.h"
#include "overlay/overlay_counters.h"
#include "overlay/overlay_file.h"
#include "overlay/overlay_state.h"

namespace ringside {

class OverlayDevice final : public BlockDevice {
 public:
  // A file that is not there is made, in under a millisecond and nothing of it durable.
  static absl::StatusOr<std::unique_ptr<OverlayDevice>> Create(const OverlayConfig& config,
                                                               const BlockContext& context);
  // What is in memory goes to the file, unless that was not in use.
  ~OverlayDevice() override;

  const BlockInfo& info() const override { return info_; }
  BlockStatistics Statistics() const override;
  std::optional<ContentId> KeepFound() override;
  std::vector<ContentId> Found() const override { return found_; }
  std::atomic<int>* flush_error() override { return data_->flush_error(); }
  absl::Status MapMemory(std::span<const MemoryRegion> regions) override;
  // Up to the capacity of its map.
  absl::Status Resize(std::optional<uint64_t> size) override;
  void EndSoon() override;
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

  // As a base of others.
  BaseIdentity identity() const { return OverlayBaseIdentity(header_); }

 private:
  // On its way to being open.
  struct Parts {
    std::unique_ptr<BlockDevice> base;
    std::optional<OverlayFile> file;  // none in memory
    OverlayHeader header;
    ContentId found;  // before it was opened for writing
    std::unique_ptr<BlockMap> map;
    std::unique_ptr<BlockDevice> data;
    UniqueFd counted;  // OverlayState::counted
  };

  OverlayDevice(const OverlayConfig& config, Parts parts, Logger logger);
  absl::Status EndUse();
  static ContentId ContentOf(const OverlayHeader& header) {
    return {.id = header.id, .generation = header.generation};
  }
  static absl::StatusOr<Parts> OpenParts(const OverlayConfig& config, const BlockContext& context);
  static absl::Status Limit(const OverlayConfig& config, const UniqueFd& data, Parts& parts);
  static absl::Status OpenFileOf(const OverlayConfig& config, const BaseIdentity& base,
                                 Logger logger, Parts& parts);

  const std::string name_;  // in messages
  const Logger logger_;
  const bool read_only_;
  const std::unique_ptr<BlockDevice> base_;  // null: there is none
  const std::unique_ptr<BlockDevice> data_;  // of the file, all of it
  Mutex file_mutex_;
  std::optional<OverlayFile> file_;  // written by one at a time: Resize, and the destructor
  OverlayHeader header_;             // as it was opened
  std::vector<ContentId> found_;
  BlockInfo info_;
  OverlayState state_;
  CounterPool<OverlayCounters> counters_;
};

}  // namespace ringside
