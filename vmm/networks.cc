#include "vmm/networks.h"

#include <algorithm>

#include "base/clock.h"
#include "base/host_files.h"
#include "base/nearest.h"
#include "base/status.h"
#include "net/stream_network.h"
#include "net/tap.h"
#include "vmm/device_ids.h"
#include "vmm/mac_address.h"
#include "vmm/pci_slots.h"
#include "vmm/queue_mapping.h"

namespace ringside {
namespace {

absl::StatusOr<std::unique_ptr<HostNetwork>> OpenTap(const NetConfig& config) {
  auto tap = config.fds.empty()
                 ? Tap::ByName(config.tap, std::max<uint16_t>(config.queues, 1), config.mtu)
                 : Tap::ByDescriptors(config.fds);
  if (tap.ok() && config.vhost) RINGSIDE_RETURN_IF_ERROR((*tap)->UseVhost());
  return tap;
}

absl::StatusOr<std::unique_ptr<HostNetwork>> OpenHost(const NetConfig& config) {
  if (!config.tap.empty() || !config.fds.empty()) return OpenTap(config);
  if (!config.socket.empty()) return StreamNetwork::Connect(config.socket);
  if (config.stream_fd >= 0) return StreamNetwork::ByDescriptor(config.stream_fd);
  return BadInput("passt is started by the command 'ringside run': start it, and give its socket");
}

// Those of the kernel, which knows of no pairs: the first has them all.
void AddCounts(const std::optional<NetCounts>& counts, std::vector<QueueStatistics>& queues) {
  if (!counts.has_value() || queues.size() < 2) return;
  queues[0].reads = counts->frames_in;
  queues[0].bytes_read = counts->bytes_in;
  queues[1].writes = counts->frames_out;
  queues[1].bytes_written = counts->bytes_out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Networks>> Networks::Open(const MachineConfig& config,
                                                         const IoThreads& io_threads, Logger log) {
  if (config.networks.size() > kMax) {
    return BadInput("networks: there are %d, and a machine has at most %d", config.networks.size(),
                    kMax);
  }
  std::unique_ptr<Networks> networks(new Networks(log));
  for (size_t i = 0; i < config.networks.size(); ++i) {
    const std::string name = absl::StrFormat("network '%s'", NetworkId(config.networks[i], i));
    RINGSIDE_RETURN_IF_ERROR(Of(name, networks->Add(config.networks[i], io_threads)));
  }
  return networks;
}

absl::Status Networks::Add(const NetConfig& config, const IoThreads& io_threads) {
  const std::string id = NetworkId(config, networks_.size());
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<HostNetwork> host, OpenHost(config));
  const std::string usual = config.shares.empty() ? io_threads.Usual(networks_.size()) : "";
  RINGSIDE_ASSIGN_OR_RETURN(std::vector<std::string> mapped,
                            MapQueues(config.shares, host->info().pairs, io_threads, usual));
  MacAddress mac = MacOf(id, host->info().name, FirstLine("/etc/machine-id"));
  if (!config.mac.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(mac, ParseMac(config.mac));
  }
  networks_.emplace_back(config, id, std::move(mapped), std::move(host), mac);
  return absl::OkStatus();
}

absl::Status Networks::Plug(const DeviceContext& context, GuestDevices& devices) {
  for (Network& network : networks_) {
    const HostNetwork::Info& host = network.host->info();
    const VirtioNetConfig config = {.name = network.id,
                                    .mac = network.mac,
                                    .mtu = network.config.mtu != 0 ? network.config.mtu : host.mtu,
                                    .trace_latency = network.config.trace_latency,
                                    .throttle = &network.throttle,
                                    .log = log_};
    RINGSIDE_ASSIGN_OR_RETURN(const std::vector<IoThread*> io_threads,
                              context.io_threads.FindOrFirst(network.io_threads));
    RINGSIDE_RETURN_IF_ERROR(
        devices.Plug(network.id, host.name, kNetworkSlot,
                     std::make_unique<VirtioNet>(*network.host, network.link, context.memory,
                                                 io_threads, config)));
  }
  return absl::OkStatus();
}

absl::StatusOr<Networks::Network*> Networks::Find(const std::string& id) {
  std::vector<std::string> ids;
  for (Network& network : networks_) {
    if (network.id == id) return &network;
    ids.push_back(network.id);
  }
  if (ids.empty()) {
    return absl::NotFoundError(absl::StrFormat("there is no network '%s': there are none", id));
  }
  return absl::NotFoundError(
      absl::StrFormat("there is no network '%s': did you mean '%s'?", id, Nearest(id, ids)));
}

bool Networks::Has(const std::string& id) const {
  return std::ranges::any_of(networks_, [&](const Network& each) { return each.id == id; });
}

absl::Status Networks::SetLink(const std::string& id, bool up, DeviceQueues& queues,
                               absl::Duration patience) {
  RINGSIDE_ASSIGN_OR_RETURN(Network* const network, Find(id));
  if (up && network->link.lost()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "network '%s' is gone, and its link is down for good: start the machine anew when the "
        "network is back",
        id));
  }
  return queues.Change(id, patience, [&](QueuedDevice& device, VirtioPci& pci) {
    network->host->SetCarrier(up);
    pci.transport().ChangeConfig([&] { static_cast<VirtioNet&>(device).SetLink(up); });
    return absl::OkStatus();
  });
}

absl::Status Networks::SetThrottle(const std::string& id, const ThrottleLimits& limits) {
  RINGSIDE_RETURN_IF_ERROR(Throttle::Check(absl::StrFormat("network '%s'", id), limits));
  RINGSIDE_ASSIGN_OR_RETURN(Network* const network, Find(id));
  if (network->config.vhost) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "network '%s' has no limits, as the host's kernel carries its frames: start the machine "
        "with vhost=off for it",
        id));
  }
  network->throttle.Set(limits);
  return absl::OkStatus();
}

void Networks::Save(HostState& state) {
  const int64_t now_ns = MonotonicNs();
  for (Network& network : networks_) {
    state.AddDebts(network.id, false, network.throttle.own().Debts(now_ns));
  }
}

void Networks::Restore(const HostState& state) {
  const int64_t now_ns = MonotonicNs();
  for (Network& network : networks_) {
    network.throttle.own().Owe(state.DebtsOf(network.id, false), now_ns);
  }
}

void Networks::Collect(const DeviceQueues& queues, MachineStatistics& statistics) const {
  for (const Network& network : networks_) {
    NetworkStatistics collected = {.id = network.id,
                                   .path = network.host->info().name,
                                   .mac = MacText(network.link.mac()),
                                   .link_up = network.link.up().load(std::memory_order_relaxed),
                                   .throttle = network.throttle.limits(),
                                   .queues = queues.Statistics(network.id)};
    AddCounts(network.host->counts(), collected.queues);
    statistics.networks.push_back(std::move(collected));
  }
}

}  // namespace ringside
