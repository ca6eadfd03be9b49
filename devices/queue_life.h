// A queue of a virtio device over the device's life: which I/O thread serves it, its way from one
// to another, also in the middle of I/O, and its rests. The same for all devices.
//
// A move: the new thread gets ready; the old one takes nothing more, recalls what is under way,
// shows what completes all the same, and hands over when nothing is in flight; the new one begins
// anew what was recalled, and goes on where the ring was. What the guest made available meanwhile
// is found by the look that every source gets in the turn it is attached in.
//
// A rest: the thread takes nothing more, and what is under way goes on to its end and is shown;
// then nothing is in flight, and the queue is one number, its position in the ring. After it the
// queue is attached again, which brings the same look: a driver that has kicked once, for an entry
// that nobody has taken, will not kick again (VIRTIO 1.2, section 2.7.10).
//
// Each step is a task on the thread it concerns. Which step may follow is decided under the lock,
// and posted under it: so tasks reach a thread in the order of the decisions, and a reset finds the
// queue on the thread it is posted to.
//
// Threads: all from any; Start and Stop one at a time, and so are Pause and Resume, in turns.
// Ownership: the owner, what Shared refers to and the I/O threads outlive it; it is stopped and not
// moving when it goes.
#pragma once

#include <functional>
#include <memory>

#include "base/sync.h"
#include "devices/queue_worker.h"

namespace ringside {

class QueueLife {
 public:
  // The device.
  class Owner {
   public:
    // On the I/O thread that is about to serve a queue: gets what its workers need there. It may be
    // there already. On an error the queue does not come up, or does not move.
    virtual absl::Status Prepare(IoThread& io_thread) = 0;
    // On that thread.
    virtual std::unique_ptr<QueueWorker> NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                   const QueueSetup& setup, uint64_t features) = 0;
    // What goes on where `before`, a worker of this owner's, has left off.
    virtual std::unique_ptr<QueueWorker> NextWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                    QueueWorker& before) = 0;
    // On an I/O thread, once for each Start, when what Stop began is done. Nothing of the queue is
    // touched afterwards.
    virtual void QueueIsDown() = 0;
    // On any thread, with this queue's lock held, once for each Pause: the queue is at rest or
    // down, or Resume has come first.
    virtual void QueueRests() = 0;

   protected:
    ~Owner() = default;
  };
  // What it has of its device.
  struct Shared {
    uint16_t index;
    const GuestMemory& memory;
    QueueStats& stats;
  };
  using MoveDone = std::function<void(const absl::Status&)>;

  QueueLife(Owner& owner, const Shared& shared, IoThread& io_thread)
      : owner_(owner), shared_(shared), io_thread_(&io_thread) {}

  // `events` stays until the queue is down.
  void Start(uint64_t features, const QueueSetup& setup, VirtioEvents& events);
  // Nothing if it was not started.
  void Stop();
  // `done` runs once, on any thread, perhaps before this returns. OK: the new thread serves the
  // queue, or will when it is next started or its rest ends; if it cannot watch the queue then, the
  // queue stays where it was. Unavailable: it is moving already. Any other: the new thread cannot
  // reach what the device needs or watch the queue, and the queue has stayed where it was.
  void MoveTo(IoThread& to, MoveDone done);

  // Of a queue that is down and not moving.
  void Place(IoThread& io_thread);

  // Of a queue that is not moving, on its io_thread(): has its requests traced there from now on,
  // or none (null). Returns the trace before, to which a hook of this turn may refer: it stays
  // until the next.
  std::unique_ptr<LatencyTrace> SetTrace(std::unique_ptr<LatencyTrace> trace);
  // Likewise on that thread, or of a queue that is down.
  const LatencyTrace* trace() const { return trace_.get(); }

  // Likewise: when its interrupts were raised, and why. Of one that is down, as it was before.
  SignalExplanation ExplainSignals() const;
  // Of a queue that is down and not moving: has what has to do with interrupts recorded for the
  // rest of its life.
  void RecordSignals() { signals_ = std::make_unique<SignalRecords>(kSignalRecords); }
  // As trace().
  const SignalRecords* signals() const { return signals_.get(); }

  // Brings the queue to rest, or keeps one that is down from being served. What is in flight is
  // waited for, however long it takes.
  void Pause();
  // The end of the rest, or of the way there.
  void Resume();
  // Of a queue that rests or is down: it goes on with a new worker, on the same thread too, since
  // what the owner's workers stand on has been exchanged.
  void Renew();
  // Of a queue at rest: its next entry in both rings, that is QueueSetup::next.
  uint16_t position() const;

  // The one that serves it now, or would if it were started.
  IoThread& io_thread() const;
  // Whether it is served there, or on its way to or from there.
  bool Needs(const IoThread& io_thread) const;

 private:
  enum class State { kDown, kUp, kStopping };
  // Of one that is up.
  enum class Step {
    kServing,   // or about to start
    kLeaving,   // the thread takes nothing more; Left is to come
    kResting,   // no step of it is under way
    kArriving,  // Arrive is to come
  };

  QueueWorker::Parts PartsOn(IoThread& io_thread);
  // Tasks.
  void StartHere();
  void StopHere();
  void PrepareMove();  // on the new thread
  void Leave();
  void Arrive();
  // A hook.
  void WhenIdle();

  void Left();
  void SetWorker(std::unique_ptr<QueueWorker> worker);
  bool TurnBack(const absl::Status& refused);
  void EndArrival();
  void EndMove(const absl::Status& status);
  MoveDone TakeMove() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginToLeave() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginToArrive(IoThread& at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReportRest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Down();

  Owner& owner_;
  const Shared shared_;

  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kDown;
  Step step_ ABSL_GUARDED_BY(mutex_) = Step::kServing;
  IoThread* io_thread_ ABSL_GUARDED_BY(mutex_);
  IoThread* worker_on_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: there is no worker
  IoThread* origin_ ABSL_GUARDED_BY(mutex_) = nullptr;     // of one that arrives: where it was
  // Of the rest.
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;         // from Pause to Resume
  bool rest_awaited_ ABSL_GUARDED_BY(mutex_) = false;   // QueueRests is to come
  bool start_is_held_ ABSL_GUARDED_BY(mutex_) = false;  // Start came while it was paused
  bool renews_ ABSL_GUARDED_BY(mutex_) = false;         // by the next Arrive
  // Of the move under way.
  IoThread* to_ ABSL_GUARDED_BY(mutex_) = nullptr;    // null: there is none
  bool prepared_ ABSL_GUARDED_BY(mutex_) = false;     // PrepareMove has run
  bool handed_over_ ABSL_GUARDED_BY(mutex_) = false;  // the worker has left for it
  MoveDone move_done_ ABSL_GUARDED_BY(mutex_);

  // The thread's whose step it is.
  uint64_t features_ = 0;
  QueueSetup setup_;
  VirtioEvents* events_ = nullptr;
  std::unique_ptr<LatencyTrace> trace_;     // null: no latencies are wanted
  std::unique_ptr<SignalRecords> signals_;  // null: none are wanted
  SignalExplanation explained_;             // of the worker before
  std::unique_ptr<QueueWorker> worker_;     // null: down, or could not come up
  bool stopped_ = false;                    // StopHere has run, and it is not down yet
  bool has_left_ = false;                   // Leave has run, and Arrive has not
  absl::Status refused_;                    // why it goes back to where it was

  TaskTo<QueueLife, &QueueLife::StartHere> start_{*this};
  TaskTo<QueueLife, &QueueLife::StopHere> stop_{*this};
  TaskTo<QueueLife, &QueueLife::PrepareMove> prepare_{*this};
  TaskTo<QueueLife, &QueueLife::Leave> leave_{*this};
  TaskTo<QueueLife, &QueueLife::Arrive> arrive_{*this};
  HookTo<QueueLife, &QueueLife::WhenIdle> idle_hook_{*this};
};

}  // namespace ringside
