// A machine's statistics as JSON. The names in it are kept: programs read them. What a path may
// hold is no valid text for sure: see vmm/json_text.h.
#pragma once

#include <vector>

#include "ringside/statistics.h"
#include "vmm/option_type.h"

namespace ringside {

// An array of what `to_json` makes of each.
template <typename Part>
Json ArrayOf(const std::vector<Part>& parts, Json (*to_json)(const Part&)) {
  Json json = Json::array();
  for (const Part& part : parts) json.push_back(to_json(part));
  return json;
}

Json StatisticsJson(const MachineStatistics& statistics);

// Its parts.
Json DiskStatisticsJson(const DiskStatistics& disk);
Json NetworkStatisticsJson(const NetworkStatistics& network);
Json VsockStatisticsJson(const VsockStatistics& vsock);
Json ThrottleGroupJson(const ThrottleGroupConfig& group);
Json DeviceStatisticsJson(const DeviceStatistics& device);
Json AssignedStatisticsJson(const AssignedStatistics& device);
Json QueueStatisticsJson(const QueueStatistics& queue);
Json IoThreadStatisticsJson(const IoThreadStatistics& thread);
Json VcpuStatisticsJson(const VcpuStatistics& vcpu);

}  // namespace ringside
