#include "poll/io_thread.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread.h"
#include "poll/epoll_waiter.h"
#include "poll/uring_waiter.h"

namespace ringside {

const char* SignallingName(Signalling signalling) {
  constexpr std::array<const char*, 3> kNames = {"early", "batched", "cost"};
  return kNames[static_cast<size_t>(signalling)];
}

absl::StatusOr<std::unique_ptr<IoThread>> IoThread::Start(const std::string& name, Waiter waiter,
                                                          const IoThreadTuning& tuning,
                                                          Serves serves) {
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  std::unique_ptr<IoThread> io_thread(new IoThread(std::move(wake), tuning, serves));
  IoThread* const self = io_thread.get();
  if (waiter == Waiter::kEpoll) {  // which belongs to no thread, so the thread is not waited for
    RINGSIDE_RETURN_IF_ERROR(self->CreateWaiter(waiter));
    RINGSIDE_ASSIGN_OR_RETURN(self->thread_, StartThread(name, [self] { self->Loop(); }));
    return io_thread;
  }
  absl::Status status;
  Event has_waiter;
  RINGSIDE_ASSIGN_OR_RETURN(self->thread_, StartThread(name, [self, waiter, &status, &has_waiter] {
                              status = self->CreateWaiter(waiter);
                              const bool ok = status.ok();
                              has_waiter.Notify();  // the caller's variables are gone after this
                              if (ok) self->Loop();
                            }));
  has_waiter.Wait();
  if (!status.ok()) {
    self->thread_.join();
    return status;
  }
  return io_thread;
}

// On the thread, unless it is an epoll: a ring belongs to the thread that creates it.
absl::Status IoThread::CreateWaiter(Waiter waiter) {
  const auto entries =
      waiter == Waiter::kUring ? UringEntries::kUsual : UringEntries::kWithCommands;
  const unsigned files = serves_many() ? Uring::kManyFiles : Uring::kUsualFiles;
  RINGSIDE_ASSIGN_OR_RETURN(waiter_, waiter == Waiter::kEpoll
                                         ? EpollWaiter::Create(serves_many())
                                         : UringWaiter::Create(entries, files));
  return waiter_->Watch(mailbox_.wake_fd(), mailbox_, Watching::kAlways);
}

IoThread::~IoThread() {
  if (!thread_.joinable()) return;
  TaskOf stop([this] { stop_ = true; });
  Post(stop);
  thread_.join();
}

void IoThread::Loop() {
  wait_.Start();
  const bool early = signalling_ != Signalling::kBatched;
  // Tasks posted before the stop are older than it in the mailbox, so they have run by then.
  while (!stop_) {
    stats_.turns.Add();
    if (waiter_->Reap()) wait_.HadWork(kCompletionRing);
    if (timers_.any()) RunTimers();
    RunSources(Phase::kComplete);
    mailbox_.Run();
    waiter_->RunAlwaysReady();
    const bool published = early && publish_hooks_.Run();
    RunSources(Phase::kTake);
    if (held_ != nullptr) LookAtHeld(MonotonicNs());
    before_hand_over_.Run();
    hand_over_hooks_.Run();
    if (early && !published) publish_hooks_.Run();
    // What is queued for the kernel goes there here and nowhere else, unless the ring is full: in
    // the system call that sleeps, if the thread is about to sleep.
    int64_t sleep_ns = stop_ ? Wait::kOver : wait_.Begin(AnythingToDo(), in_flight_ > 0);
    while (sleep_ns != Wait::kOver) sleep_ns = wait_.Next(waiter_->Enter(sleep_ns));
    // As long as there are such hooks there is something to do, so nobody has slept.
    if (!early) publish_hooks_.Run();
  }
}

bool IoThread::AnythingToDo() {
  if (!mailbox_.empty() || waiter_->HasReady() || !publish_hooks_.empty() ||
      !hand_over_hooks_.empty() || waiter_->HasCompletions()) {
    return true;
  }
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) {
      if (source->HasWork()) return true;
    }
  }
  return timers_.any() && timers_.first_ns() <= MonotonicNs();
}

// A time that has come is to the policy what a completion is.
void IoThread::RunTimers() {
  if (timers_.RunDue(MonotonicNs())) wait_.HadWork(kCompletionRing);
}

int64_t IoThread::UntilTimer(int64_t most_ns) {
  if (!timers_.any()) return most_ns;
  return std::clamp<int64_t>(timers_.first_ns() - MonotonicNs(), 0, most_ns);
}

void IoThread::RunSources(Phase phase) {
  // Polling costs some 15 instructions per source and turn; a kick, with the guest's exit and the
  // completion of the watch, some 15,000. So who has been silent for that many looks is asked to
  // kick: whatever comes, that costs at most twice the best there could have been.
  constexpr uint64_t kSilentTurns = 1024;
  const uint64_t turn = stats_.turns.Get();
  // Whatever a source detaches, itself included, the loop goes on with what is still there.
  for (Source* source = sources_[static_cast<int>(phase)]; source != nullptr;
       source = next_source_) {
    next_source_ = source->next_;
    if (!source->HasWork()) {
      if (turn - source->last_work_turn_ > kSilentTurns) Park(*source);
      continue;
    }
    source->last_work_turn_ = turn;
    wait_.HadWork(source->ready_bit_);
    Quiet(*source);
    source->Run();
  }
}

bool IoThread::IsShared(const Source* one) const {
  constexpr uint64_t kLately = 256;  // turns
  const uint64_t turn = stats_.turns.Get();
  const Source* source = sources_[static_cast<int>(Phase::kTake)];
  for (; source != nullptr; source = source->next_) {
    if (source != one && turn - source->last_work_turn_ < kLately) return true;
  }
  return false;
}

absl::Status IoThread::Attach(Source& source, Phase phase) {
  RINGSIDE_RETURN_IF_ERROR(waiter_->Watch(source.wake_fd_, source, source.watching_));
  source.io_thread_ = this;
  source.phase_ = phase;
  source.notify_on_ = true;
  source.parked_ = false;
  source.ready_bit_ = NextReadyBit();
  AddSource(source);
  if (phase == Phase::kTake) ++attached_;
  return absl::OkStatus();
}

void IoThread::Detach(Source& source) {
  if (source.io_thread_ != this) return;
  if (!std::exchange(source.parked_, false)) RemoveSource(source);
  if (source.phase_ == Phase::kTake) --attached_;
  source.io_thread_ = nullptr;
  waiter_->Unwatch(source.wake_fd_);
}

// Beyond 63 sources some share one.
uint64_t IoThread::NextReadyBit() {
  next_ready_bit_ = std::rotl(next_ready_bit_, 1);
  if (next_ready_bit_ == kCompletionRing) next_ready_bit_ <<= 1;
  return next_ready_bit_;
}

void IoThread::AddSource(Source& source) {
  Source** link = &sources_[static_cast<int>(source.phase_)];
  while (*link != nullptr) link = &(*link)->next_;
  *link = &source;
  source.next_ = nullptr;
  source.last_work_turn_ = stats_.turns.Get();
}

void IoThread::RemoveSource(Source& source) {
  if (next_source_ == &source) next_source_ = source.next_;
  Source** link = &sources_[static_cast<int>(source.phase_)];
  while (*link != &source) link = &(*link)->next_;
  *link = source.next_;
}

// Nobody needs to signal while this thread polls.
void IoThread::Quiet(Source& source) {
  if (!source.notify_on_) return;
  source.DisableNotify();
  source.notify_on_ = false;
}

void IoThread::QuietSources() {
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) Quiet(*source);
  }
}

// Whether it was not asked already. A fence and a look are due before anyone relies on it.
bool IoThread::AskForSignal(Source& source) {
  if (source.notify_on_) return false;
  source.EnableNotify();
  source.notify_on_ = true;
  return true;
}

void IoThread::AskForSignals() {
  for (Source* source : sources_) {
    for (; source != nullptr; source = source->next_) AskForSignal(*source);
  }
}

void IoThread::Park(Source& source) {
  if (AskForSignal(source)) {
    // As in Wait::GoToSleep.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (source.HasWork()) return;
  }
  waiter_->WantNow();  // this thread may poll others for ever
  RemoveSource(source);
  source.parked_ = true;
  stats_.parked.Add();
}

// In front: it has waited for a turn already, and seldom has work.
void IoThread::Unpark(Source& source) {
  source.parked_ = false;
  Source*& first = sources_[static_cast<int>(source.phase_)];
  source.next_ = std::exchange(first, &source);
  source.last_work_turn_ = stats_.turns.Get();
  stats_.unparked.Add();
}

void Source::Written() {
  if (parked_) io_thread_->Unpark(*this);
}

void IoThread::Hold(HeldSignal& signal) {
  signal.held_ = true;
  signal.next_held_ = held_;
  held_ = &signal;
}

void IoThread::Drop(HeldSignal& signal) {
  HeldSignal** link = &held_;
  while (*link != &signal) link = &(*link)->next_held_;
  *link = signal.next_held_;
  signal.held_ = false;
}

void IoThread::LookAtHeld(int64_t now_ns) {
  // Each may drop itself.
  HeldSignal* next = nullptr;
  for (HeldSignal* signal = held_; signal != nullptr; signal = next) {
    next = signal->next_held_;
    signal->Look(now_ns);
  }
}

void IoThread::ReleaseHeld() {
  while (held_ != nullptr) held_->Release();
}

bool IoThread::HookList::Run() {
  if (first_ == nullptr) return false;
  // What is added meanwhile is for the next time.
  Hook* hook = first_;
  first_ = nullptr;
  end_ = &first_;
  while (hook != nullptr) {
    Hook* next = hook->next_;
    hook->queued_ = false;
    hook->Run();
    hook = next;
  }
  return true;
}

}  // namespace ringside
