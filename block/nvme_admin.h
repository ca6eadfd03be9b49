// A controller's registers and its admin queue: bring-up, identification, features, queues. Every
// call waits until the controller has done it or a time is over.
//
// Threads: one at a time. Ownership: the device and the space outlive it.
// Errors: Unavailable if the controller is gone; DeadlineExceeded if it does not answer;
// Internal with the status if it refuses a command.
// Source: NVM Express Base Specification 2.0, sections 3.1.3, 3.5, 3.6 and 5.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "block/nvme_dma.h"
#include "block/nvme_ring.h"
#include "block/nvme_spec.h"
#include "vfio/pci_device.h"

namespace ringside {

class NvmeAdmin {
 public:
  static constexpr int kBar = 0;

  // `interrupt`: vector 0's. Commands are waited for up to `timeout`.
  static absl::StatusOr<std::unique_ptr<NvmeAdmin>> Create(PciDevice& device, DmaSpace& space,
                                                           const EventFd& interrupt,
                                                           absl::Duration timeout);

  // Brings the controller up, with empty admin queues and no others.
  absl::Status Enable();
  // Afterwards it reaches no memory until it is enabled again: by CC.EN, else by a reset of the
  // function.
  absl::Status Disable();
  // From now on it does no DMA, enabled or not, until it is enabled anew.
  void LeaveBus();
  // Has it save what it caches, and disables it.
  void ShutDown();

  uint32_t status() const { return device_.ReadBar(kBar, nvme::kCsts); }
  const nvme::Capabilities& capabilities() const { return capabilities_; }
  // Clears the mark of a reset of the whole subsystem, and says whether it was set: then what was
  // cached may be lost.
  bool TakeSubsystemReset();

  // DW0 of its completion.
  absl::StatusOr<uint32_t> Execute(nvme::Command command);
  // Into the data page, until the next command.
  absl::StatusOr<std::span<const std::byte>> Identify(uint32_t what, uint32_t nsid);
  absl::StatusOr<std::span<const std::byte>> GetLogPage(uint8_t log, uint32_t bytes);
  absl::StatusOr<uint32_t> SetFeature(uint32_t feature, uint32_t value);

  // Asks for the next asynchronous event; `heard` is then called with its DW0, once, from any call
  // here.
  void AskForEvent(std::function<void(uint32_t)> heard);
  // Takes what has come without waiting.
  void Poll();

 private:
  static constexpr uint16_t kEntries = 32;
  static constexpr uint16_t kEventId = 0x8000;
  struct Memory;

  NvmeAdmin(PciDevice& device, const EventFd& interrupt, absl::Duration timeout)
      : device_(device), interrupt_(interrupt), timeout_(timeout) {}
  Memory& memory() const;
  void JoinBus();
  uint64_t ReadRegister64(uint64_t offset);
  void WriteRegister64(uint64_t offset, uint64_t value);
  absl::Status WaitForReady(bool ready);
  bool TakeCompletion(nvme::Completion& completion);

  PciDevice& device_;
  const EventFd& interrupt_;
  const absl::Duration timeout_;
  nvme::Capabilities capabilities_{0};
  DmaBuffer buffer_;
  NvmeRing ring_;
  uint16_t next_id_ = 0;
  std::function<void(uint32_t)> heard_;
};

}  // namespace ringside
