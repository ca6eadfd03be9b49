// The metrics of disks, and of the queues of all devices.
#pragma once

#include <vector>

#include "vmm/metric_table.h"

namespace ringside {

// Their part of Metrics().
std::vector<Metric> QueueMetrics();

}  // namespace ringside
