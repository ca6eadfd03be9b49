#include "vmm/statistics_json.h"

#include <nlohmann/json.hpp>

#include "devices/latency_trace.h"
#include "devices/signal_policy.h"
#include "vmm/poll_settings.h"
#include "vmm/throttle_options.h"

namespace ringside {
namespace {

// Buckets that are not empty; the last has no end.
Json LatencyJson(const LatencyHistogram& histogram) {
  Json buckets = Json::array();
  for (size_t i = 0; i < kLatencyBuckets; ++i) {
    if (histogram.counts[i] == 0) continue;
    const bool is_last = i == kLatencyBoundsNs.size();
    buckets.push_back(
        {{"to_ns", is_last ? Json() : Json(kLatencyBoundsNs[i])}, {"count", histogram.counts[i]}});
  }
  return {{"count", histogram.count()}, {"sum_ns", histogram.sum_ns}, {"buckets", buckets}};
}

Json SignalsJson(const SignalStatistics& signals) {
  Json raised = Json::object();
  for (size_t i = 0; i < kSignalReasons; ++i) {
    raised[SignalReasonName(static_cast<SignalReason>(i))] = signals.raised[i];
  }
  return {{"raised", raised},
          {"held", signals.held},
          {"held_ns", signals.held_ns},
          {"dropped", signals.dropped}};
}

// 0 of none.
double PerOne(uint64_t sum, uint64_t count) {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

}  // namespace

Json QueueStatisticsJson(const QueueStatistics& queue) {
  Json json = {{"io_thread", queue.io_thread},
               {"requests", queue.requests()},
               {"reads", queue.reads},
               {"writes", queue.writes},
               {"flushes", queue.flushes},
               {"discards", queue.discards},
               {"other_requests", queue.others},
               {"bytes_read", queue.bytes_read},
               {"bytes_written", queue.bytes_written},
               {"errors", queue.errors},
               {"kept", queue.kept},
               {"kicks", queue.kicks},
               {"kicks_suppressed", queue.kicks_suppressed()},
               {"kicks_enabled", queue.kicks_on},
               {"kicks_disabled", queue.kicks_off},
               {"batches", queue.batches},
               {"requests_per_batch", PerOne(queue.requests(), queue.batches)},
               {"interrupts", queue.interrupts},
               {"requests_per_interrupt", PerOne(queue.requests(), queue.interrupts)},
               {"interrupts_suppressed", queue.interrupts_suppressed()},
               {"signals", SignalsJson(queue.signals)},
               {"throttled", queue.throttled},
               {"throttled_ns", queue.throttled_ns}};
  for (const LatencyHistogram& histogram : queue.latencies) {
    json["latencies"][RequestKindName(histogram.kind)] = LatencyJson(histogram);
  }
  return json;
}

Json DiskStatisticsJson(const DiskStatistics& disk) {
  Json counters = Json::object();
  for (const BlockCounter& counter : disk.counters) counters[counter.name] = counter.value;
  return {{"id", disk.id},
          {"path", disk.path},
          {"size", disk.size},
          {"cache", disk.cache},
          {"aio", disk.engine},
          {"counters", counters},
          {"throttle", ThrottleJson(disk.throttle)},
          {"throttle_group", disk.throttle_group},
          {"queues", ArrayOf(disk.queues, QueueStatisticsJson)}};
}

Json NetworkStatisticsJson(const NetworkStatistics& network) {
  return {{"id", network.id},
          {"path", network.path},
          {"mac", network.mac},
          {"link_up", network.link_up},
          {"throttle", ThrottleJson(network.throttle)},
          {"queues", ArrayOf(network.queues, QueueStatisticsJson)}};
}

Json VsockStatisticsJson(const VsockStatistics& vsock) {
  return {{"id", vsock.id},
          {"path", vsock.path},
          {"cid", vsock.cid},
          {"connections", vsock.connections},
          {"connected", vsock.connected},
          {"refused", vsock.refused},
          {"credit_waits", vsock.credit_waits},
          {"queues", ArrayOf(vsock.queues, QueueStatisticsJson)}};
}

Json ThrottleGroupJson(const ThrottleGroupConfig& group) {
  return {{"id", group.id}, {"throttle", ThrottleJson(group.limits)}};
}

Json DeviceStatisticsJson(const DeviceStatistics& device) {
  return {{"id", device.id}, {"queues", ArrayOf(device.queues, QueueStatisticsJson)}};
}

Json AssignedStatisticsJson(const AssignedStatistics& device) {
  return {{"id", device.id},
          {"address", device.address},
          {"max_vectors", device.vectors},
          {"register_exits", device.register_exits}};
}

Json IoThreadStatisticsJson(const IoThreadStatistics& thread) {
  return {{"id", thread.id},
          {"waiter", thread.waiter},
          {"poll", PollJson(thread.poll)},
          {"signal", thread.signal},
          {"cpus", thread.cpus},
          {"turns", thread.turns},
          {"spins", thread.spins},
          {"spin_hits", thread.spin_hits},
          {"spin_used_ns", thread.spin_used_ns},
          {"spin_wasted_ns", thread.spin_wasted_ns},
          {"spin_limit_ns", thread.spin_limit_ns},
          {"dozes", thread.dozes},
          {"doze_ends", thread.doze_ends},
          {"spin_preemptions", thread.preempted},
          {"wake_ns", thread.wake_ns},
          {"kick_ns", thread.kick_ns},
          {"sleep_cpu_ns", thread.sleep_cpu_ns},
          {"sleeps", thread.sleeps},
          {"wake_ups", thread.wake_ups},
          {"queues_parked", thread.parked},
          {"queues_unparked", thread.unparked},
          {"io_uring_enters", thread.io_uring_enters}};
}

Json VcpuStatisticsJson(const VcpuStatistics& vcpu) {
  Json exits = Json::object();
  for (const ExitCount& exit : vcpu.exits) exits[exit.reason] = exit.count;
  Json json = {{"exits", exits}};
  for (const KernelCount& count : vcpu.kernel_exits) json["kernel_exits"][count.name] = count.count;
  return json;
}

Json StatisticsJson(const MachineStatistics& statistics) {
  return {{"console",
           {{"bytes_written", statistics.console.written},
            {"bytes_waiting", statistics.console.waiting},
            {"bytes_dropped", statistics.console.dropped}}},
          {"disks", ArrayOf(statistics.disks, DiskStatisticsJson)},
          {"networks", ArrayOf(statistics.networks, NetworkStatisticsJson)},
          {"vsocks", ArrayOf(statistics.vsocks, VsockStatisticsJson)},
          {"throttle_groups", ArrayOf(statistics.throttle_groups, ThrottleGroupJson)},
          {"devices", ArrayOf(statistics.devices, DeviceStatisticsJson)},
          {"assigned", ArrayOf(statistics.assigned, AssignedStatisticsJson)},
          {"io_threads", ArrayOf(statistics.io_threads, IoThreadStatisticsJson)},
          {"vcpus", ArrayOf(statistics.vcpus, VcpuStatisticsJson)}};
}

}  // namespace ringside
