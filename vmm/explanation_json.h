// Why the I/O threads of a machine look at their rings, doze or sleep, and when they interrupt the
// guest, as JSON. The names in it are kept: programs read them. A time without end is null.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ringside/explanation.h"
#include "ringside/statistics.h"
#include "vmm/option_type.h"

namespace ringside {

// Of one thread. Its statistics and its explanation were not made in the same turn, so what both
// have counted may differ by what came between. "signals" has, for each queue that it serves and by
// the number of requests that the guest has (from "requests" to twice that), up to which "share" of
// them at hand it is interrupted, and how many it did per second with each share that was tried.
Json ExplanationJson(const IoThreadStatistics& thread, const IoThreadExplanation& explanation);
// Of all threads that both have, as an array: the same, and "queues", those of disks and networks
// that each serves, with the share of their work that was found by polling.
Json ExplanationsJson(const MachineStatistics& statistics,
                      const std::vector<IoThreadExplanation>& explanations);

// For reports in other forms. A queue of a disk or network, with what is known of where its work
// came from; it lives no longer than the statistics.
struct ServedQueue {
  std::string device;  // its id
  std::string path;
  size_t index = 0;
  const QueueStatistics& counts;
};
std::vector<ServedQueue> QueuesServedBy(const std::string& io_thread,
                                        const MachineStatistics& statistics);
// Of its batches, the share that no kick announced.
double ShareFoundByPolling(const QueueStatistics& queue);

// Null: there is none of this thread.
const IoThreadExplanation* FindExplanation(const std::string& io_thread,
                                           const std::vector<IoThreadExplanation>& explanations);

}  // namespace ringside
