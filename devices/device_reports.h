// What a device tells of its troubles to whoever listens beside its driver.
//
// Threads: any, a disk's I/O thread too: a call neither waits nor allocates, but for NeedsReset and
// RequestKept, after which there is no I/O to hold up. Ownership: it outlives the device.
#pragma once

#include <string_view>

#include "block/block_device.h"

namespace ringside {

class DeviceReports {
 public:
  // A request failed with an errno value, and was answered.
  virtual void RequestFailed(BlockOp op, int error) = 0;
  // One failed and is kept until the queue has rested (DiskConfig::rerror, werror): whoever can
  // pauses the machine.
  virtual void RequestKept(BlockOp op, int error) = 0;
  // See VirtioEvents::NeedsReset.
  virtual void NeedsReset(std::string_view why) = 0;

 protected:
  ~DeviceReports() = default;
};

}  // namespace ringside
