#include "nvme/nvme_identify.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "block/block_resize.h"
#include "nvme/nvme_spec.h"

namespace ringside {

NvmeFeatures ParseNvmeController(std::span<const std::byte> data) {
  namespace field = nvme::controller;
  constexpr unsigned kMostMdts = 18;  // 1 GiB: no limit to anyone here
  const unsigned mdts = nvme::Field<uint8_t>(data, field::kMdts);
  const auto optional = nvme::Field<uint16_t>(data, field::kOncs);
  constexpr uint16_t kDiscard = field::kOncsDatasetManagement | field::kOncsWriteZeroes;
  return {.most_bytes = nvme::kPageSize << (mdts == 0 ? kMostMdts : std::min(mdts, kMostMdts)),
          .volatile_cache = (nvme::Field<uint8_t>(data, field::kVwc) & field::kVwcPresent) != 0,
          .discard = (optional & kDiscard) == kDiscard,
          .doorbell_buffers =
              (nvme::Field<uint16_t>(data, field::kOacs) & field::kOacsDoorbellBuffers) != 0};
}

absl::StatusOr<NvmeNamespace> ParseNvmeNamespace(std::string_view controller, uint32_t id,
                                                 const NvmeFeatures& features,
                                                 std::span<const std::byte> data) {
  // Of one that is not there all fields are zero.
  const auto blocks = nvme::Field<uint64_t>(data, nvme::ns::kSize);
  if (blocks == 0) {
    return absl::NotFoundError(absl::StrFormat("%s has no namespace %d", controller, id));
  }
  const auto in_use = nvme::Field<uint8_t>(data, nvme::ns::kFormatInUse);
  const size_t index = (in_use & 0xf) | (in_use >> 1 & 0x30);
  const auto format = nvme::Field<uint32_t>(data, nvme::ns::kFormat0 + 4 * index);
  const uint32_t shift = (format >> 16) & 0xff;
  const uint32_t metadata = format & 0xffff;
  if (shift < 9 || shift > 12 || metadata != 0) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: namespace %d has blocks of 2^%d bytes with %d of metadata; format it with 512 or 4096 "
        "and none, or use it through the kernel's driver",
        controller, id, shift, metadata));
  }
  // Beyond that bytes could not be counted, and none is so large.
  constexpr uint64_t kMostBytes = uint64_t{1} << 62;
  if (blocks > kMostBytes >> shift) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: namespace %d says that it has %d blocks of %d bytes, which is impossible", controller,
        id, blocks, 1U << shift));
  }
  NvmeNamespace result = {.id = id,
                          .block_size = 1U << shift,
                          .most_bytes = features.most_bytes,
                          .volatile_cache = features.volatile_cache};
  result.boundary = uint64_t{nvme::Field<uint16_t>(data, nvme::ns::kBoundary)} << shift;
  BlockInfo& info = result.info;
  info = {.size = blocks << shift,
          .logical_block = result.block_size,
          .physical_block = result.block_size,
          .write_back = features.volatile_cache,
          .can_discard = features.discard,
          .discard_alignment = result.block_size};
  if ((nvme::Field<uint8_t>(data, nvme::ns::kFeatures) & nvme::ns::kHasPreferredSizes) != 0) {
    const uint32_t preferred = nvme::Field<uint16_t>(data, nvme::ns::kPreferredWrite) + 1U;
    info.physical_block = std::min(std::bit_floor(preferred) << shift, nvme::kPageSize);
    info.optimal_io = (nvme::Field<uint16_t>(data, nvme::ns::kOptimalWrite) + 1U) << shift;
  }
  return result;
}

absl::Status CheckNamespaceResize(std::optional<uint64_t> size) {
  if (!size) return absl::OkStatus();
  return BadInput(
      "it is an NVMe namespace: have its controller make that larger, and leave the size out");
}

absl::Status GrowNamespace(NvmeNamespace& ns, const NvmeNamespace& now) {
  if (now.block_size != ns.block_size) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "it has blocks of %d bytes now, and its guest was told %d: format it as it was",
        now.block_size, ns.block_size));
  }
  RINGSIDE_RETURN_IF_ERROR(CheckGrown(ns.info, now.info.size));
  ns.info.size.Set(now.info.size);
  return absl::OkStatus();
}

}  // namespace ringside
