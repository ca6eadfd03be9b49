// I/O threads by name, each with its way of waiting and its CPUs: those of a machine, or of several
// (ringside/io_pool.h), for whatever device. One can be added, and one that nobody has can be
// removed, at any time.
//
// Threads: Create and Start on one; all else from any but the I/O threads themselves.
// Ownership: they go with this, or with the last Handle of one that was removed. Whoever has a
// Handle keeps its thread from being removed, and gives it back before this goes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/sync.h"
#include "poll/io_thread.h"
#include "poll/io_thread_statistics.h"
#include "ringside/config.h"
#include "ringside/statistics.h"

namespace ringside {

inline constexpr uint32_t kMaxPollWeight = 63;
inline constexpr double kMaxPollPrice = 1000;

const char* WaiterName(IoThreadConfig::Waiter waiter);

class IoThreads {
 public:
  static constexpr size_t kMax = 64;
  using Handle = std::shared_ptr<IoThread>;

  // Names them, sees that no two have one name and that their CPUs are there, and starts none. Of
  // none given one is made. The ranges of their settings are checked already
  // (vmm/io_thread_options.h).
  static absl::StatusOr<std::unique_ptr<IoThreads>> Create(
      std::span<const IoThreadConfig> configs,
      IoThread::Serves serves = IoThread::Serves::kOneMachine);
  // Once. On an error none is left. `entries`: of the rings of these and of those that are added.
  absl::Status Start(UringEntries entries = UringEntries::kUsual);

  bool serves_many() const { return serves_ == IoThread::Serves::kManyMachines; }

  // In the order in which they came.
  std::vector<std::string> names() const;
  // Who serves a machine's device of this number, if nobody says: a machine's own threads in turns,
  // from the first on; those of several machines go on where the device before has stopped.
  std::string Usual(size_t device) const;
  // NotFound, with the nearest name.
  absl::Status CheckName(const std::string& name) const;
  // The same; FailedPrecondition: it was not started.
  absl::StatusOr<Handle> Find(const std::string& name) const;
  // Those of a device's queues. In the place of one that has been removed comes the first.
  absl::StatusOr<std::vector<IoThread*>> FindOrFirst(std::span<const std::string> names) const;
  std::string NameOf(const IoThread& io_thread) const;
  // Why some have no io_uring, or OK.
  absl::Status uring_status() const;

  // Once started: names and starts one more, and returns the name.
  absl::StatusOr<std::string> Add(const IoThreadConfig& config);
  // The thread, which nobody finds any more, and which ends with the handle. FailedPrecondition as
  // long as anybody has another, or `is_needed` says so, and as above.
  absl::StatusOr<Handle> Remove(const std::string& name,
                                absl::FunctionRef<bool(const IoThread&)> is_needed);
  // Waits until it holds, for the thread's next turn. DeadlineExceeded: its thread has not come
  // back from the kernel yet, as where storage hangs; it holds from then on.
  absl::Status SetPoll(const std::string& name, const PollConfig& poll,
                       absl::Duration patience = absl::InfiniteDuration());

  std::vector<IoThreadStatistics> Statistics() const;
  // Of all. Waits for a turn of each; DeadlineExceeded as above.
  absl::StatusOr<std::vector<IoThreadExplanation>> Explain(absl::Duration patience) const;
  // Of those with IoThreadTuning::trace_waits. Likewise.
  absl::StatusOr<std::vector<IoThreadWaits>> Waits(absl::Duration patience) const;

 private:
  struct Thread {
    IoThreadConfig config;
    Handle io_thread;  // null: not started
  };

  explicit IoThreads(IoThread::Serves serves) : serves_(serves) {}
  absl::StatusOr<size_t> IndexOf(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string FreeName(std::span<const IoThreadConfig> configs) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Check(const IoThreadConfig& config) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::Status CheckStarted(const Thread& thread);
  absl::StatusOr<Handle> StartOne(const IoThreadConfig& config)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What `ask` has each of them fill in that runs and is `wanted` by its configuration, on the
  // thread itself.
  template <typename Answer, typename Wanted, typename Ask>
  absl::StatusOr<std::vector<Answer>> AskAll(Wanted wanted, Ask ask, absl::Duration patience) const;

  const IoThread::Serves serves_;
  mutable Mutex mutex_;
  mutable size_t next_usual_ ABSL_GUARDED_BY(mutex_) = 0;  // of several machines
  UringEntries entries_ ABSL_GUARDED_BY(mutex_) = UringEntries::kUsual;
  std::vector<Thread> threads_ ABSL_GUARDED_BY(mutex_);
  absl::Status uring_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
