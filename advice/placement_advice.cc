#include "advice/placement_advice.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace ringside {
namespace {

bool Meet(const std::vector<int>& some, const std::vector<int>& others) {
  return std::ranges::any_of(
      some, [&](int each) { return std::ranges::find(others, each) != others.end(); });
}

// The drivers that have the kernel spread a vector over the processors and keep it there.
bool IsManaged(const PciFacts& device) {
  return device.interrupts.size() > 1 && (device.driver == "nvme" || device.driver == "virtio-pci");
}

std::string NodeList(const std::vector<int>& nodes) {
  return (nodes.size() == 1 ? "node " : "nodes ") + absl::StrJoin(nodes, " and ");
}

void Thread(int disk_node, const Placement& placement, const std::vector<HostNode>& nodes,
            Findings& findings) {
  const auto near = std::ranges::find(nodes, disk_node, &HostNode::id);
  const std::vector<int> thread_nodes = NodesOfCpus(placement.io_thread_cpus, nodes);
  if (std::ranges::find(thread_nodes, disk_node) != thread_nodes.end() &&
      thread_nodes.size() == 1) {
    return;
  }
  const std::string where = thread_nodes.empty() ? "on any node" : "on " + NodeList(thread_nodes);
  const bool has_cpus = near != nodes.end() && !near->cpus.empty();
  findings.push_back({Verdict::kSlow, "io-thread-node",
                      absl::StrFormat("the disk's device is on node %d, and its I/O thread may run "
                                      "%s: registers, rings and interrupts are then far away",
                                      disk_node, where),
                      has_cpus ? "--iothread cpu=" + CpuList(near->cpus, '+') : ""});
}

void Memory(int disk_node, const Placement& placement, Findings& findings) {
  const std::vector<int>& wanted = placement.memory_nodes;
  if (wanted.size() == 1 && wanted.front() == disk_node) return;
  const std::string where = wanted.empty() ? "may be on any" : "is on " + NodeList(wanted);
  findings.push_back({Verdict::kSlow, "memory-node",
                      absl::StrFormat("the disk's device is on node %d, and the guest's memory %s: "
                                      "what is read and written crosses between nodes",
                                      disk_node, where),
                      absl::StrFormat("--memory-node %d", disk_node)});
}

void ThreadAndMemory(const Placement& placement, const std::vector<HostNode>& nodes,
                     Findings& findings) {
  const std::vector<int> thread_nodes = NodesOfCpus(placement.io_thread_cpus, nodes);
  if (thread_nodes.empty() || placement.memory_nodes.empty() ||
      Meet(thread_nodes, placement.memory_nodes)) {
    return;
  }
  findings.push_back({Verdict::kSlow, "nodes",
                      absl::StrFormat("the I/O thread runs on %s and the guest's memory is on %s: "
                                      "each look at a ring crosses between nodes",
                                      NodeList(thread_nodes), NodeList(placement.memory_nodes)),
                      ""});
}

}  // namespace

std::string CpuList(const std::vector<int>& cpus, char between) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += between;
    text += absl::StrFormat("%d", cpus[i]);
    if (end - i > 1) text += absl::StrFormat("-%d", cpus[end - 1]);
    i = end;
  }
  return text;
}

Findings InterruptAdvice(const PciFacts& device, const Placement& placement) {
  if (device.interrupts.empty()) {
    return {{Verdict::kUnknown, "interrupts",
             "which processors the disk interrupts cannot be told from here", ""}};
  }
  std::vector<int> cpus;
  for (const DeviceInterrupt& each : device.interrupts) {
    cpus.insert(cpus.end(), each.cpus.begin(), each.cpus.end());
  }
  std::ranges::sort(cpus);
  cpus.erase(std::ranges::unique(cpus).begin(), cpus.end());
  const DeviceInterrupt& first = device.interrupts.front();
  if (IsManaged(device)) {
    return {
        {Verdict::kGood, "interrupts",
         absl::StrFormat("%s has %d interrupts for I/O, which the kernel keeps on processors %s; "
                         "each I/O thread gets that of the processor it runs on",
                         device.address, device.interrupts.size(), CpuList(cpus, ',')),
         ""}};
  }
  const std::string where =
      absl::StrFormat("%s interrupts processor %s (interrupt %d, %s)", device.address,
                      CpuList(cpus, ','), first.number, first.name);
  if (placement.io_thread_cpus.empty()) {
    return {{Verdict::kNote, "interrupts",
             where + ": an I/O thread that is kept there has its completions sooner",
             cpus.empty() ? "" : "--iothread cpu=" + CpuList(cpus, '+')}};
  }
  if (Meet(cpus, placement.io_thread_cpus)) {
    return {{Verdict::kGood, "interrupts", where + ", where the I/O thread may run", ""}};
  }
  // The kernel keeps those of NVMe where they are, even a single one.
  const std::string command =
      device.driver == "nvme"
          ? "--iothread cpu=" + CpuList(cpus, '+')
          : absl::StrFormat("echo %s > /proc/irq/%d/smp_affinity_list",
                            CpuList(placement.io_thread_cpus, ','), first.number);
  return {
      {Verdict::kSlow, "interrupts",
       absl::StrFormat("%s, and the I/O thread runs on %s: each completion goes from one to the "
                       "other",
                       where, CpuList(placement.io_thread_cpus, ',')),
       command}};
}

Findings NodeAdvice(std::optional<int> disk_node, const Placement& placement,
                    const std::vector<HostNode>& nodes) {
  Findings findings;
  if (nodes.size() < 2) return findings;
  if (disk_node) {
    Thread(*disk_node, placement, nodes, findings);
    Memory(*disk_node, placement, findings);
    if (findings.empty()) {
      findings.push_back(
          {Verdict::kGood, "nodes",
           absl::StrFormat("the disk's device, its I/O thread and the guest's memory "
                           "are on node %d",
                           *disk_node),
           ""});
    }
  } else {
    findings.push_back({Verdict::kUnknown, "nodes",
                        "which node the disk's device is on cannot be told from here", ""});
  }
  ThreadAndMemory(placement, nodes, findings);
  return findings;
}

}  // namespace ringside
