// Whether the disks of a run, their I/O threads and the guest's memory were near to each other:
// what `ringside run --explain` says beside the reasons of the threads.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "advice/finding.h"
#include "ringside/statistics.h"

namespace ringside {

struct DiskPlacement {
  std::string disk;  // its id
  std::string path;
  Findings findings;  // empty on a host that is one NUMA node
};

// `memory_nodes`: MachineConfig's. `root` has the host's sys: "/", in tests another.
std::vector<DiskPlacement> PlacementsOf(const MachineStatistics& statistics,
                                        const std::vector<int>& memory_nodes,
                                        const std::filesystem::path& root = "/");

// For people: a line for each finding. Empty if there is none.
std::string PlacementText(const std::vector<DiskPlacement>& placements);

}  // namespace ringside
