// A namespace of an NVMe controller that stays with the kernel's driver: its commands go through
// the namespace's generic character device, past the host's block layer. Other namespaces are the
// host's to use.
//
// Threads: Create and the destructor on any one thread; all else as in block_device.h. statistics()
// from any.
// Ownership: the device outlives its channels. The namespace's block device is kept for as long:
// nobody mounts it, and no other machine has it, unless all only read.
// Errors: what the user can mend is InvalidArgument, NotFound, PermissionDenied or
// FailedPrecondition, in one line that names the device and the remedy. Those of requests: see
// docs/nvme.md.
// Durability: a flush succeeds only if every write that was completed before it is durable.
// Source: linux/nvme_ioctl.h, Linux 6.1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sync.h"
#include "block/block_device.h"
#include "block/nvme_identify.h"
#include "block/nvme_vectors.h"

namespace ringside {

struct NvmePassthroughConfig {
  std::string path;  // "/dev/ng0n1"
  bool read_only = false;
};

// Over the disk's life.
struct NvmePassthroughStatistics {
  uint64_t commands = 0;  // sent, resent ones too
  uint64_t enters = 0;    // io_uring_enter calls of its rings
  uint64_t splits = 0;    // requests that took several commands
  uint64_t bounced = 0;   // commands whose memory was copied, here or by the kernel
  uint64_t errors = 0;    // requests that failed
  uint64_t resent = 0;    // commands
};

struct NvmePassthroughCounters;

class NvmePassthroughDevice final : public BlockDevice {
 public:
  static absl::StatusOr<std::unique_ptr<NvmePassthroughDevice>> Create(
      const NvmePassthroughConfig& config, Logger logger);
  // Of a file that takes commands and has been looked into: for Create, and for tests.
  struct Opened {
    UniqueFd file;
    UniqueFd block;  // what the namespace is kept by; none: it is not
    NvmeNamespace ns;
    NvmeVectorLimits limits;
  };
  explicit NvmePassthroughDevice(Opened opened);
  ~NvmePassthroughDevice() override;

  const BlockInfo& info() const override { return opened_.ns.info; }
  // FailedPrecondition where io_uring cannot be used.
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

  NvmePassthroughStatistics statistics() const;

 private:
  NvmePassthroughCounters& TakeCounters();

  const Opened opened_;
  mutable Mutex mutex_;
  // Of all channels there have been; a new one goes on with those of one that is closed.
  std::vector<std::unique_ptr<NvmePassthroughCounters>> counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
