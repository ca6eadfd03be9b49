#include "vmm/queue_metrics.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "devices/latency_trace.h"
#include "devices/signal_policy.h"

namespace ringside {
namespace {

using enum MetricType;

// `write` gets each queue of each device (disks, networks, a vsock, then all others), with the
// device's id and the queue's number.
template <typename Write>
void ForQueues(const MachineStatistics& statistics, Write write) {
  const auto of_device = [&](const auto& device) {
    for (size_t queue = 0; queue < device.queues.size(); ++queue) {
      write(device.id, absl::StrCat(queue), device.queues[queue]);
    }
  };
  for (const DiskStatistics& disk : statistics.disks) of_device(disk);
  for (const NetworkStatistics& network : statistics.networks) of_device(network);
  for (const VsockStatistics& vsock : statistics.vsocks) of_device(vsock);
  for (const DeviceStatistics& device : statistics.devices) of_device(device);
}

// Of a counter of each queue.
template <uint64_t QueueStatistics::* counter>
void WriteQueues(const MetricSource& source, MetricWriter& writer) {
  ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
    writer.Sample({device, queue}, MetricNumber(of.*counter));
  });
}

// Of one of its interrupts.
template <uint64_t SignalStatistics::* counter>
void WriteSignals(const MetricSource& source, MetricWriter& writer) {
  ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
    writer.Sample({device, queue}, MetricNumber(of.signals.*counter));
  });
}

void WriteReasons(const MetricSource& source, MetricWriter& writer) {
  ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
    for (size_t reason = 0; reason < kSignalReasons; ++reason) {
      writer.Sample({device, queue, SignalReasonName(static_cast<SignalReason>(reason))},
                    MetricNumber(of.signals.raised[reason]));
    }
  });
}

// Of a count of the vsock.
template <uint64_t VsockStatistics::* count>
void WriteVsock(const MetricSource& source, MetricWriter& writer) {
  for (const VsockStatistics& vsock : source.statistics.vsocks) {
    writer.Sample({vsock.id}, MetricNumber(vsock.*count));
  }
}

void WriteRequests(const MetricSource& source, MetricWriter& writer) {
  ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
    const std::array counts = {of.reads, of.writes, of.flushes, of.discards, of.others};
    for (size_t kind = 0; kind < kRequestKinds; ++kind) {
      writer.Sample({device, queue, RequestKindName(static_cast<RequestKind>(kind))},
                    MetricNumber(counts[kind]));
    }
  });
}

void WriteBytes(const MetricSource& source, MetricWriter& writer) {
  ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
    writer.Sample({device, queue, "read"}, MetricNumber(of.bytes_read));
    writer.Sample({device, queue, "write"}, MetricNumber(of.bytes_written));
  });
}

void WriteDurations(const MetricSource& source, MetricWriter& writer) {
  ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
    for (const LatencyHistogram& histogram : of.latencies) {
      writer.Histogram({device, queue, RequestKindName(histogram.kind)}, histogram);
    }
  });
}

void WriteDisks(const MetricSource& source, MetricWriter& writer) {
  for (const DiskStatistics& disk : source.statistics.disks) {
    writer.Sample({disk.id, disk.path, disk.cache, disk.engine}, "1");
  }
}

// Backends of others may count two things by one name: their sum, as a sample may not come twice.
void WriteBackends(const MetricSource& source, MetricWriter& writer) {
  for (const DiskStatistics& disk : source.statistics.disks) {
    std::map<std::string, uint64_t> sums;
    for (const BlockCounter& counter : disk.counters)
      sums[Printable(counter.name)] += counter.value;
    for (const auto& [name, sum] : sums) writer.Sample({disk.id, name}, MetricNumber(sum));
  }
}

}  // namespace

std::vector<Metric> QueueMetrics() {
  return {
      {"ringside_disk_info",
       kGauge,
       {"device", "path", "cache", "aio"},
       "1 for each disk; aio is empty until the guest uses it",
       WriteDisks},
      {"ringside_disk_size_bytes",
       kGauge,
       {"device"},
       "size of each disk, as the guest is told",
       [](const MetricSource& source, MetricWriter& writer) {
         for (const DiskStatistics& disk : source.statistics.disks) {
           writer.Sample({disk.id}, MetricNumber(disk.size));
         }
       }},
      {"ringside_disk_backend_events_total",
       kCounter,
       {"device", "event"},
       "what the backend of a disk counts, by a name of its own",
       WriteBackends},

      {"ringside_network_info",
       kGauge,
       {"device", "path", "mac"},
       "1 for each network",
       [](const MetricSource& source, MetricWriter& writer) {
         for (const NetworkStatistics& network : source.statistics.networks) {
           writer.Sample({network.id, network.path, network.mac}, "1");
         }
       }},
      {"ringside_network_link_up",
       kGauge,
       {"device"},
       "1 while the network's link is up, else 0",
       [](const MetricSource& source, MetricWriter& writer) {
         for (const NetworkStatistics& network : source.statistics.networks) {
           writer.Sample({network.id}, network.link_up ? "1" : "0");
         }
       }},

      {"ringside_vsock_connections",
       kGauge,
       {"device"},
       "connections of a vsock that there are, and that are being made",
       WriteVsock<&VsockStatistics::connections>},
      {"ringside_vsock_connected_total",
       kCounter,
       {"device"},
       "connections of a vsock to which both sides have agreed",
       WriteVsock<&VsockStatistics::connected>},
      {"ringside_vsock_refused_total",
       kCounter,
       {"device"},
       "connections of a vsock that the guest, the host or a limit has refused",
       WriteVsock<&VsockStatistics::refused>},
      {"ringside_vsock_credit_waits_total",
       kCounter,
       {"device"},
       "how often data of a vsock had to wait until the guest had room for it",
       WriteVsock<&VsockStatistics::credit_waits>},

      {"ringside_requests_total",
       kCounter,
       {"device", "queue", "kind"},
       "requests of the guest that were taken",
       WriteRequests},
      {"ringside_request_bytes_total",
       kCounter,
       {"device", "queue", "kind"},
       "bytes that requests have moved: read into guest memory, or written from it",
       WriteBytes},
      {"ringside_request_errors_total",
       kCounter,
       {"device", "queue"},
       "requests that failed and were answered",
       WriteQueues<&QueueStatistics::errors>},
      {"ringside_kept_requests",
       kGauge,
       {"device", "queue"},
       "requests that failed and wait until the machine is resumed (rerror, werror)",
       WriteQueues<&QueueStatistics::kept>},
      {"ringside_throttled_requests_total",
       kCounter,
       {"device", "queue"},
       "requests that had to wait until they fit the limits of their disk or network",
       WriteQueues<&QueueStatistics::throttled>},
      {"ringside_throttled_seconds_total",
       kCounter,
       {"device", "queue"},
       "for how long they waited, in all",
       [](const MetricSource& source, MetricWriter& writer) {
         ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
           writer.Sample({device, queue}, MetricSeconds(of.throttled_ns));
         });
       }},
      {"ringside_request_duration_seconds",
       kHistogram,
       {"device", "queue", "kind"},
       "time from when a request is seen until its answer is shown, of requests while their device "
       "was traced",
       WriteDurations},
      {"ringside_kicks_total",
       kCounter,
       {"device", "queue"},
       "kicks of the guest's driver",
       WriteQueues<&QueueStatistics::kicks>},
      {"ringside_kicks_enabled_total",
       kCounter,
       {"device", "queue"},
       "how often the driver was asked to kick",
       WriteQueues<&QueueStatistics::kicks_on>},
      {"ringside_kicks_disabled_total",
       kCounter,
       {"device", "queue"},
       "how often the driver was asked not to kick",
       WriteQueues<&QueueStatistics::kicks_off>},
      {"ringside_batches_total",
       kCounter,
       {"device", "queue"},
       "how often answers were shown to the driver, several at a time",
       WriteQueues<&QueueStatistics::batches>},
      {"ringside_interrupts_total",
       kCounter,
       {"device", "queue"},
       "interrupts of the driver for batches",
       WriteQueues<&QueueStatistics::interrupts>},
      {"ringside_interrupts_by_reason_total",
       kCounter,
       {"device", "queue", "reason"},
       "the same, by what made them due: dry (the guest had little or nothing else to do), early "
       "(it does best without waiting), awaited (somebody waits for one completion alone), silence "
       "(it did not get on with what it had), age (none waits for longer than 5 ms), hurry (a "
       "flush was done), sleep (the I/O thread was about to sleep, or the queue to leave it)",
       WriteReasons},
      {"ringside_interrupts_held_total",
       kCounter,
       {"device", "queue"},
       "interrupts that waited until the guest had use for them",
       WriteSignals<&SignalStatistics::held>},
      {"ringside_interrupts_dropped_total",
       kCounter,
       {"device", "queue"},
       "of these, the ones that the driver wanted no more",
       WriteSignals<&SignalStatistics::dropped>},
      {"ringside_interrupts_held_seconds_total",
       kCounter,
       {"device", "queue"},
       "for how long they waited, in all",
       [](const MetricSource& source, MetricWriter& writer) {
         ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
           writer.Sample({device, queue}, MetricSeconds(of.signals.held_ns));
         });
       }},
      {"ringside_queue_info",
       kGauge,
       {"device", "queue", "io_thread"},
       "1 for each queue, with the I/O thread that serves it now",
       [](const MetricSource& source, MetricWriter& writer) {
         ForQueues(source.statistics, [&](const auto& device, const auto& queue, const auto& of) {
           writer.Sample({device, queue, of.io_thread}, "1");
         });
       }},
  };
}

}  // namespace ringside
