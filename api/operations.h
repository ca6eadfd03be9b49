// What may take long, done on threads of its own, so that a client is answered in time: with the
// result if it comes soon, else with 202 and an id by which to ask again.
//
// Operations have lanes: what waits for a guest, which may let it wait, holds up nothing that does
// not. Bounds: of each lane so many run at once and so many wait for that; more is refused. Of
// those that have ended so many are kept, and so much of their results; those of which nobody has
// heard stay longest, so that nobody's calls push out what another still waits for. A thread is
// started when it is needed, so whoever asks for nothing has none.
//
// Threads: any. Ownership: what the work uses outlives this.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/operation_progress.h"
#include "base/log.h"
#include "base/sync.h"
#include "http/http_answer.h"
#include "vmm/option_type.h"

namespace ringside {

class Operations {
 public:
  enum class Lane { kMachine, kGuest };
  static constexpr size_t kThreads = 8;       // of a lane
  static constexpr size_t kMostWaiting = 56;  // for one of those
  static constexpr size_t kMostEnded = 64;    // that can still be asked for
  // Bytes of their results, as they are sent. One that is longer is kept as long as it is alone.
  static constexpr size_t kMostKept = 16 << 20;

  using Work = std::function<absl::StatusOr<Json>()>;
  // How an answer is made of a result.
  using Respond = HttpResponse (*)(const absl::StatusOr<Json>& result);

  // `location`: the path before an id.
  Operations(std::string location, Respond respond, Logger log)
      : location_(std::move(location)), respond_(respond), log_(log) {}
  ~Operations() { Stop(); }
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // Drops what waits, waits for what runs, and begins nothing from then on: all have been answered.
  // After a second the log names what is waited for.
  void Stop();

  // Does `work`, and answers with its result, or after `wait` with the operation: without a wait
  // always with that. `progress`: where the work reports how far it is; null: it does not.
  void Begin(const std::string& call, Lane lane, Work work, absl::Duration wait, HttpAnswer answer,
             std::shared_ptr<const OperationProgress> progress = nullptr);
  // Answers with the operation once it has ended, or after `wait`.
  void Await(uint64_t id, absl::Duration wait, HttpAnswer answer);
  // The newest last, without results.
  Json List() const;

 private:
  // Who waits for an operation's end.
  struct Waiter {
    Deadline deadline;
    bool wants_result;  // else the operation
    HttpAnswer answer;
  };
  enum class State { kWaiting, kRunning, kEnded };
  struct Operation {
    uint64_t id;
    std::string call;
    Lane lane;
    Work work;
    std::shared_ptr<const OperationProgress> progress;  // null: it reports none
    State state = State::kWaiting;
    std::vector<Waiter> waiters;
    // Once it has ended. The result is the response's body: as JSON it would take ten times that.
    absl::Status status;
    HttpResponse response;
    uint64_t ended_as = 0;  // the how manieth
    bool is_told = false;   // somebody has been answered with how it ended
  };

  // Threads of a lane.
  struct Workers {
    std::condition_variable_any work_came;
    size_t idle = 0;
    std::vector<std::thread> threads;
  };

  static Json Describe(const Operation& operation);
  HttpResponse WithResult(const Operation& operation) const;
  HttpResponse Accepted(const Operation& operation) const;
  void AddWaiter(Operation& operation, bool wants_result, absl::Duration wait, HttpAnswer answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if it is not known.
  Operation* Find(uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t CountEnded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t CountWaiting(Lane lane) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t Kept() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Operation* NextToRun(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartThreads(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Operation& operation, const absl::Status& status, HttpResponse response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerLate(Deadline now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Deadline NextDeadline() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunWork(Lane lane);
  bool IsAnyRunning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LogRunning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchTime();

  Workers& Of(Lane lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return workers_[static_cast<size_t>(lane)];
  }

  const std::string location_;
  const Respond respond_;
  const Logger log_;

  mutable Mutex mutex_;
  std::condition_variable_any time_changed_;
  std::condition_variable_any work_ended_;                   // after Stop
  std::list<Operation> operations_ ABSL_GUARDED_BY(mutex_);  // by age
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<Workers, 2> workers_ ABSL_GUARDED_BY(mutex_);  // by lane
  std::thread clock_ ABSL_GUARDED_BY(mutex_);  // answers those who have waited long enough
};

}  // namespace ringside
