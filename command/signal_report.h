// When the guest was interrupted for what its queues have completed, and why: what `ringside run
// --stats` and `--explain` print of it, for people.
#pragma once

#include <string>

#include "ringside/explanation.h"
#include "ringside/statistics.h"

namespace ringside {

// Of a queue: lines that begin with `indent`. Empty if it has interrupted nobody.
std::string SignalCountsText(const QueueStatistics& queue, const std::string& indent);
// What was learned of its guest, likewise. Empty if nothing was.
std::string SignalLessonsText(const SignalExplanation& signals, const std::string& indent);

// Three digits of a time, or "ever".
std::string TimeText(int64_t ns);

}  // namespace ringside
