// A sink of events that a test can look at.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "base/sync.h"
#include "ringside/event.h"
#include "tests/support/wait.h"

namespace ringside::testing {

class RecordingEvents final : public EventSink {
 public:
  // Called for each event once it is recorded.
  explicit RecordingEvents(std::function<void(const MachineEvent&)> then = {})
      : then_(std::move(then)) {}

  void Happened(const MachineEvent& event) override {
    {
      const MutexLock lock(mutex_);
      events_.push_back(event);
    }
    if (then_) then_(event);
  }
  std::vector<MachineEvent> events() const {
    const MutexLock lock(mutex_);
    return events_;
  }
  std::vector<EventKind> kinds() const {
    std::vector<EventKind> kinds;
    for (const MachineEvent& event : events()) kinds.push_back(event.kind);
    return kinds;
  }
  std::vector<MachineEvent> Of(EventKind kind) const {
    std::vector<MachineEvent> some;
    std::ranges::copy_if(events(), std::back_inserter(some),
                         [kind](const MachineEvent& event) { return event.kind == kind; });
    return some;
  }
  bool WaitFor(EventKind kind, size_t count = 1) const {
    return SpinUntil([&] { return Of(kind).size() >= count; });
  }

 private:
  const std::function<void(const MachineEvent&)> then_;
  mutable Mutex mutex_;
  std::vector<MachineEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside::testing
