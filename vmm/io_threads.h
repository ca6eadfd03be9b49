// The I/O threads of a machine's disks: named, each with its way of waiting and its CPUs.
//
// Threads: Create, Start and the end on one; all else from any but the I/O threads themselves.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/sync.h"
#include "poll/io_thread.h"
#include "vmm/statistics.h"

namespace ringside {

inline constexpr uint32_t kMaxPollWeight = 63;
inline constexpr double kMaxPollPrice = 1000;

struct IoThreadConfig {
  // Letters, digits, '.', '-' and '_'; empty: the first free of "io0", "io1", ...
  std::string name;
  // Looks before it sleeps where that pays; idle, it sleeps.
  IoThreadTuning tuning = {.poll = {.kind = PollKind::kCost}};
  std::vector<int> cpus;  // of the host, where it may run; empty: anywhere
};

class IoThreads {
 public:
  static constexpr size_t kMax = 64;

  // Checks and names them, and starts none. Of none given one is made.
  static absl::StatusOr<std::unique_ptr<IoThreads>> Create(std::span<const IoThreadConfig> configs);
  // All with the same waiter. On an error none is left.
  absl::Status Start(IoThread::Waiter waiter);

  size_t size() const { return threads_.size(); }
  // NotFound, with the nearest name.
  absl::StatusOr<size_t> Find(const std::string& name) const;
  const std::string& name(size_t index) const { return threads_[index].config.name; }
  const std::string& NameOf(const IoThread& io_thread) const;

  // Once started.
  IoThread& operator[](size_t index) { return *threads_[index].io_thread; }
  // Waits until it holds, for the thread's next turn.
  absl::Status SetPoll(size_t index, const PollConfig& poll);
  std::vector<IoThreadStatistics> Statistics() const;
  // Of all. Waits for a turn of each.
  std::vector<IoThreadExplanation> Explain() const;
  // Of those with IoThreadTuning::trace_waits. Waits for a turn of each.
  std::vector<IoThreadWaits> Waits() const;

 private:
  struct Thread {
    IoThreadConfig config;
    std::unique_ptr<IoThread> io_thread;
  };

  std::string FreeName(std::span<const IoThreadConfig> configs) const;
  absl::Status Add(const IoThreadConfig& config);
  absl::Status StartOne(Thread& thread, IoThread::Waiter waiter);

  std::vector<Thread> threads_;
  mutable Mutex mutex_;  // the poll settings of running threads
};

// Runs `function` on the I/O thread, and waits.
template <typename Function>
void RunOnIoThread(IoThread& io_thread, Function function) {
  Event done;
  TaskOf task([&] {
    function();
    done.Notify();
  });
  io_thread.Post(task);
  done.Wait();
}

}  // namespace ringside
