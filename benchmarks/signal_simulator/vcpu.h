// A processor of the guest's: which of its threads runs, and how far each has come.
#pragma once

#include <cstdint>
#include <deque>

#include "benchmarks/signal_simulator/events.h"

namespace ringside {

// What a processor runs, step by step. An interrupt's handler is one, too.
class GuestThread {
 public:
  // A waking one takes the processor from those of a lower priority.
  enum class Priority : uint8_t { kNormal, kPreempting, kInterrupt };
  static constexpr int64_t kBlocks = -1;

  explicit GuestThread(Priority priority) : priority_(priority) {}
  virtual ~GuestThread() = default;
  bool blocked() const { return blocked_; }

 protected:
  // The last step is done. Returns how long the next one takes, or that there is none until
  // somebody wakes the thread.
  virtual int64_t Step() = 0;

 private:
  friend class Vcpu;
  const Priority priority_;
  bool blocked_ = true;
  int64_t left_ns_ = 0;  // of a step that was begun
};

class Vcpu {
 public:
  explicit Vcpu(Events& events) : events_(events) {}

  void Wake(GuestThread& thread);
  bool halted() const { return current_ == nullptr; }
  int64_t busy_ns() const { return busy_ns_; }

 private:
  void Dispatch();
  void Preempt();
  void Run();
  void StepEnds();

  Events& events_;
  std::deque<GuestThread*> ready_;
  GuestThread* current_ = nullptr;
  bool stepping_ = false;
  int64_t began_ns_ = 0;
  uint64_t runs_ = 0;  // tells a step that goes on from one that was preempted
  int64_t busy_ns_ = 0;
};

}  // namespace ringside
