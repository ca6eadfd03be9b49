#include "command/placement_report.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_format.h"
#include "advice/disk_facts.h"
#include "advice/placement_advice.h"
#include "base/printable.h"

namespace ringside {
namespace {

// Where the disk's threads are kept; empty if one of them may run anywhere.
std::vector<int> CpusOf(const DiskStatistics& disk, const MachineStatistics& statistics) {
  std::set<int> cpus;
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    if (std::ranges::find(disk.queues, thread.id, &QueueStatistics::io_thread) ==
        disk.queues.end()) {
      continue;
    }
    if (thread.cpus.empty()) return {};
    cpus.insert(thread.cpus.begin(), thread.cpus.end());
  }
  return {cpus.begin(), cpus.end()};
}

}  // namespace

std::vector<DiskPlacement> PlacementsOf(const MachineStatistics& statistics,
                                        const std::vector<int>& memory_nodes,
                                        const std::filesystem::path& root) {
  const std::vector<HostNode> nodes = ReadHostNodes(root / "sys");
  std::vector<DiskPlacement> placements;
  for (const DiskStatistics& disk : statistics.disks) {
    const Placement placement = {.io_thread_cpus = CpusOf(disk, statistics),
                                 .memory_nodes = memory_nodes};
    placements.push_back({.disk = disk.id,
                          .path = disk.path,
                          .findings = NodeAdvice(NodeOfDisk(disk.path, root), placement, nodes)});
  }
  return placements;
}

std::string PlacementText(const std::vector<DiskPlacement>& placements) {
  std::string text;
  for (const DiskPlacement& placement : placements) {
    for (const Finding& each : placement.findings) {
      absl::StrAppendFormat(&text, "%s, %s: %s%s\n", placement.disk, Printable(placement.path),
                            each.text, each.command.empty() ? "" : " (" + each.command + ")");
    }
  }
  return text;
}

}  // namespace ringside
