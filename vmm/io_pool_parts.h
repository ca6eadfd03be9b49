// What is behind the public class (ringside/io_pool.h), for the machines.
//
// Threads and ownership: as IoPool.
#pragma once

#include <memory>
#include <vector>

#include "poll/io_thread.h"
#include "poll/io_threads.h"
#include "ringside/io_pool.h"

namespace ringside {

// What the rings of threads that serve these disks have room for. For all threads, as a queue may
// move to any. A namespace behind a filter has a ring beside.
UringEntries EntriesFor(const std::vector<DiskConfig>& disks);

struct IoPool::Parts {
  // Each whoever has it keeps the threads alive. The thread for consoles, events and the like: once
  // it is given back, all has run that was posted before.
  static std::shared_ptr<IoThread> Housekeeping(const std::shared_ptr<IoPool>& pool);
  static std::shared_ptr<IoThreads> ForDevices(const std::shared_ptr<IoPool>& pool);

  std::unique_ptr<IoThread> housekeeping;
  std::unique_ptr<IoThreads> io_threads;
};

}  // namespace ringside
