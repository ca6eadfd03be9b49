// Holds a machine still, and lets it go on: first its vCPUs, so that the guest asks for nothing
// more, then the queues of its devices, so that nothing is in flight. What the devices have
// answered by then has been signalled. KVM may take an irqfd's interrupt to its controllers by a
// work queue: who saves those takes the irqfd away first, which waits for that.
//
// Threads: Add before the machine runs; all else from any, also at once. Begin, Resume, LetGo and
// End do not wait for vCPUs, I/O threads or storage. Ownership: what is added, and the I/O thread,
// outlive it, but for what is replaced; their threads have ended, or do not run what it gave them,
// before it goes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/sync.h"
#include "devices/pausable.h"
#include "kvm/vcpu.h"
#include "poll/io_thread.h"
#include "vmm/event_queue.h"

namespace ringside {

class Pauser {
 public:
  // OK: nothing moves until Resume. Cancelled: Resume came first. FailedPrecondition: the machine
  // is over.
  using Paused = std::function<void(const absl::Status&)>;

  // What ends a pause that was reached: Resume, which ends all there are, or the LetGo of whoever
  // needed it for a while only, and knows of no others.
  enum class Until { kResume, kLetGo };

  // `tells` calls what Begin is given.
  Pauser(IoThread& tells, EventQueue& events) : tells_(tells), events_(events) {}

  void Add(Vcpu& vcpu) { vcpus_.push_back(&vcpu); }
  void Add(Pausable& device) { devices_.push_back(&device); }

  // `paused` is called once, on the thread given to the constructor, which it must not block. Of a
  // machine that is paused already, too; of one that has not started once it has, before its guest
  // runs.
  void Begin(Paused paused);
  // Begins, and waits. DeadlineExceeded: it was not paused in time; unless others wait for that, it
  // runs on.
  absl::Status PauseAndWait(absl::Duration patience, Until until = Until::kResume);
  // Begins a pause for which nobody waits, and which only Resume ends or calls off: a disk keeps
  // requests until it has rested. Returns which such stop this is, from 1, the same for all that
  // come before Resume; 0: the machine is over. May be called from an I/O thread.
  uint64_t Stop();
  // Ends the pause for all who have asked for it, or calls it off; after Stop not before the queues
  // have begun to rest, as that is what has kept requests tried again.
  void Resume();
  // Once for each pause that was reached with Until::kLetGo. The machine goes on, unless others
  // want it still: those who have paused it until Resume, a disk (Stop), or who has not let go yet.
  void LetGo();
  // The machine is over: whoever waits is told, and nothing is paused any more.
  void End();
  bool paused() const;
  bool ended() const;

  // Has a paused machine stay so until Release: a Resume that comes meanwhile holds from then on.
  // FailedPrecondition: it is not paused, or over. Waits for others who hold it; DeadlineExceeded:
  // one still does.
  absl::Status Hold(Deadline deadline = DeadlineIn(absl::InfiniteDuration()));
  void Release();
  // After End: nobody is told any more but by what the thread has been posted already.
  void Close();
  // Whether whoever holds the machine, which is over, has released it by then.
  bool AwaitRelease(Deadline deadline);
  // For the one who holds it: `next`, which is at rest, takes a device's place.
  void Replace(const Pausable& former, Pausable& next);

 private:
  enum class State { kRunning, kVcpusLeave, kQueuesDrain, kPaused, kEnded };
  // Called with locks held.
  using Answer = std::function<void(const absl::Status&)>;
  // One who waits.
  struct Waiting {
    uint64_t id;
    Until until;
    Answer answer;
  };

  // Returns the id of the one who waits, or 0: it was answered at once.
  uint64_t Ask(Until until, Answer answer);
  // From kRunning. Returns which round it is, for TellVcpus.
  uint64_t BeginRound() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellVcpus(uint64_t round) ABSL_EXCLUSIVE_LOCKS_REQUIRED(order_) ABSL_LOCKS_EXCLUDED(mutex_);
  void VcpuRests(uint64_t round);
  void DeviceRests();
  // Returns what was still awaited.
  const char* GiveUp(uint64_t id);
  void ResumeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(order_) ABSL_LOCKS_EXCLUDED(mutex_);
  void Reached(Until until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerAll(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellLater(Paused paused, const absl::Status& status) ABSL_LOCKS_EXCLUDED(told_mutex_);
  void Tell();

  IoThread& tells_;
  EventQueue& events_;
  std::vector<Vcpu*> vcpus_;
  std::vector<Pausable*> devices_;

  // Held while vCPUs and devices are told to pause or to go on, so that each is told in the order
  // in which that was decided. A device's answer does not take it.
  Mutex order_ ABSL_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kRunning;
  // Which pause; what belongs to former ones is ignored.
  uint64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t awaited_ ABSL_GUARDED_BY(mutex_) = 0;  // vCPUs, or devices and one
  std::vector<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  bool kept_ ABSL_GUARDED_BY(mutex_) = false;  // a pause until Resume was reached since the last
  uint64_t to_let_go_ ABSL_GUARDED_BY(mutex_) = 0;  // pauses reached until LetGo
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;    // from Stop to Resume
  uint64_t stops_ ABSL_GUARDED_BY(mutex_) = 0;
  bool must_rest_ ABSL_GUARDED_BY(mutex_) = false;  // devices, before anything runs: after Stop
  bool resume_at_drain_ ABSL_GUARDED_BY(mutex_) = false;  // Resume came while they must
  bool held_ ABSL_GUARDED_BY(mutex_) = false;             // from Hold to Release
  bool resume_at_release_ ABSL_GUARDED_BY(mutex_) = false;
  std::condition_variable_any released_;
  TaskTo<Pauser, &Pauser::DeviceRests> device_rests_{*this};

  Mutex told_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::vector<std::function<void()>> to_tell_ ABSL_GUARDED_BY(told_mutex_);
  bool closed_ ABSL_GUARDED_BY(told_mutex_) = false;
  TaskTo<Pauser, &Pauser::Tell> tell_{*this};
};

}  // namespace ringside
