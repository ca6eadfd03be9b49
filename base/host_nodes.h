// The host's NUMA nodes: memory, and the CPUs that are near to it.
//
// Threads: any. Errors: InvalidArgument, in one line that names the node, for what cannot be.
// Spec: Documentation/ABI/stable/sysfs-devices-node; mbind(2); set_mempolicy(2).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ringside {

struct HostNode {
  int id = 0;
  uint64_t memory = 0;    // bytes; 0: it has CPUs alone
  std::vector<int> cpus;  // ascending; empty: it has memory alone
};

// Ascending; empty if the kernel does not tell. `sys` is another directory in tests.
std::vector<HostNode> ReadHostNodes(const std::filesystem::path& sys = "/sys");

// A list as the kernel writes it, "0-3,8"; empty if it is none.
std::vector<int> ParseKernelList(std::string text);

// Those of `nodes` that have one of the CPUs, ascending.
std::vector<int> NodesOfCpus(std::span<const int> cpus, const std::vector<HostNode>& nodes);

// Whether so many bytes can be had of the nodes `wanted`. No node twice. To want none: OK.
absl::Status CheckHostNodes(std::span<const int> wanted, uint64_t bytes,
                            const std::vector<HostNode>& nodes);

// Has pages of the mapping that were not touched yet come from these nodes alone; from several in
// turns. On none: from where they come anyhow.
absl::Status BindMemory(void* memory, uint64_t size, std::span<const int> nodes);

}  // namespace ringside
