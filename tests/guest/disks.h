// The virtio-blk disks of this machine: those on bus 0 of PCI, then the virtio-mmio devices that
// the command line tells of, as virtio_mmio.device=SIZE@ADDRESS:IRQ (Linux: admin-guide/
// kernel-parameters.txt), which VMMs append for every such device.

#ifndef RINGSIDE_TESTS_GUEST_DISKS_H_
#define RINGSIDE_TESTS_GUEST_DISKS_H_

#include <span>

#include "command_line.h"
#include "virtio_blk.h"

namespace guest {

// Where Disks looks: the word transport=pci or transport=mmio keeps it from looking at the other.
// Call it first.
void ChooseDisks(const CommandLine& command_line);

// All of them, opened; the first call looks for them.
std::span<VirtioBlk> Disks();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_DISKS_H_
