#include "tools/statistics_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/size.h"
#include "tools/poll_settings.h"

namespace ringside {
namespace {

using Json = nlohmann::ordered_json;

void AppendQueue(std::string& table, const std::string& name, const QueueStatistics& queue) {
  absl::StrAppendFormat(&table, "  %-10s %-10s %9d %9d %8d %8d %7d %9s %9s %7d %9d %9d %9d %9d\n",
                        name, queue.io_thread, queue.reads, queue.writes, queue.flushes,
                        queue.discards, queue.others, FormatSize(queue.bytes_read),
                        FormatSize(queue.bytes_written), queue.errors, queue.kicks,
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
          {"others", queue.others},
          {"bytes_read", queue.bytes_read},
          {"bytes_written", queue.bytes_written},
          {"errors", queue.errors},
          {"kicks", queue.kicks},
          {"kicks_suppressed", queue.kicks_suppressed()},
          {"kicks_on", queue.kicks_on},
          {"kicks_off", queue.kicks_off},
          {"batches", queue.batches},
          {"requests_a_batch", queue.batches == 0 ? 0
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

// What happened below the queues.
void AppendBackend(std::string& table, const DiskStatistics& disk) {
  absl::StrAppendFormat(&table, "disk %s: cache=%s aio=%s, ", Printable(disk.path), disk.cache,
                        disk.engine.empty() ? "unused" : disk.engine);
  if (disk.nvme.has_value()) {
    const NvmeStatistics& nvme = *disk.nvme;
    absl::StrAppendFormat(&table,
                          "%d commands, %d doorbells, %d split, %d bounced, %d errors, %d resent, "
                          "%d timeouts, %d resets, %d stray completions, %d lost interrupts\n",
                          nvme.commands, nvme.doorbells, nvme.splits, nvme.bounced, nvme.errors,
                          nvme.resent, nvme.timeouts, nvme.resets, nvme.stray_completions,
                          nvme.lost_interrupts);
    return;
  }
  if (disk.passthrough.has_value()) {
    const NvmePassthroughStatistics& passed = *disk.passthrough;
    absl::StrAppendFormat(&table,
                          "%d commands, %d enters, %d split, %d bounced, %d errors, %d resent\n",
                          passed.commands, passed.enters, passed.splits, passed.bounced,
                          passed.errors, passed.resent);
    return;
  }
  absl::StrAppendFormat(&table, "%d bounced, %d short, %d retried", disk.bounced,
                        disk.short_transfers, disk.retries);
  if (disk.served_inline > 0) absl::StrAppendFormat(&table, ", %d inline", disk.served_inline);
  if (disk.submit_calls > 0) {
    absl::StrAppendFormat(&table, ", %d submission calls", disk.submit_calls);
  }
  table += '\n';
}

Json DiskJson(const DiskStatistics& disk) {
  Json json = {{"path", disk.path},
               {"cache", disk.cache},
               {"aio", disk.engine},
               {"bounced", disk.bounced},
               {"short_transfers", disk.short_transfers},
               {"retries", disk.retries},
               {"served_inline", disk.served_inline},
               {"submit_calls", disk.submit_calls}};
  if (disk.nvme.has_value()) {
    const NvmeStatistics& nvme = *disk.nvme;
    json["nvme"] = {{"commands", nvme.commands},
                    {"doorbells", nvme.doorbells},
                    {"splits", nvme.splits},
                    {"bounced", nvme.bounced},
                    {"errors", nvme.errors},
                    {"resent", nvme.resent},
                    {"timeouts", nvme.timeouts},
                    {"resets", nvme.resets},
                    {"stray_completions", nvme.stray_completions},
                    {"lost_interrupts", nvme.lost_interrupts}};
  }
  if (disk.passthrough.has_value()) {
    const NvmePassthroughStatistics& passed = *disk.passthrough;
    json["nvme_passthrough"] = {{"commands", passed.commands}, {"enters", passed.enters},
                                {"splits", passed.splits},     {"bounced", passed.bounced},
                                {"errors", passed.errors},     {"resent", passed.resent}};
  }
  json["queues"] = QueuesJson(disk.queues);
  return json;
}

}  // namespace

std::string StatisticsTable(const MachineStatistics& statistics) {
  const ConsoleStatistics& console = statistics.console;
  std::string table =
      absl::StrFormat("console: %d bytes written, %d waiting for their reader, %d dropped\n",
                      console.written, console.waiting, console.dropped);
  for (const DiskStatistics& disk : statistics.disks) {
    AppendBackend(table, disk);
    absl::StrAppendFormat(&table, "  %-10s %-10s %9s %9s %8s %8s %7s %9s %9s %7s %9s %9s %9s %9s\n",
                          "", "I/O thread", "reads", "writes", "flushes", "discards", "others",
                          "read", "written", "errors", "kicks", "(spared)", "interrupts",
                          "(spared)");
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
                          thread.name, thread.waiter, Settings(thread), thread.turns, thread.spins,
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
                {{"written", statistics.console.written},
                 {"waiting", statistics.console.waiting},
                 {"dropped", statistics.console.dropped}}},
               {"disks", Json::array()},
               {"devices", Json::array()},
               {"assigned", Json::array()},
               {"io_threads", Json::array()},
               {"vcpus", Json::array()}};
  for (const DiskStatistics& disk : statistics.disks) {
    json["disks"].push_back(DiskJson(disk));
  }
  for (const DeviceStatistics& device : statistics.devices) {
    json["devices"].push_back({{"name", device.name}, {"queues", QueuesJson(device.queues)}});
  }
  for (const AssignedStatistics& device : statistics.assigned) {
    json["assigned"].push_back({{"address", device.address},
                                {"vectors", device.vectors},
                                {"register_exits", device.register_exits}});
  }
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    json["io_threads"].push_back({{"name", thread.name},
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
                                  {"preempted", thread.preempted},
                                  {"wake_ns", thread.wake_ns},
                                  {"kick_ns", thread.kick_ns},
                                  {"sleep_cpu_ns", thread.sleep_cpu_ns},
                                  {"sleeps", thread.sleeps},
                                  {"wake_ups", thread.wake_ups},
                                  {"parked", thread.parked},
                                  {"unparked", thread.unparked},
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
