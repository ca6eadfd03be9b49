#include "vfio/pci_capability.h"

#include <linux/pci_regs.h>

namespace ringside {

uint32_t FindPciCapability(PciDevice& device, uint8_t id) {
  if ((device.ReadConfig(PCI_STATUS, 2) & PCI_STATUS_CAP_LIST) == 0) return 0;
  // Each has at least 4 of the 192 bytes: a longer list goes in circles.
  uint32_t offset = device.ReadConfig(PCI_CAPABILITY_LIST, 1);
  for (int left = 48; left > 0 && offset >= PCI_STD_HEADER_SIZEOF; --left) {
    offset &= ~3U;  // reserved bits
    if (device.ReadConfig(offset + PCI_CAP_LIST_ID, 1) == id) return offset;
    offset = device.ReadConfig(offset + PCI_CAP_LIST_NEXT, 1);
  }
  return 0;
}

}  // namespace ringside
