#include "poll/io_thread.h"

#include <cerrno>

#include "base/status.h"
#include "base/thread.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<IoThread>> IoThread::Start(const std::string& name) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return ErrnoError(errno, "cannot create an epoll", "raise 'ulimit -n'");
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.fd(), &event) != 0) {
    return ErrnoError(errno, "cannot watch an eventfd");
  }
  std::unique_ptr<IoThread> io_thread(new IoThread(std::move(epoll), std::move(wake)));
  RINGSIDE_ASSIGN_OR_RETURN(io_thread->thread_,
                            StartThread(name, [self = io_thread.get()] { self->Loop(); }));
  return io_thread;
}

IoThread::IoThread(UniqueFd epoll, EventFd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

IoThread::~IoThread() {
  if (!thread_.joinable()) return;
  TaskOf stop([this] { stop_ = true; });
  Post(stop);
  thread_.join();
}

void IoThread::Post(Task& task) {
  if (task.queued_.exchange(true, std::memory_order_acq_rel)) return;
  Task* head = mailbox_.load(std::memory_order_relaxed);
  do {
    task.next_ = head;
    // seq_cst, as are the load below and both accesses in Sleep: in their single order either this
    // push comes before Sleep's look at the mailbox, or Sleep's store comes before this look at
    // sleeping_. So a task is seen or the thread is woken, never neither.
  } while (!mailbox_.compare_exchange_weak(head, &task, std::memory_order_seq_cst,
                                           std::memory_order_relaxed));
  if (sleeping_.load(std::memory_order_seq_cst)) wake_.Signal();
}

void IoThread::Loop() {
  // Tasks posted before the stop are older than it in the mailbox, so they have run by then.
  while (!stop_) {
    RunPosted();
    RunAlwaysReady();
    if (!stop_) Sleep();
  }
}

void IoThread::RunPosted() {
  // Acquire: pairs with the push in Post, so that Run sees all that its poster wrote.
  Task* newest = mailbox_.exchange(nullptr, std::memory_order_acquire);
  Task* oldest = nullptr;
  while (newest != nullptr) {
    Task* next = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = next;
  }
  while (oldest != nullptr) {
    Task* next = oldest->next_;
    // Before Run: what is posted from here on is news. An exchange, not a store: it pairs with the
    // exchange in Post, so that Run sees what was written before a Post that found the task queued.
    oldest->queued_.exchange(false, std::memory_order_acq_rel);
    oldest->Run();
    oldest = next;
  }
}

void IoThread::Sleep() {
  sleeping_.store(true, std::memory_order_seq_cst);  // pairs with the load in Post
  const bool must_look =
      mailbox_.load(std::memory_order_seq_cst) != nullptr || always_ready_ != nullptr;
  // One event a call: a watch may disarm and destroy another one whose event would be next.
  epoll_event event;
  const int count = epoll_wait(epoll_.get(), &event, 1, must_look ? 0 : -1);
  sleeping_.store(false, std::memory_order_relaxed);  // one wake-up too many at worst
  if (count <= 0) return;
  if (event.data.ptr == nullptr) {
    wake_.Clear();
  } else {
    static_cast<FdWatch*>(event.data.ptr)->Ready();
  }
}

void IoThread::Arm(FdWatch& watch) {
  if (watch.in_always_ready_) return;
  epoll_event event{.events = watch.events_ | EPOLLONESHOT, .data = {.ptr = &watch}};
  const int operation = watch.added_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  if (epoll_ctl(epoll_.get(), operation, watch.fd_, &event) == 0) {
    watch.added_ = true;
    return;
  }
  // EPERM: the file cannot be polled because it never blocks. Any other error shows up at the read
  // or write that follows.
  FdWatch** link = &always_ready_;
  while (*link != nullptr) link = &(*link)->next_always_ready_;
  *link = &watch;
  watch.next_always_ready_ = nullptr;
  watch.in_always_ready_ = true;
}

void IoThread::Disarm(FdWatch& watch) {
  if (watch.added_) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, watch.fd_, nullptr);
  watch.added_ = false;
  for (FdWatch** link = &always_ready_; *link != nullptr; link = &(*link)->next_always_ready_) {
    if (*link != &watch) continue;
    *link = watch.next_always_ready_;
    watch.in_always_ready_ = false;
    return;
  }
}

void IoThread::RunAlwaysReady() {
  // One a turn: whatever Ready arms or destroys, others and the mailbox come first.
  FdWatch* watch = always_ready_;
  if (watch == nullptr) return;
  always_ready_ = watch->next_always_ready_;
  watch->in_always_ready_ = false;
  watch->Ready();
}

}  // namespace ringside
