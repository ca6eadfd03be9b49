// What Identify tells of a controller and of a namespace, as far as Ringside uses it.
//
// Threads: none of its own. Spec: NVM Express Base Specification 2.0, section 5.17; NVM Command
// Set Specification 1.0, section 4.1.5.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "block/block_device.h"
#include "nvme/nvme_prp.h"

namespace ringside {

struct NvmeFeatures {
  uint32_t most_bytes;  // of a command, if its pages are of 4 KiB at least
  bool volatile_cache;
  bool discard;  // and write zeroes
  bool doorbell_buffers;
};

struct NvmeNamespace {
  uint32_t id = 0;
  uint32_t block_size = 512;
  uint32_t most_bytes = kMostPrpBytes;  // of a command: a multiple of the block
  uint64_t boundary = 0;                // bytes that a command had better not cross; 0: none
  bool volatile_cache = false;
  BlockInfo info;
};

NvmeFeatures ParseNvmeController(std::span<const std::byte> data);

// NotFound if there is no such namespace; FailedPrecondition, with `controller` in its text, if its
// format cannot be used.
absl::StatusOr<NvmeNamespace> ParseNvmeNamespace(std::string_view controller, uint32_t id,
                                                 const NvmeFeatures& features,
                                                 std::span<const std::byte> data);

// Of BlockDevice::Resize: InvalidArgument if a size is given, which a namespace gets elsewhere.
absl::Status CheckNamespaceResize(std::optional<uint64_t> size);
// Has it the size that it has now; an error if it is no larger version of the same.
absl::Status GrowNamespace(NvmeNamespace& ns, const NvmeNamespace& now);

}  // namespace ringside
