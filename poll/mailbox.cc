#include "poll/mailbox.h"

#include "base/clock.h"

namespace ringside {

void Mailbox::Post(Task& task) {
  if (task.queued_.exchange(true, std::memory_order_acq_rel)) return;
  Task* head = newest_.load(std::memory_order_relaxed);
  do {
    task.next_ = head;
    // seq_cst, as are the load below, the store in BeginSleep and the load in empty: in their
    // single order either this push comes before the thread's last look at the mailbox, or the
    // store in BeginSleep comes before this look at sleeping_. So a task is seen or the thread is
    // woken, never neither.
  } while (!newest_.compare_exchange_weak(head, &task, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
  if (!sleeping_.load(std::memory_order_seq_cst)) return;
  kicked_ns_.store(MonotonicNs(), std::memory_order_relaxed);  // a measurement, so it may be missed
  wake_.Signal();
}

void Mailbox::BeginSleep() {
  kicked_ns_.store(0, std::memory_order_relaxed);
  sleeping_.store(true, std::memory_order_seq_cst);  // pairs with the load in Post
}

void Mailbox::RunAll() {
  // Acquire: pairs with the push in Post, so that Run sees all that its poster wrote.
  Task* newest = newest_.exchange(nullptr, std::memory_order_acquire);
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

}  // namespace ringside
