// I/O threads that any number of machines of a process share, so that a few of them poll for a
// thousand sandboxes, and an idle machine has none of its own.
//
//   ringside::MachineConfig config;
//   config.io_pool = *ringside::IoPool::Create({.io_threads = {{.id = "a"}, {.id = "b"}}});
//
// In a turn a thread takes at most 32 requests, or 1 MiB, from one queue, so a request waits no
// longer for the machines beside its own than one such turn of each. What it cannot share is time
// in which the thread itself waits: a disk whose storage may hang wants an io_uring (kAuto, kUring)
// or a machine with threads of its own, and so does memory that is mapped from such storage. One
// whose memory comes from a handler (MachineConfig::restore_handler) is refused. Limits and
// statistics are a machine's, as without a pool. A device that names no thread gets one in turn,
// over all machines.
//
// A thread of the pool serves the machines' consoles, events and the like, and calls what they give
// to Machine::BeginPause, EventSink, LogSink and ConsoleConfig::detached: whoever blocks there
// holds up all of them. A machine whose console is a file has one of its own for that, as that
// file's storage may hang.
//
// Threads: any. Ownership: its machines share it, and it goes with the last of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ringside/config.h"
#include "ringside/explanation.h"
#include "ringside/export.h"
#include "ringside/statistics.h"

namespace ringside {

struct IoPoolConfig {
  std::vector<IoThreadConfig> io_threads = {};  // empty: one; at most 64
  // Whether machines come with a disk that is an NvmePassthroughConfig: without, each takes one
  // more system call per turn.
  bool nvme_passthrough = false;
};

class RINGSIDE_EXPORT IoPool {
 public:
  // Errors: as Machine::Create.
  static absl::StatusOr<std::shared_ptr<IoPool>> Create(const IoPoolConfig& config);
  ~IoPool();
  IoPool(const IoPool&) = delete;
  IoPool& operator=(const IoPool&) = delete;

  // As the functions of Machine, which refuses it for a thread that is not its own.
  absl::Status SetPoll(const std::string& io_thread, const PollConfig& poll,
                       absl::Duration patience = absl::InfiniteDuration());
  // Of the threads for devices; what they do for all machines. Those of each machine have the same.
  std::vector<IoThreadStatistics> Statistics() const;
  absl::StatusOr<std::vector<IoThreadExplanation>> Explain(
      absl::Duration patience = absl::InfiniteDuration()) const;

  // For what is built in Ringside's tree (vmm/io_pool_parts.h); nothing of it is promised.
  struct RINGSIDE_HIDDEN Parts;
  const Parts& parts() const { return *parts_; }
  RINGSIDE_HIDDEN explicit IoPool(std::unique_ptr<const Parts> parts);

 private:
  const std::unique_ptr<const Parts> parts_;
};

}  // namespace ringside
