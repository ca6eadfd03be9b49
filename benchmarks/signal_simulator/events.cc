#include "benchmarks/signal_simulator/events.h"

#include <algorithm>
#include <utility>

namespace ringside {

void Events::After(int64_t ns, std::function<void()> what) {
  heap_.push_back(
      {.ns = now_ns_ + std::max<int64_t>(ns, 0), .order = order_++, .what = std::move(what)});
  std::push_heap(heap_.begin(), heap_.end());
}

void Events::RunUntil(int64_t end_ns) {
  while (!heap_.empty() && heap_.front().ns <= end_ns) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ns_ = event.ns;
    event.what();
  }
  now_ns_ = end_ns;
}

}  // namespace ringside
