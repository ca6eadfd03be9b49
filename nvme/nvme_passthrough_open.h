// Opens a namespace's generic character device, keeps the namespace from others, and finds out what
// it and the host's queue take.
//
// Threads: any; used at start only.
// Errors: as in nvme_passthrough_device.h.
// Spec: linux/nvme_ioctl.h; Documentation/ABI/stable/sysfs-block.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "nvme/nvme_passthrough_device.h"

namespace ringside {

absl::StatusOr<NvmePassthroughDevice::Opened> OpenNvmePassthrough(
    const NvmePassthroughConfig& config, Logger logger);

// What the namespace behind an open generic device says of itself. `name`: in messages.
absl::StatusOr<NvmeNamespace> IdentifyNvmeNamespace(int fd, const std::string& name);

// Of a namespace: "ng0n1" and "nvme0n1" name each other. Empty if `name` is no such one.
std::string NvmeBlockName(std::string_view generic);
std::string NvmeGenericName(std::string_view block);

// What sysfs says of the namespace's queue in the kernel.
struct NvmeHostLimits {
  uint64_t most_kib;    // of a command: max_hw_sectors_kb
  uint64_t segments;    // max_segments
  uint64_t align_mask;  // dma_alignment
};
// The least of what both take; `ns` gets to know it.
NvmeVectorLimits LimitNamespace(NvmeNamespace& ns, const NvmeHostLimits& host);

}  // namespace ringside
