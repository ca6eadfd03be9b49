// What a guest finds on its buses. A machine has one of these at a time: made with the machine, and
// anew from saved state, in place of the one before. What is behind the devices stays: storage, I/O
// threads, the console's descriptors.
//
// Threads: one at a time; vCPUs use the buses. Ownership: what it is given outlives it. It is
// stopped before it goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "devices/bus.h"
#include "devices/interrupt.h"
#include "devices/pci_host.h"
#include "devices/queued_device.h"
#include "devices/serial.h"
#include "devices/virtio_device.h"
#include "devices/virtio_pci.h"
#include "kvm/memory_layout.h"
#include "vmm/devices_state.h"
#include "vmm/event_queue.h"

namespace ringside {

class GuestDevices {
 public:
  struct Function {
    std::string name;
    std::string path;   // what is behind it; empty: nothing that has a name
    std::string label;  // in logs
    std::unique_ptr<VirtioDevice> device;
    std::unique_ptr<VirtioPci> pci;
    QueuedDevice* queued = nullptr;  // the device, if it is one
  };

  GuestDevices(PciPlatform& platform, EventQueue& events, Logger log)
      : platform_(platform), events_(events), log_(log) {}

  Buses& buses() { return buses_; }
  PciHost& pci_host() { return pci_host_; }
  // Puts it on the bus, at `slot` or the next that is free.
  absl::Status Plug(std::string name, std::string path, uint32_t slot,
                    std::unique_ptr<VirtioDevice> device);
  // In the order in which they came.
  const std::vector<Function>& functions() const { return functions_; }

  // Of all but the serial port, which is the console's. While nothing moves. FailedPrecondition if
  // the guest resets a device, and its storage does not let that end.
  absl::StatusOr<DevicesState> Save() const;
  // Restore into devices that are new and at rest, after which they are as they were saved, and at
  // rest still. InvalidArgument for what no such devices could have saved, which Check finds, but
  // not what the host refuses then.
  absl::Status Check(const DevicesState& state) const;
  absl::Status Restore(const DevicesState& state);

  // Has devices that are new serve nothing, whatever is in the rings that Restore gives them. The
  // end of that: Begin, or Pausable::Resume of each.
  void Rest();
  void Begin();
  // Of devices at rest: resets them all, and waits for that.
  void Reset();
  // Has all devices give up what they do, and waits for none.
  void BeginStop();
  // Waits until no request is in flight any more, however long the host's storage takes: the kernel
  // may still write into guest memory. After a second the log names each device that is waited for,
  // once.
  void Stop();

 private:
  void LogWaitingFor(const Function& function) const;

  PciPlatform& platform_;
  EventQueue& events_;
  const Logger log_;
  Buses buses_;
  PciHost pci_host_{buses_.memory, kPciWindow, kPciWindowSize};
  std::vector<Function> functions_;
};

}  // namespace ringside
