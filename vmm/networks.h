// The networks of a machine as the host has them, and the virtio-net devices that its guest gets
// for them.
//
// Threads: as Machine. Ownership: it outlives the devices that it plugs in.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "block/throttle.h"
#include "devices/device_context.h"
#include "devices/virtio_net.h"
#include "net/host_network.h"
#include "ringside/statistics.h"
#include "vmm/device_queues.h"
#include "vmm/guest_devices.h"
#include "vmm/host_state.h"

namespace ringside {

class Networks {
 public:
  static constexpr size_t kMax = 8;

  // Opens or makes the taps, connects the sockets, and finds the I/O threads of the queues.
  static absl::StatusOr<std::unique_ptr<Networks>> Open(const MachineConfig& config,
                                                        const IoThreads& io_threads, Logger log);
  // As Disks::Plug.
  absl::Status Plug(const DeviceContext& context, GuestDevices& devices);
  // See Machine.
  absl::Status SetLink(const std::string& id, bool up, DeviceQueues& queues,
                       absl::Duration patience);
  // Whether there is such a network.
  bool Has(const std::string& id) const;
  // Of one that there is.
  absl::Status SetThrottle(const std::string& id, const ThrottleLimits& limits);
  // As Disks.
  void Save(HostState& state);
  void Restore(const HostState& state);
  // Adds what is known here, but for the queues' own.
  void Collect(const DeviceQueues& queues, MachineStatistics& statistics) const;

 private:
  struct Network {
    Network(const NetConfig& config_of, std::string id_of, std::vector<std::string> io_threads_of,
            std::unique_ptr<HostNetwork> opened, const MacAddress& mac_of)
        : config(config_of),
          id(std::move(id_of)),
          io_threads(std::move(io_threads_of)),
          host(std::move(opened)),
          mac(mac_of) {
      throttle.Set(config.throttle);
      link.SetMac(mac);
    }

    const NetConfig config;  // as it was at first
    const std::string id;
    const std::vector<std::string> io_threads;  // by pair, at first
    const std::unique_ptr<HostNetwork> host;
    const MacAddress mac;
    NetLink link;
    DiskThrottle throttle;
  };

  explicit Networks(Logger log) : log_(log) {}
  absl::Status Add(const NetConfig& config, const IoThreads& io_threads);
  absl::StatusOr<Network*> Find(const std::string& id);

  const Logger log_;
  std::deque<Network> networks_;  // which stay where they are
};

}  // namespace ringside
