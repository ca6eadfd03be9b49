// What an NvmeModel tells of itself, section 5.17 and NVM Command Set 4.1.5.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/support/nvme/nvme_model.h"

namespace ringside::testing {

using NvmeModelPage = std::array<std::byte, nvme::kIdentifyBytes>;

inline constexpr uint8_t kNvmeModelEventRequests = 4;  // at a time

uint64_t NvmeModelCap(const NvmeModelConfig& config);
NvmeModelPage IdentifyController(const NvmeModelConfig& config);
// Zeroes if it is not active.
NvmeModelPage IdentifyNamespace(const NvmeModelNamespace& config);
// Those above `nsid`.
NvmeModelPage ListActiveNamespaces(const NvmeModelConfig& config, uint32_t nsid);

}  // namespace ringside::testing
