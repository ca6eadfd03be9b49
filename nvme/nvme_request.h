// What a block request is as NVMe commands, however those get to their controller: through queues
// of Ringside's own, or through the kernel's. A Command is nvme::Command or the kernel's
// nvme_uring_cmd, which names its fields alike.
//
// Threads: none of its own. Spec: NVM Command Set Specification 1.0, section 3.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "nvme/nvme_identify.h"
#include "nvme/nvme_spec.h"

namespace ringside::nvme {

inline int ErrnoOf(Status status) {
  switch (status & kStatusCode) {
    case kCapacityExceeded:
      return -ENOSPC;
    case kInvalidOpcode:
      return -EOPNOTSUPP;
    case kLbaOutOfRange:
      return -EINVAL;
    default:
      return -EIO;
  }
}

// Of a command that fails or has no answer: the first time, and after two errors, or an abort and a
// reset.
inline constexpr uint8_t kMostSends = 3;

// 0 or -errno. `length`: in bytes, whatever the request says of it.
inline int Check(const NvmeNamespace& ns, const BlockRequest& request, uint64_t length) {
  const uint64_t size = ns.info.size;
  if (length > size || request.offset > size - length) return -EINVAL;
  if (request.op != BlockOp::kRead && ns.info.read_only) return -EROFS;
  const bool whole_blocks = ((request.offset | length) & (ns.block_size - 1)) == 0;
  return whole_blocks || request.op == BlockOp::kDiscard ? 0 : -EINVAL;
}

// How much of a transfer that has `left` bytes to go from `offset` on one command may be.
inline uint32_t MostOf(const NvmeNamespace& ns, BlockOp op, uint64_t offset, uint64_t left) {
  uint64_t most = uint64_t{kMaxBlocks} * ns.block_size;
  if (op != BlockOp::kWriteZeroes) {
    most = std::min<uint64_t>(most, ns.most_bytes);
    if (ns.boundary != 0) most = std::min(most, ns.boundary - offset % ns.boundary);
  }
  return static_cast<uint32_t>(std::min(most, left));
}

// Of a read, a write or a write of zeroes: all but the data.
template <typename Command>
void SetRange(Command& command, unsigned block_shift, uint64_t offset, uint64_t bytes,
              uint32_t control) {
  const uint64_t start = offset >> block_shift;
  command.cdw10 = static_cast<uint32_t>(start);
  command.cdw11 = static_cast<uint32_t>(start >> 32);
  command.cdw12 = control | static_cast<uint32_t>((bytes >> block_shift) - 1);
}

template <typename Command>
void SetTransfer(Command& command, const NvmeNamespace& ns, unsigned block_shift,
                 const BlockRequest& request, uint64_t offset, uint64_t bytes) {
  IoOp op = IoOp::kRead;
  uint32_t control = 0;
  if (request.op == BlockOp::kWrite) op = IoOp::kWrite;
  if (request.op == BlockOp::kWriteZeroes) {
    op = IoOp::kWriteZeroes;
    if (request.unmap) control |= kDeallocate;
  }
  if (request.durable && request.op != BlockOp::kRead && ns.volatile_cache) {
    control |= kForceUnitAccess;
  }
  command.opcode = static_cast<uint8_t>(op);
  SetRange(command, block_shift, offset, bytes, control);
}

template <typename Command>
void SetFlush(Command& command) {
  command.opcode = static_cast<uint8_t>(IoOp::kFlush);
  command.cdw10 = command.cdw11 = command.cdw12 = 0;
}

// Of one range, which is the command's data.
template <typename Command>
void SetDeallocate(Command& command) {
  command.opcode = static_cast<uint8_t>(IoOp::kDatasetManagement);
  command.cdw10 = 0;
  command.cdw11 = kDsmDeallocate;
  command.cdw12 = 0;
}
inline DsmRange RangeOf(unsigned block_shift, uint64_t offset, uint64_t bytes) {
  return {.attributes = 0,
          .blocks = static_cast<uint32_t>(std::min<uint64_t>(bytes >> block_shift, UINT32_MAX)),
          .start = offset >> block_shift};
}

}  // namespace ringside::nvme
