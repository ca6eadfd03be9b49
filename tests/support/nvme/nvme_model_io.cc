#include "tests/support/nvme/nvme_model_io.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/support/nvme/nvme_model_spec.h"

namespace ringside::testing {
namespace {

using nvme::IoOp;
using nvme::kInvalidField;
using nvme::kInvalidNamespace;
using nvme::kInvalidOpcode;
using nvme::kLbaOutOfRange;
using nvme::kSuccess;
using nvme::Status;

uint64_t StartOf(const nvme::Command& command) {
  return command.cdw10 | uint64_t{command.cdw11} << 32;
}
uint64_t BlocksOf(const nvme::Command& command) {
  return (command.cdw12 & 0xffff) + 1;
}

bool IsWithin(uint64_t start, uint64_t blocks, const NvmeModelMedia& media) {
  const uint64_t size = media.config().blocks;
  return start <= size && blocks <= size - start;
}

}  // namespace

NvmeModelIo::NvmeModelIo(const NvmeModelConfig& config, NvmeModelMemory& memory)
    : config_(config), memory_(memory), write_cache_(config.write_cache) {
  for (const NvmeModelNamespace& space : config.namespaces) {
    media_.push_back(std::make_unique<NvmeModelMedia>(space));
  }
}

NvmeModelMedia* NvmeModelIo::media(uint32_t nsid) {
  if (nsid == 0 || nsid > media_.size() || media_[nsid - 1]->size() == 0) return nullptr;
  return media_[nsid - 1].get();
}

Status NvmeModelIo::Execute(const nvme::Command& command) {
  const auto op = static_cast<IoOp>(command.opcode);
  if (op == IoOp::kFlush) return Flush(command.nsid);
  NvmeModelMedia* const space = media(command.nsid);
  if (space == nullptr) return kInvalidNamespace;
  switch (op) {
    case IoOp::kRead:
    case IoOp::kWrite:
      return Transfer(command, *space);
    case IoOp::kWriteZeroes:
      return config_.write_zeroes ? WriteZeroes(command, *space) : kInvalidOpcode;
    case IoOp::kDatasetManagement:
      return config_.deallocate ? ManageDataset(command, *space) : kInvalidOpcode;
    default:
      return kInvalidOpcode;
  }
}

bool NvmeModelIo::IsDurable(const nvme::Command& command) const {
  return !write_cache_ || (command.cdw12 & nvme::kForceUnitAccess) != 0;
}

Status NvmeModelIo::Transfer(const nvme::Command& command, NvmeModelMedia& media) {
  const uint64_t block_size = media.config().block_size;
  const uint64_t size = BlocksOf(command) * block_size;
  const uint64_t page = uint64_t{nvme::kPageSize} << config_.min_page;
  if (config_.mdts != 0 && size > page << std::min<int>(config_.mdts, 32)) return kInvalidField;
  if (!IsWithin(StartOf(command), BlocksOf(command), media)) return kLbaOutOfRange;
  const uint64_t offset = StartOf(command) * block_size;

  std::span<const NvmeModelPiece> pieces;
  const Status status = memory_.Gather(command, size, pieces);
  if (status != kSuccess) return status;
  std::byte* place = media.contents(offset);
  const bool is_read = static_cast<IoOp>(command.opcode) == IoOp::kRead;
  for (const NvmeModelPiece& piece : pieces) {
    std::memcpy(is_read ? piece.host : place, is_read ? place : piece.host, piece.size);
    place += piece.size;
  }
  if (!is_read) media.Written(offset, size, IsDurable(command));
  return kSuccess;
}

Status NvmeModelIo::Flush(uint32_t nsid) {
  if (nsid == kAllNamespaces) {
    FlushAll();
    return kSuccess;
  }
  NvmeModelMedia* const space = media(nsid);
  if (space == nullptr) return kInvalidNamespace;
  space->Flush();
  return kSuccess;
}

Status NvmeModelIo::WriteZeroes(const nvme::Command& command, NvmeModelMedia& media) {
  if (!IsWithin(StartOf(command), BlocksOf(command), media)) return kLbaOutOfRange;
  const uint64_t block_size = media.config().block_size;
  media.Zero(StartOf(command) * block_size, BlocksOf(command) * block_size, IsDurable(command));
  return kSuccess;
}

Status NvmeModelIo::ManageDataset(const nvme::Command& command, NvmeModelMedia& media) {
  std::array<nvme::DsmRange, 256> all;
  const auto ranges = std::span(all).first((command.cdw10 & 0xff) + 1);
  const Status status = memory_.Read(command, std::as_writable_bytes(ranges));
  if (status != kSuccess) return status;
  for (const nvme::DsmRange& range : ranges) {
    if (!IsWithin(range.start, range.blocks, media)) return kLbaOutOfRange;
  }
  if ((command.cdw11 & nvme::kDsmDeallocate) == 0) return kSuccess;
  const uint64_t block_size = media.config().block_size;
  for (const nvme::DsmRange& range : ranges) {
    media.Zero(range.start * block_size, range.blocks * block_size, !write_cache_);
  }
  return kSuccess;
}

void NvmeModelIo::SetWriteCache(bool on) {
  write_cache_ = on;
  if (!on) FlushAll();
}

void NvmeModelIo::FlushAll() {
  for (const auto& space : media_) space->Flush();
}

void NvmeModelIo::PowerCut(std::optional<uint64_t> seed) {
  std::mt19937_64 random(seed.value_or(0));
  for (const auto& space : media_) space->PowerCut(seed ? &random : nullptr);
  write_cache_ = config_.write_cache;
}

}  // namespace ringside::testing
