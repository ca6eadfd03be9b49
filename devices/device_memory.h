// Memory of a device (registers that a host process may map) in the guest's address space.
//
// Threads: any, one at a time. Implemented over KVM in vmm/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace ringside {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // From now on the guest reaches `host` at `address` without leaving. Whole pages, which stay
  // until Remove. After an error its accesses go to the bus, as they did.
  virtual absl::Status Add(uint64_t address, std::byte* host, uint64_t size) = 0;
  // What was added at this address. When this returns no vCPU reaches it any more.
  virtual void Remove(uint64_t address) = 0;
};

}  // namespace ringside
