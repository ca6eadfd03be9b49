// What any thread has to be done on the I/O thread of a queue, whichever that is: functions run
// there one after the other, in the order in which they came, and never while the queue is taken to
// another thread.
//
// Threads: Post from any; MoveTo on the thread that it names, or on any while that serves nothing;
// Close on any that runs none of the functions. Ownership: what runs on I/O threads keeps itself,
// so this may go, once closed, whatever they do.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/sync.h"
#include "poll/io_thread.h"

namespace ringside {

class PostedWork {
 public:
  explicit PostedWork(IoThread& io_thread) : shared_(std::make_shared<Shared>(io_thread)) {}
  ~PostedWork() { Close(); }
  PostedWork(const PostedWork&) = delete;
  PostedWork& operator=(const PostedWork&) = delete;

  void Post(std::function<void()> function);
  // From now on they run there. When this returns none runs elsewhere.
  void MoveTo(IoThread& io_thread);
  // Whether they would run there.
  bool RunsOn(const IoThread& io_thread) const;
  // Runs none any more, and none is running when this returns; those left go unused.
  void Close();

 private:
  struct Shared {
    explicit Shared(IoThread& thread) : io_thread(&thread) {}

    Mutex running;  // held while functions run, and while it is decided where
    Mutex mutex ABSL_ACQUIRED_AFTER(running);
    IoThread* io_thread ABSL_GUARDED_BY(mutex);
    std::vector<std::function<void()>> waiting ABSL_GUARDED_BY(mutex);
    bool closed ABSL_GUARDED_BY(mutex) = false;
  };

  static void RunOn(const std::shared_ptr<Shared>& shared, const IoThread& io_thread);
  static void Wake(const std::shared_ptr<Shared>& shared)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mutex);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace ringside
