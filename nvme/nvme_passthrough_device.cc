#include "nvme/nvme_passthrough_device.h"

#include <linux/fs.h>
#include <sys/ioctl.h>

#include "base/status.h"
#include "nvme/nvme_passthrough_channel.h"
#include "nvme/nvme_passthrough_open.h"

namespace ringside {

namespace {

struct PassthroughFunctions {
  static BackendDescription Describe(const NvmePassthroughConfig& config) {
    return {.name = config.path, .files = {config.path}};
  }
  static absl::StatusOr<std::unique_ptr<BlockDevice>> Open(const NvmePassthroughConfig& config,
                                                           const BlockContext& context) {
    return NvmePassthroughDevice::Create(config, context.log);
  }
};

}  // namespace

BlockBackend::BlockBackend(NvmePassthroughConfig config)
    : config_(std::move(config)),
      calls_(&kBackendCalls<NvmePassthroughConfig, PassthroughFunctions>) {}

absl::StatusOr<std::unique_ptr<NvmePassthroughDevice>> NvmePassthroughDevice::Create(
    const NvmePassthroughConfig& config, Logger logger) {
  RINGSIDE_ASSIGN_OR_RETURN(Opened opened, OpenNvmePassthrough(config, logger));
  return std::make_unique<NvmePassthroughDevice>(std::move(opened));
}

NvmePassthroughDevice::NvmePassthroughDevice(Opened opened)
    : opened_(std::move(opened)),
      counters_(std::make_unique<CounterPool<NvmePassthroughCounters>>()) {}

NvmePassthroughDevice::~NvmePassthroughDevice() {
  // What the host has read before is no longer what is there.
  if (opened_.block.valid()) ioctl(opened_.block.get(), BLKFLSBUF);
}

absl::Status NvmePassthroughDevice::Resize(std::optional<uint64_t> size) {
  RINGSIDE_RETURN_IF_ERROR(CheckNamespaceResize(size));
  RINGSIDE_ASSIGN_OR_RETURN(const NvmeNamespace now,
                            IdentifyNvmeNamespace(opened_.file.get(), "it"));
  return GrowNamespace(opened_.ns, now);
}

absl::StatusOr<std::unique_ptr<BlockChannel>> NvmePassthroughDevice::Open(IoThread& io_thread) {
  return NvmePassthroughChannel::Create({.io_thread = io_thread,
                                         .file = opened_.file.get(),
                                         .ns = opened_.ns,
                                         .limits = opened_.limits,
                                         .counters = counters_->Take()});
}

BlockStatistics NvmePassthroughDevice::Statistics() const {
  return {.engine = "uring_cmd", .counters = counters_->Sums()};
}

}  // namespace ringside
