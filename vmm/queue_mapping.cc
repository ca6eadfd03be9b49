#include "vmm/queue_mapping.h"

#include <algorithm>

#include "base/status.h"

namespace ringside {
namespace {

constexpr size_t kNone = SIZE_MAX;

absl::StatusOr<std::vector<size_t>> FindAll(std::span<const QueueShare> shares,
                                            const IoThreads& io_threads) {
  std::vector<size_t> found;
  for (const QueueShare& share : shares) {
    RINGSIDE_ASSIGN_OR_RETURN(const size_t thread, io_threads.Find(share.io_thread));
    if (std::ranges::count(found, thread) > 0) {
      return BadInput("I/O thread '%s' is named twice; give all its queues in one place",
                      share.io_thread);
    }
    found.push_back(thread);
  }
  return found;
}

absl::Status Assign(const QueueShare& share, size_t thread, std::vector<size_t>& map) {
  for (const uint16_t queue : share.queues) {
    if (queue >= map.size()) {
      return BadInput("I/O thread '%s' cannot have queue %d; there are 0 to %d", share.io_thread,
                      queue, map.size() - 1);
    }
    if (map[queue] != kNone) return BadInput("queue %d has two I/O threads; give it one", queue);
    map[queue] = thread;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<size_t>> MapQueues(std::span<const QueueShare> shares, uint16_t queues,
                                              const IoThreads& io_threads, size_t usual) {
  if (shares.empty()) return std::vector<size_t>(queues, usual);
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<size_t> threads, FindAll(shares, io_threads));
  const auto named = static_cast<size_t>(
      std::ranges::count_if(shares, [](const QueueShare& share) { return !share.queues.empty(); }));
  if (named != 0 && named != shares.size()) {
    return BadInput(
        "some I/O threads have queues of their own and some have not; give all of them "
        "queues, or none");
  }
  std::vector<size_t> map(queues, kNone);
  for (size_t i = 0; i < map.size() && named == 0; ++i) map[i] = threads[i % threads.size()];
  for (size_t i = 0; i < shares.size(); ++i) {
    RINGSIDE_RETURN_IF_ERROR(Assign(shares[i], threads[i], map));
  }
  if (const auto missing = std::ranges::find(map, kNone); missing != map.end()) {
    return BadInput("queue %d has no I/O thread; give it one", missing - map.begin());
  }
  return map;
}

}  // namespace ringside
