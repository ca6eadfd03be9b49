#include "command/statistics_report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/size.h"
#include "command/signal_report.h"
#include "vmm/json_text.h"
#include "vmm/poll_settings.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

void AppendHeading(std::string& table) {
  absl::StrAppendFormat(&table,
                        "  %-10s %-10s %9s %9s %8s %8s %7s %9s %9s %7s %9s %10s %10s %10s\n", "",
                        "I/O thread", "reads", "writes", "flushes", "discards", "others", "read",
                        "written", "errors", "kicks", "suppressed", "interrupts", "suppressed");
}

void AppendQueue(std::string& table, const std::string& name, const QueueStatistics& queue) {
  absl::StrAppendFormat(
      &table, "  %-10s %-10s %9d %9d %8d %8d %7d %9s %9s %7d %9d %10d %10d %10d\n", name,
      queue.io_thread, queue.reads, queue.writes, queue.flushes, queue.discards, queue.others,
      FormatSize(queue.bytes_read), FormatSize(queue.bytes_written), queue.errors, queue.kicks,
      queue.kicks_suppressed(), queue.interrupts, queue.interrupts_suppressed());
  // What the row has no room for; without any hold it says it all.
  if (queue.throttled > 0) {
    absl::StrAppendFormat(&table, "    %d requests waited for their limits, %d ms in all\n",
                          queue.throttled, queue.throttled_ns / 1'000'000);
  }
  if (queue.signals.held > 0) table += SignalCountsText(queue, "    ");
  if (queue.kept > 0) {
    absl::StrAppendFormat(
        &table, "    %d requests that failed wait for the machine to be resumed\n", queue.kept);
  }
}

// As it is written on the command line.
std::string Settings(const IoThreadStatistics& thread) {
  std::string text = PollText(thread.poll) + ",signal=" + thread.signal;
  for (size_t i = 0; i < thread.cpus.size(); ++i) {
    absl::StrAppendFormat(&text, "%s%d", i == 0 ? ",cpu=" : "+", thread.cpus[i]);
  }
  return text;
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

void AppendQueues(std::string& table, const std::vector<QueueStatistics>& queues) {
  AppendHeading(table);
  for (size_t index = 0; index < queues.size(); ++index) {
    AppendQueue(table, absl::StrFormat("queue %d", index), queues[index]);
  }
}

}  // namespace

std::string StatisticsTable(const MachineStatistics& statistics) {
  const ConsoleStatistics& console = statistics.console;
  std::string table =
      absl::StrFormat("console: %d bytes written, %d waiting for their reader, %d dropped\n",
                      console.written, console.waiting, console.dropped);
  for (const DiskStatistics& disk : statistics.disks) {
    AppendBackend(table, disk);
    AppendQueues(table, disk.queues);
  }
  for (const NetworkStatistics& network : statistics.networks) {
    absl::StrAppendFormat(&table, "network %s: %s, link %s\n", Printable(network.path), network.mac,
                          network.link_up ? "up" : "down");
    AppendQueues(table, network.queues);
  }
  for (const VsockStatistics& vsock : statistics.vsocks) {
    absl::StrAppendFormat(&table,
                          "vsock %s: CID %d, %d connections, %d in all, %d refused, %d waits for "
                          "credit\n",
                          Printable(vsock.path), vsock.cid, vsock.connections, vsock.connected,
                          vsock.refused, vsock.credit_waits);
    AppendQueues(table, vsock.queues);
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

std::string StatisticsJsonText(const MachineStatistics& statistics) {
  return JsonDocument(StatisticsJson(statistics));
}

}  // namespace ringside
