#include "command/statistics_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/size.h"
#include "command/poll_settings.h"

namespace ringside {
namespace {

using Json = nlohmann::ordered_json;

void AppendQueue(std::string& table, const std::string& name, const QueueStatistics& queue) {
  absl::StrAppendFormat(
      &table, "  %-10s %-10s %9d %9d %8d %8d %7d %9s %9s %7d %9d %10d %10d %10d\n", name,
      queue.io_thread, queue.reads, queue.writes, queue.flushes, queue.discards, queue.others,
      FormatSize(queue.bytes_read), FormatSize(queue.bytes_written), queue.errors, queue.kicks,
      queue.kicks_suppressed(), queue.interrupts, queue.interrupts_suppressed());
}

// As it is written on the command line.
std::string Settings(const IoThreadStatistics& thread) {
  std::string text = PollText(thread.poll) + ",signal=" + thread.signal;
  for (size_t i = 0; i < thread.cpus.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d", i == 0 ? ",cpu=" : "+", thread.cpus[i]);
  }
  return text;
}

Json QueueJson(const QueueStatistics& queue) {
  return {{"io_thread", queue.io_thread},
          {"requests", queue.requests()},
          {"reads", queue.reads},
          {"writes", queue.writes},
          {"flushes", queue.flushes},
          {"discards", queue.discards},
          {"other_requests", queue.others},
          {"bytes_read", queue.bytes_read},
          {"bytes_written", queue.bytes_written},
          {"errors", queue.errors},
          {"kicks", queue.kicks},
          {"kicks_suppressed", queue.kicks_suppressed()},
          {"kicks_enabled", queue.kicks_on},
          {"kicks_disabled", queue.kicks_off},
          {"batches", queue.batches},
          {"requests_per_batch", queue.batches == 0 ? 0
                                                    : static_cast<double>(queue.requests()) /
                                                          static_cast<double>(queue.batches)},
          {"interrupts", queue.interrupts},
          {"interrupts_suppressed", queue.interrupts_suppressed()}};
}

Json QueuesJson(const std::vector<QueueStatistics>& queues) {
  Json json = Json::array();
  for (const QueueStatistics& queue : queues) json.push_back(QueueJson(queue));
  return json;
}

// What happened below the queues: what is not nothing.
void AppendBackend(std::string& table, const DiskStatistics& disk) {
  absl::StrAppendFormat(&table, "disk %s: cache=%s aio=%s", Printable(disk.path), disk.cache,
                        disk.engine.empty() ? "unused" : disk.engine);
  for (const BlockCounter& counter : disk.counters) {
    if (counter.value == 0) continue;
    std::string words = counter.name;
    std::ranges::replace(words, '_', ' ');
    absl::StrAppendFormat(&table, ", %d %s", counter.value, words);
  }
  table += '\n';
}

Json DiskJson(const DiskStatistics& disk) {
  Json counters = Json::object();
  for (const BlockCounter& counter : disk.counters) counters[counter.name] = counter.value;
  return {{"id", disk.id},      {"path", disk.path},    {"cache", disk.cache},
          {"aio", disk.engine}, {"counters", counters}, {"queues", QueuesJson(disk.queues)}};
}

}  // namespace

std::string StatisticsTable(const MachineStatistics& statistics) {
  const ConsoleStatistics& console = statistics.console;
  std::string table =
      absl::StrFormat("console: %d bytes written, %d waiting for their reader, %d dropped\n",
                      console.written, console.waiting, console.dropped);
  for (const DiskStatistics& disk : statistics.disks) {
    AppendBackend(table, disk);
    absl::StrAppendFormat(&table,
                          "  %-10s %-10s %9s %9s %8s %8s %7s %9s %9s %7s %9s %10s %10s %10s\n", "",
                          "I/O thread", "reads", "writes", "flushes", "discards", "others", "read",
                          "written", "errors", "kicks", "suppressed", "interrupts", "suppressed");
    for (size_t index = 0; index < disk.queues.size(); ++index) {
      AppendQueue(table, absl::StrFormat("queue %d", index), disk.queues[index]);
    }
  }
  for (const AssignedStatistics& device : statistics.assigned) {
    absl::StrAppendFormat(&table, "PCI device %s: %d vectors, %d exits for registers\n",
                          device.address, device.vectors, device.register_exits);
  }
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    absl::StrAppendFormat(&table,
                          "I/O thread %s (%s, %s): %d turns, %d spins (%d hits, %d ms used, %d ms "
                          "wasted, %d preempted), %d dozes (%d to their end), %d sleeps, %d "
                          "wake-ups, %d queues parked, %d io_uring_enter\n",
                          thread.id, thread.waiter, Settings(thread), thread.turns, thread.spins,
                          thread.spin_hits, thread.spin_used_ns / 1'000'000,
                          thread.spin_wasted_ns / 1'000'000, thread.preempted, thread.dozes,
                          thread.doze_ends, thread.sleeps, thread.wake_ups,
                          thread.parked - thread.unparked, thread.io_uring_enters);
  }
  for (size_t id = 0; id < statistics.vcpus.size(); ++id) {
    absl::StrAppendFormat(&table, "vCPU %d exits:", id);
    for (const ExitCount& exit : statistics.vcpus[id].exits) {
      absl::StrAppendFormat(&table, " %s=%d", exit.reason, exit.count);
    }
    table += "\n  inside the kernel:";
    for (const KernelCount& count : statistics.vcpus[id].kernel_exits) {
      absl::StrAppendFormat(&table, " %s=%d", count.name, count.count);
    }
    table += statistics.vcpus[id].kernel_exits.empty() ? " not counted by this host's KVM\n" : "\n";
  }
  return table;
}

std::string StatisticsJson(const MachineStatistics& statistics) {
  Json json = {{"console",
                {{"bytes_written", statistics.console.written},
                 {"bytes_waiting", statistics.console.waiting},
                 {"bytes_dropped", statistics.console.dropped}}},
               {"disks", Json::array()},
               {"devices", Json::array()},
               {"assigned", Json::array()},
               {"io_threads", Json::array()},
               {"vcpus", Json::array()}};
  for (const DiskStatistics& disk : statistics.disks) json["disks"].push_back(DiskJson(disk));
  for (const DeviceStatistics& device : statistics.devices) {
    json["devices"].push_back({{"id", device.id}, {"queues", QueuesJson(device.queues)}});
  }
  for (const AssignedStatistics& device : statistics.assigned) {
    json["assigned"].push_back({{"id", device.id},
                                {"address", device.address},
                                {"max_vectors", device.vectors},
                                {"register_exits", device.register_exits}});
  }
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    json["io_threads"].push_back({{"id", thread.id},
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
                                  {"io_uring_enters", thread.io_uring_enters}});
  }
  for (const VcpuStatistics& vcpu : statistics.vcpus) {
    Json exits = Json::object();
    for (const ExitCount& exit : vcpu.exits) exits[exit.reason] = exit.count;
    Json entry = {{"exits", exits}};
    for (const KernelCount& count : vcpu.kernel_exits) {
      entry["kernel_exits"][count.name] = count.count;
    }
    json["vcpus"].push_back(entry);
  }
  // A path may hold any bytes.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ringside
