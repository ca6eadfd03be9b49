// Which I/O thread serves which queue of a disk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "poll/io_threads.h"
#include "ringside/config.h"

namespace ringside {

// By queue, the thread that serves it; all by `usual` where there are no shares. Errors say what is
// wrong with the shares: a name that is unknown or given twice, a queue that is given twice, left
// out or not there.
absl::StatusOr<std::vector<std::string>> MapQueues(std::span<const QueueShare> shares,
                                                   uint16_t queues, const IoThreads& io_threads,
                                                   const std::string& usual);

}  // namespace ringside
