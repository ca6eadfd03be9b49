// The devices of a machine as a snapshot has them.
//
// Threads: none.
#pragma once

#include <string>
#include <vector>

#include "devices/pci_host.h"
#include "devices/serial.h"
#include "devices/virtio_pci.h"

namespace ringside {

// The devices of a machine as its guest could tell them apart from others, but for what it has in
// memory. Not in it: what a device of the host has that the guest has whole.
struct DevicesState {
  struct Function {
    std::string name;
    VirtioPci::State pci;
    bool operator==(const Function&) const = default;
  };
  Serial::State serial;
  PciHost::State pci_host;
  std::vector<Function> functions;
  bool operator==(const DevicesState&) const = default;
};

}  // namespace ringside
