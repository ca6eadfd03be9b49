// The interrupts of a vfio-user device: what is wished of each vector, what the server has been
// told, and what to tell it next.
//
// A server signals an interrupt by writing an eventfd: a system call for every completion, on the
// core that does the I/O. A vector that is masked gets an eventfd nobody looks at, so that it wakes
// no one; and when all are masked, MSI-X is switched off in configuration space, which SPDK looks
// at before it signals: then there is no system call any more. A vector without an eventfd, as the
// protocol has it, will not do: libvfio-user takes another range away than it is told, and SPDK
// reports an error for each interrupt that has nowhere to go.
//
// A server may take a millisecond to look at a message, in which a thread that wants to sleep would
// look on in vain. So it hears of a masking only when that has lasted ten times as long, and not at
// all of one that was over before.
//
// Threads: Mask and Unmask, one a vector; Set, Restore and Up, one at a time; Next, Done and Down,
// any. No call but Set and Restore waits.
// Spec: linux/vfio.h (struct vfio_irq_set); PCI Local Bus 3.0, section 6.8.2.3.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "base/sync.h"
#include "vfio/vfio_user_message.h"

namespace ringside {

class VfioUserVectors {
 public:
  struct Request {
    uint64_t ticket = 0;
    VfioUserCommand command;
    VfioUserPayload payload;
    std::vector<int> fds;
  };
  // MSI-X's message control register in configuration space.
  struct Control {
    uint32_t offset = 0;  // 0: there is none
    uint16_t value = 0;
  };

  // `wake` is signalled when Next has something to say; `spare` is nobody's.
  VfioUserVectors(const EventFd& wake, EventFd spare) : wake_(wake), spare_(std::move(spare)) {}

  uint32_t count() const { return count_; }

  // There is a server that knows of no vector; the first time says how many there are.
  void Up(uint32_t count, Control control, uint32_t max_fds);
  // It is gone, which whoever waits is told.
  void Down();

  // Keeps the eventfds, of which one may be -1: none. Waits until the server has them, if there is
  // one.
  absl::Status Set(std::span<const int> eventfds);
  // The server may have forgotten them; waits as Set does.
  absl::Status Restore();

  void Mask(uint32_t vector);
  // Whether the server has acknowledged it, has never heard of the masking, or is gone.
  bool Unmask(uint32_t vector);

  // One at a time; nothing until Done has been told how it ended. `again_ns`: is brought forward to
  // when to ask again anyway.
  std::optional<Request> Next(int64_t now_ns, int64_t& again_ns);
  // An error that nobody waits for is returned. `ticket`: the request's; one of before Up is
  // ignored.
  absl::Status Done(uint64_t ticket, const absl::Status& status);

 private:
  // What the server has.
  enum class Held : uint8_t { kNothing, kForgotten, kOwn, kSpare };

  struct Vector {
    // Odd: masked. Counts up with each change, so that a wish is told from an older one like it.
    std::atomic<uint32_t> wish = 0;
    // The unmasking that the server has acknowledged.
    std::atomic<uint32_t> acknowledged = 0;
    // The masking that the server may have heard of.
    std::atomic<uint32_t> told = 0;

    // Of the thread that masks.
    uint32_t in_force_without = 0;  // the unmasking that the server need not hear of
    bool was_in_force = true;       // what came before the masking

    // Of whoever has the lock.
    uint32_t seen = 0;  // the latest masking
    int64_t seen_ns = 0;
    Held held = Held::kNothing;

    bool IsInForce(uint32_t wished) const {
      // Acquire: pairs with the release in Find, behind the server's answer, so that completions
      // for which the server had no eventfd are seen by whoever looks now.
      return in_force_without == wished || acknowledged.load(std::memory_order_acquire) == wished;
    }
  };

  // What the server has when it has acknowledged the request under way.
  struct Change {
    size_t first = 0;
    size_t count = 0;
    Held held = Held::kNothing;
    std::optional<bool> enabled;
    bool is_stale = false;  // something else is wanted since
  };

  // All is to be told anew.
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Settle();
  void Tell(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is wished, or was before a masking that is too young to be told.
  uint32_t TakeWish(Vector& vector, int64_t now_ns, int64_t& again_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Request> Find(int64_t now_ns, int64_t& again_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Request> Assign(Held held) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Request> Enable(bool enabled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Request DisableAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsMasked(size_t vector) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return (taken_[vector] & 1) != 0;
  }

  const EventFd& wake_;
  const EventFd spare_;
  std::atomic<bool> down_ = true;
  uint32_t count_ = 0;
  std::unique_ptr<Vector[]> vectors_;

  Mutex mutex_;
  Control control_ ABSL_GUARDED_BY(mutex_);
  uint32_t max_fds_ ABSL_GUARDED_BY(mutex_) = 1;
  std::vector<UniqueFd> eventfds_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> taken_ ABSL_GUARDED_BY(mutex_);  // wishes, as the last look found them
  std::optional<bool> enabled_ ABSL_GUARDED_BY(mutex_);  // unset: it may be either
  std::optional<Change> under_way_ ABSL_GUARDED_BY(mutex_);
  uint64_t ticket_ ABSL_GUARDED_BY(mutex_) = 0;   // of the latest request
  bool refused_ ABSL_GUARDED_BY(mutex_) = false;  // until eventfds are set anew
  absl::Status outcome_ ABSL_GUARDED_BY(mutex_);
  Event* waiter_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace ringside
