// Writes and checks ranges of a disk with the pattern of pattern.h, in requests of many shapes:
// different sizes, one or several pieces of memory, aligned or not, one or many in flight.

#ifndef RINGSIDE_TESTS_GUEST_DISK_TRANSFER_H_
#define RINGSIDE_TESTS_GUEST_DISK_TRANSFER_H_

#include <cstdint>

#include "virtio_blk.h"

namespace guest {

constexpr int kMaxDepth = 16;

struct Transfer {
  BlkType type = kBlkRead;
  uint64_t seed = 0;
  uint64_t first_sector = 0;
  uint64_t sectors = 0;  // whole blocks
  int depth = 1;
};

// False, after a FAIL line, if a request fails or what is read is not the pattern.
bool RunTransfer(VirtioBlk& disk, const Transfer& transfer);

// The number of requests that all transfers have completed.
uint64_t CompletedRequests();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_DISK_TRANSFER_H_
