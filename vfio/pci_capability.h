// Walks the list of capabilities of a PCI device's configuration space. The device is not trusted
// with it: a list that goes in circles has an end all the same.
//
// Threads: as PciDevice. Spec: PCI Local Bus 3.0, section 6.7.
#pragma once

#include <cstdint>

#include "vfio/pci_device.h"

namespace ringside {

// The first capability with this identifier: its offset in configuration space, or 0 if there is
// none.
uint32_t FindPciCapability(PciDevice& device, uint8_t id);

}  // namespace ringside
