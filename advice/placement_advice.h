// Whether a disk, its I/O thread and the guest's memory are near to each other: interrupts and NUMA
// nodes.
//
// Threads: any; these are functions of facts alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advice/block_facts.h"
#include "advice/finding.h"
#include "base/host_nodes.h"

namespace ringside {

// Where a machine is to be.
struct Placement {
  std::vector<int> io_thread_cpus = {};  // empty: anywhere
  std::vector<int> memory_nodes = {};    // empty: anywhere
};

// Where the interrupts of a disk's device arrive, and which that thread has far to go for.
Findings InterruptAdvice(const PciFacts& device, const Placement& placement);

// Of a disk on `disk_node`, if that is known. Nothing on a host that is one node.
Findings NodeAdvice(std::optional<int> disk_node, const Placement& placement,
                    const std::vector<HostNode>& nodes);

// "0-3,8", as --iothread and the kernel take them but for the sign between (a plus for the former).
std::string CpuList(const std::vector<int>& cpus, char between);

}  // namespace ringside
