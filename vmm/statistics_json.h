// A machine's statistics as JSON. The names in it are kept: programs read them. What a path may
// hold is no valid text for sure, so it is to be written with Json::error_handler_t::replace.
#pragma once

#include "ringside/statistics.h"
#include "vmm/option_type.h"

namespace ringside {

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
