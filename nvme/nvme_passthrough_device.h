// A namespace of an NVMe controller that stays with the kernel's driver: its commands go through
// the namespace's generic character device, past the host's block layer. Other namespaces are the
// host's to use.
//
// Threads: Create and the destructor on any one thread; all else as in block_device.h.
// Ownership: the device outlives its channels. The namespace's block device is kept for as long:
// nobody mounts it, and no other machine has it, unless all only read.
// Errors: what the user can mend is InvalidArgument, NotFound, PermissionDenied or
// FailedPrecondition, in one line that names the device and the remedy. Those of requests: see
// docs/nvme.md.
// Durability: a flush succeeds only if every write that was completed before it is durable.
// Spec: linux/nvme_ioctl.h, Linux 6.1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/log.h"
#include "block/block_backend.h"
#include "nvme/nvme_identify.h"
#include "nvme/nvme_vectors.h"

namespace ringside {

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
  BlockStatistics Statistics() const override;
  absl::Status Resize(std::optional<uint64_t> size) override;
  // FailedPrecondition where io_uring cannot be used.
  absl::StatusOr<std::unique_ptr<BlockChannel>> Open(IoThread& io_thread) override;

 private:
  Opened opened_;
  const std::unique_ptr<CounterPool<NvmePassthroughCounters>> counters_;
};

}  // namespace ringside
