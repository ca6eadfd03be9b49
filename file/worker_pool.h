// Threads of a file device that do what would block an I/O thread. They are made on demand, up to
// kMaxThreads, and sleep when there is nothing to do.
//
// Threads: Run may be called from any thread; a WorkerClient belongs to one I/O thread.
// Ownership: the pool outlives its clients, a client every operation it has handed in.
#pragma once

#include <condition_variable>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "base/sync.h"
#include "file/file_op.h"
#include "poll/io_thread.h"

namespace ringside {

class WorkerPool;

// An I/O thread's side of a pool: hands in steps and gets their results.
class WorkerClient final : private Task {
 public:
  class Receiver {
   public:
    virtual void StepDone(FileOp& op, int64_t result) = 0;  // on the I/O thread, not from Run

   protected:
    ~Receiver() = default;
  };

  // All three outlive the client.
  WorkerClient(WorkerPool& pool, IoThread& io_thread, Receiver& receiver)
      : pool_(pool), io_thread_(io_thread), receiver_(receiver) {}

  void Do(FileOp& op);

 private:
  friend class WorkerPool;
  void Run() override;
  void Finished(FileOp& op);  // a worker thread

  WorkerPool& pool_;
  IoThread& io_thread_;
  Receiver& receiver_;
  Mutex mutex_;
  FileOpQueue finished_ ABSL_GUARDED_BY(mutex_);
};

class WorkerPool {
 public:
  static constexpr size_t kMaxThreads = 16;

  explicit WorkerPool(int fd) : fd_(fd) {}
  // Nothing is under way any more.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Makes sure that there is a thread at all: later ones may fail to come without harm.
  absl::Status Start();

 private:
  friend class WorkerClient;
  void Add(FileOp& op, WorkerClient& client);
  absl::Status StartOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  const int fd_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  FileOpQueue waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_count_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t idle_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
