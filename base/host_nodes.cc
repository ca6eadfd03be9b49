#include "base/host_nodes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include "base/host_files.h"
#include "base/number_list.h"
#include "base/size.h"
#include "base/status.h"

namespace ringside {
namespace {

// As many as the kernel can be built for on x86-64 (MAX_NUMNODES).
constexpr int kMaxNodes = 1024;
constexpr int kBitsPerWord = sizeof(unsigned long) * CHAR_BIT;

// Of meminfo, whose lines are like "Node 0 MemTotal:  24669176 kB".
uint64_t MemoryOf(const std::filesystem::path& node) {
  std::ifstream file(node / "meminfo");
  for (std::string word; file >> word;) {
    uint64_t kib = 0;
    if (word == "MemTotal:" && file >> kib) return kib * 1024;
  }
  return 0;
}

std::string Ids(const std::vector<HostNode>& nodes) {
  return absl::StrJoin(nodes, ", ", [](std::string* text, const HostNode& node) {
    absl::StrAppendFormat(text, "%d", node.id);
  });
}

}  // namespace

std::vector<int> ParseKernelList(std::string text) {
  std::ranges::replace(text, ',', '+');
  return ParseNumberList(text).value_or(std::vector<int>());
}

std::vector<HostNode> ReadHostNodes(const std::filesystem::path& sys) {
  const std::filesystem::path directory = sys / "devices/system/node";
  std::vector<HostNode> nodes;
  for (const int id : ParseKernelList(FirstLine(directory / "online"))) {
    const std::filesystem::path node = directory / absl::StrFormat("node%d", id);
    nodes.push_back(
        {.id = id, .memory = MemoryOf(node), .cpus = ParseKernelList(FirstLine(node / "cpulist"))});
  }
  return nodes;
}

std::vector<int> NodesOfCpus(std::span<const int> cpus, const std::vector<HostNode>& nodes) {
  std::vector<int> ids;
  for (const HostNode& node : nodes) {
    const auto has = [&node](int cpu) { return std::ranges::binary_search(node.cpus, cpu); };
    if (std::ranges::any_of(cpus, has)) ids.push_back(node.id);
  }
  return ids;
}

absl::Status CheckHostNodes(std::span<const int> wanted, uint64_t bytes,
                            const std::vector<HostNode>& nodes) {
  if (wanted.empty()) return absl::OkStatus();
  if (nodes.empty()) {
    return BadInput("memory-node %d: this host's kernel knows no NUMA nodes; leave it out",
                    wanted.front());
  }
  uint64_t has = 0;
  for (const int id : wanted) {
    const auto node = std::ranges::find(nodes, id, &HostNode::id);
    if (node == nodes.end()) {
      return BadInput("memory-node %d does not exist: this host has %s", id, Ids(nodes));
    }
    if (node->memory == 0) {
      return BadInput("memory-node %d has CPUs and no memory: name another one", id);
    }
    if (std::ranges::count(wanted, id) > 1) return BadInput("memory-node %d is named twice", id);
    has += node->memory;
  }
  if (bytes > has) {
    return BadInput("%s of memory is more than memory-node %s has (%s): give less, or more nodes",
                    FormatSize(bytes), absl::StrJoin(wanted, ","), FormatSize(has));
  }
  return absl::OkStatus();
}

absl::Status BindMemory(void* memory, uint64_t size, std::span<const int> nodes) {
  if (nodes.empty()) return absl::OkStatus();
  std::array<unsigned long, kMaxNodes / kBitsPerWord> mask = {};
  for (const int node : nodes) {
    if (node < 0 || node >= kMaxNodes) return BadInput("memory-node %d does not exist", node);
    mask[static_cast<size_t>(node / kBitsPerWord)] |= 1UL << (node % kBitsPerWord);
  }
  const int mode = nodes.size() == 1 ? MPOL_BIND : MPOL_INTERLEAVE;
  // The kernel looks at one bit less than it is told of.
  if (syscall(SYS_mbind, memory, size, mode, mask.data(), kMaxNodes + 1UL, 0U) != 0) {
    return ErrnoError(
        errno,
        absl::StrFormat("cannot keep guest memory on memory-node %s", absl::StrJoin(nodes, ",")),
        "'grep Mems_allowed_list /proc/self/status' says which nodes this process "
        "may use");
  }
  return absl::OkStatus();
}

}  // namespace ringside
