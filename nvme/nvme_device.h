// Namespaces of an NVMe controller as disks, driven from user space: no host block layer and no
// system call on an I/O's way, data straight between the device and the segments.
//
// Threads: Create from any one thread; all else as in block_device.h.
// Ownership: disks share their controller, which lives as long as one of them and keeps the device.
// Errors: as PciDevice; what a command ends in is a negative errno, see docs/nvme.md.
// Durability: a flush succeeds only if every write that was completed before it is durable.
// Spec: NVM Express Base Specification 2.0.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "block/block_backend.h"
#include "vfio/pci_device.h"

namespace ringside {

// Of NvmeConfig::timeout.
inline constexpr absl::Duration kMinNvmeTimeout = absl::Milliseconds(10);
inline constexpr absl::Duration kMaxNvmeTimeout = absl::Hours(1);

// For all that opening a controller takes, then again for each namespace, and for all of bringing
// it up anew, whatever the single steps may take: more than the longest CAP.TO, which is 127.5 s.
inline constexpr absl::Duration kNvmeOpenLimit = absl::Seconds(150);

struct NvmeSettings {
  // A command without an answer for so long is aborted; see docs/nvme.md for what follows.
  absl::Duration timeout = absl::Seconds(30);
  // A request that finds no room in its queue for so long fails, or for four time-outs if that is
  // longer; one that came behind others after up to twice as long.
  absl::Duration least_wait = absl::Minutes(2);
  absl::Duration open_limit = kNvmeOpenLimit;
};

class NvmeController;

// Resets the controller and sets it up; nothing is written to its media.
absl::StatusOr<std::shared_ptr<NvmeController>> CreateNvmeController(
    std::unique_ptr<PciDevice> device, const NvmeSettings& settings, Logger logger);

class NvmeDevice final : public BlockDevice {
 public:
  // NotFound, with those that there are, if the controller has no such namespace;
  // FailedPrecondition if its format cannot be used.
  static absl::StatusOr<std::unique_ptr<NvmeDevice>> Create(
      std::shared_ptr<NvmeController> controller, const NvmeConfig& config);
  ~NvmeDevice() override;

  const BlockInfo& info() const override;
  // Resets and lost interrupts are its controller's.
  BlockStatistics Statistics() const override;
  // One mapping serves all disks of a controller that are given the same memory.
  absl::Status MapMemory(std::span<const MemoryRegion> regions) override;
  void EndSoon() override;
  // Asks the controller, which waits as at the start.
  absl::Status Resize(std::optional<uint64_t> size) override;
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  struct Parts;
  explicit NvmeDevice(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace ringside
