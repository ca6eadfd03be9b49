// The guest's power button, and the limit after which its plug is pulled.
//
// Threads: any; nobody waits for the guest. Ownership: what it is given outlives it, and Stop
// comes before it goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/sync.h"
#include "poll/io_thread.h"
#include "vmm/alarm.h"
#include "vmm/event_queue.h"

namespace ringside {

class PowerButton {
 public:
  struct Parts {
    const EventFd& interrupt;  // of kPowerButtonPin
    IoThread& io_thread;       // where the limit is waited for
    EventQueue& events;
    Logger log;
    std::function<void()> pull_plug;
  };

  explicit PowerButton(Parts parts) : parts_(std::move(parts)) {}

  // The machine runs, and is over: only between the two the button can be pressed. Once each.
  void Begin();
  void End();
  // After End: the plug is not being pulled, and will not be. Not on the I/O thread.
  void Stop();

  // As Machine::PressPowerButton and Machine::ShutDown.
  absl::Status Press();
  absl::Status ShutDown(absl::Duration limit);

 private:
  enum class State { kNew, kRuns, kOver };

  absl::Status CheckRuns() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PressNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LimitTo(absl::Duration limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // On the I/O thread.
  void LimitIsOver();

  const Parts parts_;
  Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kNew;
  std::unique_ptr<Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // from the first limit on
  std::optional<int64_t> deadline_ns_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
