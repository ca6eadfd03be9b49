// A request queue of a virtio-blk device over the device's life: which I/O thread serves it, and
// its way from one to another, also in the middle of I/O.
//
// A move: the new thread opens its channel; the old one takes nothing more, recalls what the
// channel has, shows what completes all the same, and hands over when nothing is in flight; the new
// one begins anew what was recalled, and goes on where the ring was. What the guest made available
// meanwhile is found by the look that every source gets in the turn it is attached in.
//
// Each step is a task on the thread it concerns. Which step may follow is decided under the lock,
// and posted under it: so tasks reach a thread in the order of the decisions, and a reset finds the
// queue on the thread it is posted to.
//
// Threads: Start, Stop, MoveTo and io_thread from any; Start and Stop one at a time.
// Ownership: the parts, what Shared refers to and the I/O threads outlive it; it is stopped and not
// moving when it goes.
#pragma once

#include <functional>
#include <memory>

#include "base/sync.h"
#include "devices/blk_queue.h"

namespace ringside {

// A device's share of one I/O thread: the channel, opened when it is first needed. It stays, so
// that a guest that resets for ever, or a queue that moves for ever, does not make the host open
// and close.
//
// Threads: OpenChannel and channel on the I/O thread; the end on any other.
class BlkPart {
 public:
  BlkPart(BlockDevice& disk, IoThread& io_thread) : disk_(disk), io_thread_(io_thread) {}
  ~BlkPart();
  BlkPart(const BlkPart&) = delete;
  BlkPart& operator=(const BlkPart&) = delete;

  IoThread& io_thread() const { return io_thread_; }
  absl::Status OpenChannel();
  BlockChannel& channel() { return *channel_; }
  // Any thread: the channel, if there is one, is told that the machine is over.
  void Cancel() { io_thread_.Post(cancel_); }

 private:
  void Close();
  void CancelHere();

  BlockDevice& disk_;
  IoThread& io_thread_;
  std::unique_ptr<BlockChannel> channel_;
  TaskTo<BlkPart, &BlkPart::Close> close_{*this};
  TaskTo<BlkPart, &BlkPart::CancelHere> cancel_{*this};
  Event closed_;
};

class MovableQueue {
 public:
  // What it has of its device.
  struct Shared {
    const GuestMemory& memory;
    const BlkView& disk;
    const std::atomic<bool>& write_back;
    BlkQueueStats& stats;
    LatencyTrace* trace;  // null: no latencies are wanted
  };
  class Owner {
   public:
    // On an I/O thread, once for each Start, when what Stop began is done. Nothing of the queue is
    // touched afterwards.
    virtual void QueueIsDown() = 0;

   protected:
    ~Owner() = default;
  };
  using MoveDone = std::function<void(const absl::Status&)>;

  MovableQueue(Owner& owner, const Shared& shared, BlkPart& part)
      : owner_(owner), shared_(shared), part_(&part) {}

  // `events` stays until the queue is down.
  void Start(uint64_t features, const QueueSetup& setup, VirtioEvents& events);
  // Nothing if it was not started.
  void Stop();
  // `done` runs once, on any thread, perhaps before this returns. OK: the new thread serves the
  // queue, or will when it is next started. Unavailable: it is moving already. Any other: the new
  // thread cannot reach the disk or watch the queue, and the queue has stayed where it was.
  void MoveTo(BlkPart& to, MoveDone done);

  // The one that serves it now, or would if it were started.
  IoThread& io_thread() const;
  // On the thread `here`: takes the count out of the kick's eventfd and returns it, as long as this
  // is the thread that serves the queue, or would; else 0. A kick that anyone else took might never
  // have woken it. The queue may be on its way to here, or being reset.
  uint64_t TakeKicks(const IoThread& here, const EventFd& kick);

 private:
  enum class State { kDown, kUp, kStopping };

  BlkPart& part() const;
  BlkQueue::Parts PartsOn(BlkPart& part);
  // Tasks.
  void StartHere();
  void StopHere();
  void PrepareMove();  // on the new thread
  void Leave();
  void Arrive();
  // A hook.
  void WhenIdle();

  void HandOver();
  bool TurnBack(const absl::Status& refused);
  void EndMove(const absl::Status& status);
  MoveDone TakeMove() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Down();

  Owner& owner_;
  const Shared shared_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kDown;
  BlkPart* part_ ABSL_GUARDED_BY(mutex_);
  // Of the move under way.
  BlkPart* to_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: there is none
  bool prepared_ ABSL_GUARDED_BY(mutex_) = false;  // PrepareMove has run
  MoveDone move_done_ ABSL_GUARDED_BY(mutex_);

  // The thread's whose step it is.
  uint64_t features_ = 0;
  QueueSetup setup_;
  VirtioEvents* events_ = nullptr;
  std::unique_ptr<BlkQueue> queue_;  // null: down, or could not come up
  bool stopped_ = false;             // StopHere has run, and it is not down yet
  BlkPart* origin_ = nullptr;        // where the move under way began
  absl::Status refused_;             // why it goes back there

  TaskTo<MovableQueue, &MovableQueue::StartHere> start_{*this};
  TaskTo<MovableQueue, &MovableQueue::StopHere> stop_{*this};
  TaskTo<MovableQueue, &MovableQueue::PrepareMove> prepare_{*this};
  TaskTo<MovableQueue, &MovableQueue::Leave> leave_{*this};
  TaskTo<MovableQueue, &MovableQueue::Arrive> arrive_{*this};
  HookTo<MovableQueue, &MovableQueue::WhenIdle> idle_hook_{*this};
};

}  // namespace ringside
