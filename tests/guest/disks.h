// The virtio-blk disks of this machine, in the order of virtio_search.h.

#ifndef RINGSIDE_TESTS_GUEST_DISKS_H_
#define RINGSIDE_TESTS_GUEST_DISKS_H_

#include <span>

#include "virtio_blk.h"

namespace guest {

// All of them, opened; the first call looks for them.
std::span<VirtioBlk> Disks();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_DISKS_H_
