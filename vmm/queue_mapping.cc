#include "vmm/queue_mapping.h"

#include <algorithm>

#include "base/status.h"

namespace ringside {
namespace {

absl::Status CheckNames(std::span<const QueueShare> shares, const IoThreads& io_threads) {
  for (const QueueShare& share : shares) {
    RINGSIDE_RETURN_IF_ERROR(io_threads.CheckName(share.io_thread));
    if (std::ranges::count(shares, share.io_thread, &QueueShare::io_thread) > 1) {
      return BadInput("I/O thread '%s' is named twice; give all its queues in one place",
                      share.io_thread);
    }
  }
  return absl::OkStatus();
}

absl::Status Assign(const QueueShare& share, std::vector<std::string>& map) {
  for (const uint16_t queue : share.queues) {
    if (queue >= map.size()) {
      return BadInput("queue %d of I/O thread '%s' does not exist: there are 0 to %d", queue,
                      share.io_thread, map.size() - 1);
    }
    if (!map[queue].empty()) return BadInput("queue %d has two I/O threads; give it one", queue);
    map[queue] = share.io_thread;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MapQueues(std::span<const QueueShare> shares,
                                                   uint16_t queues, const IoThreads& io_threads,
                                                   const std::string& usual) {
  if (shares.empty()) return std::vector<std::string>(queues, usual);
  RINGSIDE_RETURN_IF_ERROR(CheckNames(shares, io_threads));
  const auto named = static_cast<size_t>(
      std::ranges::count_if(shares, [](const QueueShare& share) { return !share.queues.empty(); }));
  if (named != 0 && named != shares.size()) {
    return BadInput(
        "some I/O threads have queues of their own and some have not; give all of them "
        "queues, or none");
  }
  std::vector<std::string> map(queues);
  for (size_t i = 0; i < map.size() && named == 0; ++i) {
    map[i] = shares[i % shares.size()].io_thread;
  }
  for (const QueueShare& share : shares) RINGSIDE_RETURN_IF_ERROR(Assign(share, map));
  if (const auto missing = std::ranges::find(map, ""); missing != map.end()) {
    return BadInput("queue %d has no I/O thread; give it one", missing - map.begin());
  }
  return map;
}

}  // namespace ringside
