#include "tests/support/nvme/nvme_model_identify.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>

namespace ringside::testing {
namespace {

template <typename T>
void Put(NvmeModelPage& page, size_t offset, T value) {
  std::memcpy(page.data() + offset, &value, sizeof value);
}

void PutText(NvmeModelPage& page, size_t offset, size_t size, std::string_view text) {
  std::memset(page.data() + offset, ' ', size);
  std::memcpy(page.data() + offset, text.data(), std::min(size, text.size()));
}

// Fields that only a model needs to know.
constexpr size_t kVersion = 80;
constexpr size_t kOptionalEvents = 92;  // OAES, u32
constexpr uint32_t kNamespaceNotices = 1U << 8;
constexpr size_t kEntrySizes = 512;         // SQES and CQES, least and most log2 each
constexpr uint8_t kFlushOfAll = 3 << 1;     // in VWC
constexpr size_t kUsed = 16;                // NUSE, behind NCAP
constexpr size_t kDeallocateFeatures = 33;  // DLFEAT
constexpr uint8_t kDeallocatedReadsZero = 1;
constexpr uint8_t kWriteZeroesDeallocates = 1 << 3;

}  // namespace

uint64_t NvmeModelCap(const NvmeModelConfig& config) {
  constexpr uint64_t kContiguous = 1 << 16;  // CQR
  constexpr uint64_t kNvmCommandSet = uint64_t{1} << 37;
  const uint64_t max_page = std::min(config.min_page + 4, 15);
  return uint64_t{config.queue_entries - 1} | kContiguous | uint64_t{config.timeout} << 24 |
         uint64_t{config.doorbell_stride} << 32 | kNvmCommandSet | uint64_t{config.min_page} << 48 |
         max_page << 52;
}

NvmeModelPage IdentifyController(const NvmeModelConfig& config) {
  namespace at = nvme::controller;
  NvmeModelPage page = {};
  Put<uint16_t>(page, 0, 0x1b36);  // a vendor, as in configuration space
  PutText(page, at::kSerial, 20, "model");
  PutText(page, at::kModel, 40, "Ringside NVMe model");
  PutText(page, at::kFirmware, 8, "1");
  Put<uint8_t>(page, at::kMdts, config.mdts);
  Put<uint32_t>(page, kVersion, 0x10400);
  Put<uint32_t>(page, kOptionalEvents, kNamespaceNotices);
  Put<uint16_t>(page, at::kOacs, config.shadow_doorbells ? at::kOacsDoorbellBuffers : 0);
  Put<uint8_t>(page, at::kAcl, 3);
  Put<uint8_t>(page, at::kAerl, kNvmeModelEventRequests - 1);
  Put<uint16_t>(page, kEntrySizes, 0x4466);
  Put<uint32_t>(page, at::kNn, static_cast<uint32_t>(config.namespaces.size()));
  const int oncs = (config.deallocate ? at::kOncsDatasetManagement : 0) |
                   (config.write_zeroes ? at::kOncsWriteZeroes : 0);
  Put<uint16_t>(page, at::kOncs, static_cast<uint16_t>(oncs));
  Put<uint8_t>(page, at::kVwc, kFlushOfAll | (config.write_cache ? at::kVwcPresent : 0));
  return page;
}

NvmeModelPage IdentifyNamespace(const NvmeModelNamespace& config) {
  namespace at = nvme::ns;
  NvmeModelPage page = {};
  if (config.blocks == 0) return page;
  Put<uint64_t>(page, at::kSize, config.blocks);
  Put<uint64_t>(page, at::kSize + 8, config.blocks);
  Put<uint64_t>(page, kUsed, config.blocks);
  Put<uint8_t>(page, kDeallocateFeatures, kDeallocatedReadsZero | kWriteZeroesDeallocates);
  Put<uint16_t>(page, at::kBoundary, config.boundary);
  const auto log2_of_block = static_cast<uint32_t>(std::countr_zero(config.block_size));
  Put<uint32_t>(page, at::kFormat0, config.metadata | log2_of_block << 16);
  return page;
}

NvmeModelPage ListActiveNamespaces(const NvmeModelConfig& config, uint32_t nsid) {
  NvmeModelPage page = {};
  size_t offset = 0;
  for (uint32_t i = nsid; i < config.namespaces.size() && offset < page.size(); ++i) {
    if (config.namespaces[i].blocks == 0) continue;
    Put<uint32_t>(page, offset, i + 1);
    offset += sizeof(uint32_t);
  }
  return page;
}

}  // namespace ringside::testing
