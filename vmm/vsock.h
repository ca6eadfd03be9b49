// The vsock of a machine, if it has one, as the host has it, and the virtio-vsock device that its
// guest gets for it.
//
// Threads: as Machine. Ownership: it outlives the device that it plugs in.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "devices/device_context.h"
#include "net/vsock_host.h"
#include "ringside/config.h"
#include "ringside/statistics.h"
#include "vmm/device_queues.h"
#include "vmm/guest_devices.h"

namespace ringside {

class Vsock {
 public:
  // Makes the socket, and finds the I/O thread of the queues.
  static absl::StatusOr<std::unique_ptr<Vsock>> Open(const VsockConfig& config,
                                                     const IoThreads& io_threads, Logger log);
  // As Disks::Plug.
  absl::Status Plug(const DeviceContext& context, GuestDevices& devices);
  // The device is stopped for good: who waits for it to take a connection waits no longer.
  void Close() { host_->Close(); }
  // Adds it.
  void Collect(const DeviceQueues& queues, MachineStatistics& statistics) const;

 private:
  Vsock(VsockConfig config, std::string io_thread, std::unique_ptr<VsockHost> host, Logger log)
      : config_(std::move(config)),
        io_thread_(std::move(io_thread)),
        host_(std::move(host)),
        log_(log) {}

  const VsockConfig config_;
  const std::string io_thread_;  // at first
  const std::unique_ptr<VsockHost> host_;
  const Logger log_;
};

}  // namespace ringside
