// Things that an I/O thread does at a time of the clock. While it polls, a look at the clock finds
// them; while it sleeps, its sleep ends in time. Neither takes a system call of its own.
//
// They stand in a list by their time: there are few, as whoever has many things to do arms a timer
// for the first.
//
// Threads: the I/O thread's own.
// Ownership: a timer belongs to whoever arms it, and is disarmed before it goes.
#pragma once

#include <cstdint>

namespace ringside {

class Timer {
 public:
  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Its time has come. It is not armed any more, and may be armed again.
  virtual void Expired(int64_t now_ns) = 0;
  bool armed() const { return armed_; }

 protected:
  ~Timer() = default;

 private:
  friend class Timers;
  bool armed_ = false;
  int64_t at_ns_ = 0;
  Timer* next_ = nullptr;
};

// A Timer that calls a member function: TimerTo<Queue, &Queue::GoOn> timer{*this};
template <typename Owner, void (Owner::*Method)(int64_t now_ns)>
class TimerTo final : public Timer {
 public:
  explicit TimerTo(Owner& owner) : owner_(owner) {}
  void Expired(int64_t now_ns) override { (owner_.*Method)(now_ns); }

 private:
  Owner& owner_;
};

class Timers {
 public:
  static constexpr int64_t kNever = INT64_MAX;

  bool any() const { return first_ != nullptr; }
  int64_t first_ns() const { return first_ != nullptr ? first_->at_ns_ : kNever; }

  // Anew, if it is armed already. `at_ns`: CLOCK_MONOTONIC.
  void Arm(Timer& timer, int64_t at_ns) {
    Disarm(timer);
    timer.at_ns_ = at_ns;
    timer.armed_ = true;
    Timer** link = &first_;
    while (*link != nullptr && (*link)->at_ns_ <= at_ns) link = &(*link)->next_;
    timer.next_ = *link;
    *link = &timer;
  }
  // Nothing if it is not armed.
  void Disarm(Timer& timer) {
    if (!timer.armed_) return;
    timer.armed_ = false;
    if (!Remove(first_, timer)) Remove(due_, timer);
  }
  // Whether any were due. One that is armed meanwhile waits for the next time, whatever its own.
  bool RunDue(int64_t now_ns) {
    Timer** end = &first_;
    while (*end != nullptr && (*end)->at_ns_ <= now_ns) end = &(*end)->next_;
    if (end == &first_) return false;
    due_ = first_;
    first_ = *end;
    *end = nullptr;
    while (due_ != nullptr) {
      Timer& timer = *due_;
      due_ = timer.next_;
      timer.armed_ = false;
      timer.Expired(now_ns);
    }
    return true;
  }

 private:
  static bool Remove(Timer*& list, Timer& timer) {
    for (Timer** link = &list; *link != nullptr; link = &(*link)->next_) {
      if (*link != &timer) continue;
      *link = timer.next_;
      return true;
    }
    return false;
  }

  Timer* first_ = nullptr;
  Timer* due_ = nullptr;  // those that RunDue has still to run
};

}  // namespace ringside
