// How many requests and bytes per second a disk, or a group of disks, may have. Each limit is one
// number, the time at which all that was admitted so far has been paid for at the limit's rate (the
// "theoretical arrival time" of ITU-T I.371's generic cell rate algorithm): a request fits from
// then on, and moves it by its own cost. So there is nothing to refill and no tick, and the moment
// at which a request fits is known to the nanosecond.
//
// A request is charged when it is first looked at, whether it fits or not: who has to wait has a
// place in the schedule from then on, and those who share a limit have their turns one after the
// other, without a lock and without talking to each other.
//
// Threads: any. Ownership: a group outlives the throttles of its disks.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/sync.h"
#include "ringside/config.h"

namespace ringside {

// Of CLOCK_MONOTONIC, since a nanosecond is too much for a byte.
inline constexpr int64_t kThrottleTicksPerNs = 16;

// One limit as it is charged, in ticks.
struct ThrottleRate {
  std::atomic<int64_t>* paid;  // the time until which all is paid for
  int64_t per_request;         // the least that one costs
  int64_t burst;               // how far ahead of the clock `paid` may be
  double per_byte;
  bool counts_bytes;  // per_byte is not 0
};
// Those that a read, or any other request, is charged to.
using ThrottleRates = std::array<std::vector<ThrottleRate>, 2>;

// How long it takes until each limit's debts are paid, at its average and at the rate of its
// bursts, in ticks; 0: it has none. What a saved machine keeps of them.
inline constexpr size_t kThrottleLimits = 6;
using ThrottleDebts = std::array<int64_t, 2 * kThrottleLimits>;

// The limits of one disk or group, and how far each is used up.
class Throttle {
 public:
  // InvalidArgument: a burst without an average, or no faster than that. `name`: in the message.
  static absl::Status Check(const std::string& name, const ThrottleLimits& limits);

  void Set(const ThrottleLimits& limits);
  ThrottleLimits limits() const;
  bool any() const;
  // Adds its own as they are now; what they refer to is this throttle's.
  void AddTo(ThrottleRates& rates);
  ThrottleDebts Debts(int64_t now_ns) const;
  // Any numbers: less than none is none, and what is far beyond a burst is as much as that may be.
  void Owe(const ThrottleDebts& debts, int64_t now_ns);

 private:
  mutable Mutex mutex_;
  ThrottleLimits limits_ ABSL_GUARDED_BY(mutex_);
  // Twice per limit: at its average, and at the rate of its bursts. Relaxed: each is a number by
  // itself, which no other data hangs on.
  std::array<std::atomic<int64_t>, 2 * kThrottleLimits> paid_{};
};

class DiskThrottle;

class ThrottleGroup {
 public:
  explicit ThrottleGroup(std::string id) : id_(std::move(id)) {}

  const std::string& id() const { return id_; }
  void Set(const ThrottleLimits& limits);
  Throttle& throttle() { return throttle_; }

 private:
  friend class DiskThrottle;
  const std::string id_;
  Throttle throttle_;
  Mutex mutex_;
  std::vector<DiskThrottle*> disks_ ABSL_GUARDED_BY(mutex_);
};

// What holds for a disk: its own limits, and those of its group.
class DiskThrottle {
 public:
  // Null: it is in no group.
  explicit DiskThrottle(ThrottleGroup* group = nullptr);
  ~DiskThrottle();
  DiskThrottle(const DiskThrottle&) = delete;
  DiskThrottle& operator=(const DiskThrottle&) = delete;

  void Set(const ThrottleLimits& limits);
  ThrottleLimits limits() const { return own_.limits(); }
  // Without its group.
  Throttle& own() { return own_; }

  // Another one whenever limits change; 0: there are none. This look is all that a disk without
  // limits pays. Acquire: pairs with Changed, whose limits are then seen.
  uint32_t version() const { return version_.load(std::memory_order_acquire); }
  ThrottleRates rates();

 private:
  friend class ThrottleGroup;
  void Changed();

  Throttle own_;
  ThrottleGroup* const group_;
  Mutex mutex_;
  uint32_t changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<uint32_t> version_{0};
};

}  // namespace ringside
