// A machine's statistics as a table for people, or as JSON.
#pragma once

#include <string>

#include "ringside/statistics.h"

namespace ringside {

std::string StatisticsTable(const MachineStatistics& statistics);
// One object, with a line's end behind it.
std::string StatisticsJsonText(const MachineStatistics& statistics);

}  // namespace ringside
