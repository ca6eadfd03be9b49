// Why the I/O threads of a run looked at their rings, dozed or slept, and when they interrupted the
// guest: what `ringside run --explain` prints.
#pragma once

#include <string>
#include <vector>

#include "ringside/explanation.h"
#include "ringside/statistics.h"

namespace ringside {

// Of the I/O threads that both know.
//
// For people: a paragraph a thread, ending in a line feed.
std::string PollReportText(const MachineStatistics& statistics,
                           const std::vector<IoThreadExplanation>& explanations);
// For programs. A time without end is null.
std::string PollReportJson(const MachineStatistics& statistics,
                           const std::vector<IoThreadExplanation>& explanations);

}  // namespace ringside
