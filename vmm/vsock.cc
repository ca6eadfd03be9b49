#include "vmm/vsock.h"

#include <utility>

#include "base/status.h"
#include "devices/virtio_vsock.h"
#include "vmm/device_ids.h"
#include "vmm/pci_slots.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<Vsock>> Vsock::Open(const VsockConfig& config,
                                                   const IoThreads& io_threads, Logger log) {
  std::string io_thread = config.io_thread;
  if (io_thread.empty()) io_thread = io_threads.Usual(0);
  const std::string name = absl::StrFormat("vsock '%s'", VsockId(config));
  RINGSIDE_RETURN_IF_ERROR(Of(name, io_threads.CheckName(io_thread)));
  absl::StatusOr<std::unique_ptr<VsockHost>> host = VsockHost::Listen(config.path);
  if (!host.ok()) return Of(name, host.status());
  return std::unique_ptr<Vsock>(new Vsock(config, std::move(io_thread), *std::move(host), log));
}

absl::Status Vsock::Plug(const DeviceContext& context, GuestDevices& devices) {
  const std::string id = VsockId(config_);
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<IoThread*> io_threads,
                            context.io_threads.FindOrFirst(std::span(&io_thread_, 1)));
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<VirtioVsock> device,
                            VirtioVsock::Create(*host_, context.memory, *io_threads.front(),
                                                {.name = id,
                                                 .cid = config_.cid,
                                                 .max_connections = config_.max_connections,
                                                 .trace_latency = config_.trace_latency,
                                                 .log = log_}));
  return devices.Plug(id, config_.path, kVsockSlot, std::move(device));
}

void Vsock::Collect(const DeviceQueues& queues, MachineStatistics& statistics) const {
  const VsockCounts& counts = host_->counts();
  statistics.vsocks.push_back({.id = VsockId(config_),
                               .path = config_.path,
                               .cid = config_.cid,
                               .connections = counts.open.Get(),
                               .connected = counts.made.Get(),
                               .refused = counts.refused.Get(),
                               .credit_waits = counts.credit_waits.Get(),
                               .queues = queues.Statistics(VsockId(config_))});
}

}  // namespace ringside
