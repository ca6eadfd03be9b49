// What a machine gives each of its devices to live with, an embedder's own too.
//
// Ownership: all of it outlives the device.
#pragma once

#include "base/log.h"
#include "devices/guest_memory.h"
#include "poll/io_threads.h"

namespace ringside {

struct DeviceContext {
  const GuestMemory& memory;
  IoThreads& io_threads;
  Logger log;
};

}  // namespace ringside
