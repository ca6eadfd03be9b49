// Why the I/O threads of a run looked at their rings, dozed or slept, and when they interrupted the
// guest: what `ringside run --explain` prints.
#pragma once

#include <string>
#include <vector>

#include "command/placement_report.h"
#include "ringside/explanation.h"
#include "ringside/statistics.h"

namespace ringside {

// Of the I/O threads that both know.
//
// For people: a paragraph a thread, ending in a line feed.
std::string PollReportText(const MachineStatistics& statistics,
                           const std::vector<IoThreadExplanation>& explanations);
// For programs. A time without end is null. "placement" has what is to be said of each disk, with
// the command's option that mends it.
std::string PollReportJson(const MachineStatistics& statistics,
                           const std::vector<IoThreadExplanation>& explanations,
                           const std::vector<DiskPlacement>& placements = {});

}  // namespace ringside
