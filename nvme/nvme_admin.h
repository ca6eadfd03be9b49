// A controller's registers and its admin queue: bring-up, identification, features, queues. Every
// call waits until the controller has done it or a time is over.
//
// Threads: one at a time. Ownership: the device and the space outlive it.
// Errors: Unavailable if the controller is gone; DeadlineExceeded if it does not answer, or if
// there is no time left for it; Internal with the status if it refuses a command.
// Spec: NVM Express Base Specification 2.0, sections 3.1.3, 3.5, 3.6 and 5.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "nvme/nvme_dma.h"
#include "nvme/nvme_ring.h"
#include "nvme/nvme_spec.h"
#include "vfio/pci_device.h"

namespace ringside {

class NvmeAdmin {
 public:
  static constexpr int kBar = 0;

  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  struct Parts {
    PciDevice& device;
    DmaSpace& space;
    const EventFd& interrupt;  // vector 0's
    absl::Duration timeout;    // for each command
    int64_t deadline_ns;       // see SetDeadline
    // Likewise, and set by any thread: the user has no more time.
    const std::atomic<int64_t>& end_ns;
  };

  static absl::StatusOr<std::unique_ptr<NvmeAdmin>> Create(const Parts& parts);

  // From then on (MonotonicNs) nothing is waited for, and no register is looked at any more,
  // however slow each answer is: all of them read as all ones.
  void SetDeadline(int64_t deadline_ns) { deadline_ns_ = deadline_ns; }

  // Brings the controller up, with empty admin queues and no others.
  absl::Status Enable();
  // Afterwards it reaches no memory until it is enabled again: by CC.EN, else by a reset of the
  // function.
  absl::Status Disable();
  // From now on it does no DMA, enabled or not, until it is enabled anew.
  void LeaveBus();
  // Has it save what it caches, and disables it. For so long, also if there was no time left.
  void ShutDown(absl::Duration limit);

  uint32_t status() const { return ReadRegister(nvme::kCsts); }
  const nvme::Capabilities& capabilities() const { return capabilities_; }
  // Unavailable if it has other capabilities than at first, in what queues of up to so many entries
  // depend on.
  absl::Status CheckCapabilities(uint16_t queue_entries);
  // Clears the mark of a reset of the whole subsystem, and says whether it was set: then what was
  // cached may be lost.
  bool TakeSubsystemReset();

  // DW0 of its completion, which is waited for so long, or for the time-out.
  absl::StatusOr<uint32_t> Execute(nvme::Command command) { return Execute(command, timeout_); }
  absl::StatusOr<uint32_t> Execute(nvme::Command command, absl::Duration limit);
  // A copy of what the controller wrote, which it cannot change any more; until the next command.
  absl::StatusOr<std::span<const std::byte>> Identify(uint32_t what, uint32_t nsid);
  absl::StatusOr<std::span<const std::byte>> GetLogPage(uint8_t log, uint32_t bytes);
  absl::StatusOr<uint32_t> SetFeature(uint32_t feature, uint32_t value);

  // Asks for the next asynchronous event; `heard` is then called with its DW0, once, from any call
  // here.
  void AskForEvent(std::function<void(uint32_t)> heard);
  // Takes what has come without waiting, a ring's worth at most.
  void Poll();

 private:
  static constexpr uint16_t kEntries = 32;
  static constexpr uint16_t kEventId = 0x8000;
  struct Memory;

  explicit NvmeAdmin(const Parts& parts)
      : device_(parts.device),
        interrupt_(parts.interrupt),
        timeout_(parts.timeout),
        end_ns_(parts.end_ns),
        deadline_ns_(parts.deadline_ns) {}
  Memory& memory() const;
  void JoinBus();
  bool IsTooLate() const;
  uint32_t ReadRegister(uint64_t offset) const;
  uint64_t ReadRegister64(uint64_t offset) const;
  void WriteRegister(uint64_t offset, uint32_t value);
  void WriteRegister64(uint64_t offset, uint64_t value);
  absl::Status CheckUsable() const;
  // Why there is no register to be read.
  absl::Status Gone() const;
  absl::Status WaitForReady(bool ready);
  bool TakeCompletion(nvme::CompletionEnd& end, uint32_t& result);
  std::span<const std::byte> CopyData(size_t bytes);

  PciDevice& device_;
  const EventFd& interrupt_;
  const absl::Duration timeout_;
  const std::atomic<int64_t>& end_ns_;
  int64_t deadline_ns_;
  bool shuts_down_ = false;  // end_ns_ is over, and does not count any more
  nvme::Capabilities capabilities_{0};
  DmaBuffer buffer_;
  NvmeRing ring_;
  uint16_t next_id_ = 0;
  std::array<std::byte, nvme::kPageSize> data_;
  std::function<void(uint32_t)> heard_;
};

}  // namespace ringside
