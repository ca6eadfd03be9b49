#include "block/nvme_passthrough_device.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

#include "base/status.h"
#include "block/nvme_passthrough_channel.h"
#include "block/nvme_passthrough_open.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<NvmePassthroughDevice>> NvmePassthroughDevice::Create(
    const NvmePassthroughConfig& config, Logger logger) {
  RINGSIDE_ASSIGN_OR_RETURN(Opened opened, OpenNvmePassthrough(config, logger));
  return std::make_unique<NvmePassthroughDevice>(std::move(opened));
}

NvmePassthroughDevice::NvmePassthroughDevice(Opened opened) : opened_(std::move(opened)) {}

NvmePassthroughDevice::~NvmePassthroughDevice() {
  // What the host has read before is no longer what is there.
  if (opened_.block.valid()) ioctl(opened_.block.get(), BLKFLSBUF);
}

absl::StatusOr<std::unique_ptr<BlockChannel>> NvmePassthroughDevice::Open(IoThread& io_thread) {
  return NvmePassthroughChannel::Create({.io_thread = io_thread,
                                         .file = opened_.file.get(),
                                         .ns = opened_.ns,
                                         .limits = opened_.limits,
                                         .counters = TakeCounters()});
}

NvmePassthroughCounters& NvmePassthroughDevice::TakeCounters() {
  const MutexLock lock(mutex_);
  for (const auto& counters : counters_) {
    if (!counters->taken.exchange(true, std::memory_order_acquire)) return *counters;
  }
  NvmePassthroughCounters& counters =
      *counters_.emplace_back(std::make_unique<NvmePassthroughCounters>());
  counters.taken.store(true, std::memory_order_relaxed);
  return counters;
}

NvmePassthroughStatistics NvmePassthroughDevice::statistics() const {
  NvmePassthroughStatistics sum;
  const MutexLock lock(mutex_);
  for (const auto& counters : counters_) {
    sum.commands += counters->commands.Get();
    sum.enters += counters->enters.Get();
    sum.splits += counters->splits.Get();
    sum.bounced += counters->bounced.Get();
    sum.errors += counters->errors.Get();
    sum.resent += counters->resent.Get();
  }
  return sum;
}

}  // namespace ringside
