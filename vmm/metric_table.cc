#include "vmm/metric_table.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "poll/policy.h"
#include "vmm/queue_metrics.h"

namespace ringside {
namespace {

using enum MetricType;

// Of a counter of each I/O thread.
template <uint64_t IoThreadStatistics::* counter>
void WriteThreads(const MetricSource& source, MetricWriter& writer) {
  for (const IoThreadStatistics& thread : source.statistics.io_threads) {
    writer.Sample({thread.id}, MetricNumber(thread.*counter));
  }
}

// Of one in nanoseconds.
template <uint64_t IoThreadStatistics::* ns>
void WriteThreadSeconds(const MetricSource& source, MetricWriter& writer) {
  for (const IoThreadStatistics& thread : source.statistics.io_threads) {
    const bool is_endless = thread.*ns == static_cast<uint64_t>(kWaitForever);
    writer.Sample({thread.id}, is_endless ? "+Inf" : MetricSeconds(thread.*ns));
  }
}

template <uint64_t ConsoleStatistics::* bytes>
void WriteConsole(const MetricSource& source, MetricWriter& writer) {
  writer.Sample({}, MetricNumber(source.statistics.console.*bytes));
}

// Exits for which there is no name come as one: a sample may not come twice.
template <typename Count>
void WriteExits(size_t vcpu, const std::vector<Count>& counts, const char* Count::* name,
                MetricWriter& writer) {
  std::map<std::string, uint64_t> sums;
  for (const Count& count : counts) sums[count.*name] += count.count;
  for (const auto& [reason, sum] : sums) {
    writer.Sample({absl::StrCat(vcpu), reason}, MetricNumber(sum));
  }
}

void WriteStates(const MetricSource& source, MetricWriter& writer) {
  for (size_t i = 0; i < kMachineStates; ++i) {
    const auto state = static_cast<MachineState>(i);
    writer.Sample({MachineStateName(state)}, state == source.state ? "1" : "0");
  }
}

std::vector<Metric> MachineMetrics() {
  return {
      {"ringside_machine_state",
       kGauge,
       {"state"},
       "1 for the state that the machine is in, 0 for the others",
       WriteStates},
      {"ringside_process_cpu_seconds_total",
       kCounter,
       {},
       "processor time of the process, vCPUs included",
       [](const MetricSource& source, MetricWriter& writer) {
         writer.Sample({}, MetricNumber(source.process.cpu_seconds));
       }},
      {"ringside_process_resident_memory_bytes",
       kGauge,
       {},
       "resident memory of the process, with what the guest has touched of its own",
       [](const MetricSource& source, MetricWriter& writer) {
         writer.Sample({}, MetricNumber(source.process.resident_bytes));
       }},
      {"ringside_process_open_fds",
       kGauge,
       {},
       "open file descriptors of the process",
       [](const MetricSource& source, MetricWriter& writer) {
         writer.Sample({}, MetricNumber(source.process.open_descriptors));
       }},
      {"ringside_process_threads",
       kGauge,
       {},
       "threads of the process",
       [](const MetricSource& source, MetricWriter& writer) {
         writer.Sample({}, MetricNumber(source.process.threads));
       }},
  };
}

std::vector<Metric> AssignedMetrics() {
  return {
      {"ringside_assigned_info",
       kGauge,
       {"device", "address"},
       "1 for each device that is passed through",
       [](const MetricSource& source, MetricWriter& writer) {
         for (const AssignedStatistics& device : source.statistics.assigned) {
           writer.Sample({device.id, device.address}, "1");
         }
       }},
      {"ringside_assigned_register_exits_total",
       kCounter,
       {"device"},
       "accesses to registers of a device that is passed through which left the guest",
       [](const MetricSource& source, MetricWriter& writer) {
         for (const AssignedStatistics& device : source.statistics.assigned) {
           writer.Sample({device.id}, MetricNumber(device.register_exits));
         }
       }},
  };
}

std::vector<Metric> ThreadMetrics() {
  return {
      {"ringside_io_thread_info",
       kGauge,
       {"io_thread", "waiter", "poll", "signal", "cpus"},
       "1 for each I/O thread, with its settings",
       [](const MetricSource& source, MetricWriter& writer) {
         for (const IoThreadStatistics& thread : source.statistics.io_threads) {
           writer.Sample({thread.id, thread.waiter, PollKindName(thread.poll.kind), thread.signal,
                          absl::StrJoin(thread.cpus, "+")},
                         "1");
         }
       }},
      {"ringside_io_thread_turns_total",
       kCounter,
       {"io_thread"},
       "turns of an I/O thread",
       WriteThreads<&IoThreadStatistics::turns>},
      {"ringside_io_thread_polls_total",
       kCounter,
       {"io_thread"},
       "waits that began by polling the rings",
       WriteThreads<&IoThreadStatistics::spins>},
      {"ringside_io_thread_poll_hits_total",
       kCounter,
       {"io_thread"},
       "polls in which something came",
       WriteThreads<&IoThreadStatistics::spin_hits>},
      {"ringside_io_thread_poll_preemptions_total",
       kCounter,
       {"io_thread"},
       "polls that were given up since another thread waited for the processor",
       WriteThreads<&IoThreadStatistics::preempted>},
      {"ringside_io_thread_poll_used_seconds_total",
       kCounter,
       {"io_thread"},
       "time of polls in which something came",
       WriteThreadSeconds<&IoThreadStatistics::spin_used_ns>},
      {"ringside_io_thread_poll_wasted_seconds_total",
       kCounter,
       {"io_thread"},
       "time of polls in which nothing came",
       WriteThreadSeconds<&IoThreadStatistics::spin_wasted_ns>},
      {"ringside_io_thread_poll_limit_seconds",
       kGauge,
       {"io_thread"},
       "how long the last wait was to poll at most",
       WriteThreadSeconds<&IoThreadStatistics::spin_limit_ns>},
      {"ringside_io_thread_dozes_total",
       kCounter,
       {"io_thread"},
       "sleeps by a timer",
       WriteThreads<&IoThreadStatistics::dozes>},
      {"ringside_io_thread_doze_ends_total",
       kCounter,
       {"io_thread"},
       "dozes that their timer ended",
       WriteThreads<&IoThreadStatistics::doze_ends>},
      {"ringside_io_thread_sleeps_total",
       kCounter,
       {"io_thread"},
       "sleeps until something comes",
       WriteThreads<&IoThreadStatistics::sleeps>},
      {"ringside_io_thread_wake_ups_total",
       kCounter,
       {"io_thread"},
       "sleeps that another thread ended",
       WriteThreads<&IoThreadStatistics::wake_ups>},
      {"ringside_io_thread_queues_parked_total",
       kCounter,
       {"io_thread"},
       "queues that fell silent, and are polled no more",
       WriteThreads<&IoThreadStatistics::parked>},
      {"ringside_io_thread_queues_unparked_total",
       kCounter,
       {"io_thread"},
       "parked queues that are polled again",
       WriteThreads<&IoThreadStatistics::unparked>},
      {"ringside_io_thread_io_uring_enters_total",
       kCounter,
       {"io_thread"},
       "io_uring_enter system calls",
       WriteThreads<&IoThreadStatistics::io_uring_enters>},
      {"ringside_io_thread_wake_latency_seconds",
       kGauge,
       {"io_thread"},
       "latency of waking by an interrupt, as measured; 0 where nothing polls",
       WriteThreadSeconds<&IoThreadStatistics::wake_ns>},
      {"ringside_io_thread_kick_latency_seconds",
       kGauge,
       {"io_thread"},
       "latency of waking by another thread, as measured; 0 where nothing polls",
       WriteThreadSeconds<&IoThreadStatistics::kick_ns>},
      {"ringside_io_thread_sleep_cpu_seconds",
       kGauge,
       {"io_thread"},
       "processor time of a sleep, as measured; 0 where nothing polls",
       WriteThreadSeconds<&IoThreadStatistics::sleep_cpu_ns>},
  };
}

std::vector<Metric> VcpuMetrics() {
  return {
      {"ringside_vcpu_exits_total",
       kCounter,
       {"vcpu", "reason"},
       "returns of KVM_RUN: exits that Ringside has seen",
       [](const MetricSource& source, MetricWriter& writer) {
         for (size_t id = 0; id < source.statistics.vcpus.size(); ++id) {
           WriteExits(id, source.statistics.vcpus[id].exits, &ExitCount::reason, writer);
         }
       }},
      {"ringside_vcpu_kernel_exits_total",
       kCounter,
       {"vcpu", "event"},
       "what KVM counts of a vCPU, where it does, by KVM's names",
       [](const MetricSource& source, MetricWriter& writer) {
         for (size_t id = 0; id < source.statistics.vcpus.size(); ++id) {
           WriteExits(id, source.statistics.vcpus[id].kernel_exits, &KernelCount::name, writer);
         }
       }},
  };
}

std::vector<Metric> ConsoleMetrics() {
  return {
      {"ringside_console_written_bytes_total",
       kCounter,
       {},
       "bytes that the guest has sent",
       WriteConsole<&ConsoleStatistics::written>},
      {"ringside_console_dropped_bytes_total",
       kCounter,
       {},
       "bytes of the guest that were dropped",
       WriteConsole<&ConsoleStatistics::dropped>},
      {"ringside_console_waiting_bytes",
       kGauge,
       {},
       "bytes that wait for their reader",
       WriteConsole<&ConsoleStatistics::waiting>},
  };
}

}  // namespace

const char* MetricTypeName(MetricType type) {
  constexpr const char* kNames[] = {"counter", "gauge", "histogram"};
  return kNames[static_cast<size_t>(type)];
}

std::span<const Metric> Metrics() {
  static const std::vector<Metric> kMetrics = [] {
    std::vector<Metric> all;
    for (const auto part : {MachineMetrics, QueueMetrics, AssignedMetrics, ThreadMetrics,
                            VcpuMetrics, ConsoleMetrics}) {
      std::ranges::move(part(), std::back_inserter(all));
    }
    return all;
  }();
  return kMetrics;
}

}  // namespace ringside
