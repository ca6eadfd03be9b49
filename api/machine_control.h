// The machine that a control socket is about, from before it exists to after its end: its options
// as long as it has not started, the machine itself, and its newest events.
//
// Threads: the thread that owns the machine (the command's main thread, an embedder's) makes and
// starts it, and says so here; calls of clients come from any thread, also at once. None of them
// waits for a vCPU, an I/O thread or storage, except where it says so.
// Ownership: the machine stays its owner's, and outlives the servers of this.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/sync.h"
#include "http/http_answer.h"
#include "http/http_feed.h"
#include "ringside/event.h"
#include "ringside/machine.h"
#include "vmm/options.h"

namespace ringside {

enum class ControlState { kNotStarted, kStarting, kRunning, kPaused, kEnded };
const char* ControlStateName(ControlState state);

class MachineControl final : public EventSink {
 public:
  static constexpr size_t kEventsKept = 256;
  static constexpr size_t kMostWaiting = 256 << 10;  // bytes, for one who follows the events

  static absl::StatusOr<std::unique_ptr<MachineControl>> Create(MachineOptions options);

  // ---- For the machine's owner ----

  // Another that is told of each event that clients are told of, before them; null: none. While no
  // machine tells.
  void PassOn(EventSink* sink) { next_sink_ = sink; }
  // Becomes readable when a client wants the machine to start.
  int start_fd() const { return start_wanted_.fd(); }
  // What it wants to start; nullopt: nobody has asked. Until Started or NotStarted is called, the
  // options do not change.
  std::optional<MachineOptions> TakeStart();
  // The machine runs, or has ended already; it is stopped again if that was asked for meanwhile.
  void Started(Machine& machine);
  // It could not be made; the options may be changed, and it may be tried again.
  void NotStarted(const absl::Status& why);
  // Nobody will start it: who waits for that is told.
  void GiveUp();

  // ---- For clients ----

  ControlState state() const;
  // FailedPrecondition: it has not started yet.
  absl::StatusOr<Machine*> machine() const;
  MachineOptions options() const;
  // FailedPrecondition: it has started, and its options do not change any more.
  absl::Status CheckMayChange() const;
  absl::Status SetOptions(MachineOptions options);
  // Has the owner start it, and waits until it runs.
  absl::Status Start();
  // Ends it, or keeps it from ever starting.
  void Stop();
  // Becomes readable when it was stopped before it had started.
  int stop_fd() const { return stop_wanted_.fd(); }
  // Answers with the events from number `first` on that are still known, and with all that come.
  void Follow(uint64_t first, HttpAnswer answer);

  // EventSink
  void Happened(const MachineEvent& event) override;

 private:
  MachineControl(MachineOptions options, EventFd start_wanted, EventFd stop_wanted);
  absl::Status MayChange() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The end that came before, if one did.
  std::optional<MachineEvent> BeginEvents();
  // The end of a machine that was made and could not be started is none: another may be made. So
  // one that comes before the machine has started waits until it has.
  bool Counts(const MachineEvent& event);

  const EventFd start_wanted_;
  const EventFd stop_wanted_;

  mutable Mutex mutex_;
  std::condition_variable_any started_;
  MachineOptions options_ ABSL_GUARDED_BY(mutex_);
  ControlState state_ ABSL_GUARDED_BY(mutex_) = ControlState::kNotStarted;  // but for pauses
  absl::Status start_status_ ABSL_GUARDED_BY(mutex_);
  uint64_t starts_ ABSL_GUARDED_BY(mutex_) = 0;  // that have been answered
  bool given_up_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_asked_ ABSL_GUARDED_BY(mutex_) = false;  // before there was a machine
  Machine* machine_ ABSL_GUARDED_BY(mutex_) = nullptr;

  EventSink* next_sink_ = nullptr;
  struct Line {
    int64_t sequence;
    std::string text;
  };
  Mutex events_mutex_;  // so that who follows misses none between those that were and those to come
  std::deque<Line> events_ ABSL_GUARDED_BY(events_mutex_);
  bool has_begun_ ABSL_GUARDED_BY(events_mutex_) = false;  // a machine
  std::optional<MachineEvent> early_end_ ABSL_GUARDED_BY(events_mutex_);
  const std::shared_ptr<HttpFeed> feed_;
};

}  // namespace ringside
