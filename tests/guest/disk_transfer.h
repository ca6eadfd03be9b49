// Writes and checks ranges of a disk with the pattern of pattern.h, in requests of many shapes:
// different sizes, one or several pieces of memory, aligned or not, one or many in flight.

#ifndef RINGSIDE_TESTS_GUEST_DISK_TRANSFER_H_
#define RINGSIDE_TESTS_GUEST_DISK_TRANSFER_H_

#include <cstddef>
#include <cstdint>

#include "virtio_blk.h"

namespace guest {

constexpr int kMaxDepth = 16;

// The first sectors of a disk, whole blocks, that the pattern of pattern.h is meant for.
uint64_t PatternRange(const VirtioBlk& disk);

// How requests' data lie in memory. Firecracker answers those in one piece only.
enum class Shapes { kAll, kOnePiece };

struct Transfer {
  BlkType type = kBlkRead;
  uint64_t seed = 0;
  uint64_t first_sector = 0;
  uint64_t sectors = 0;  // whole blocks
  int depth = 1;
  size_t queue = 0;
  Shapes shapes = Shapes::kAll;
};

// False, after a FAIL line, if a request fails or what is read is not the pattern. One at a time,
// on whichever processor.
bool RunTransfer(VirtioBlk& disk, const Transfer& transfer);

// The number of requests that all transfers have completed.
uint64_t CompletedRequests();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_DISK_TRANSFER_H_
