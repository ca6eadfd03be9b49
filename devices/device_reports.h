// What a device tells of its troubles to whoever listens beside its driver.
//
// Threads: any, a disk's I/O thread too: a call neither waits nor allocates, but for NeedsReset,
// after which there is no I/O to hold up. Ownership: it outlives the device.
#pragma once

#include <string_view>

#include "block/block_device.h"

namespace ringside {

class DeviceReports {
 public:
  // A request was answered with an error, an errno value.
  virtual void RequestFailed(BlockOp op, int error) = 0;
  // See VirtioEvents::NeedsReset.
  virtual void NeedsReset(std::string_view why) = 0;

 protected:
  ~DeviceReports() = default;
};

}  // namespace ringside
