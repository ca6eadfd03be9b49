// The I/O thread: turns as poll/io_thread.cc has them, and what it does between them.
#pragma once

#include <cstdint>
#include <vector>

#include "benchmarks/signal_simulator/device.h"
#include "benchmarks/signal_simulator/events.h"
#include "benchmarks/signal_simulator/guest.h"
#include "benchmarks/signal_simulator/queue.h"
#include "benchmarks/signal_simulator/ring.h"
#include "benchmarks/signal_simulator/scenario.h"

namespace ringside {

struct ThreadCounts {
  int64_t polled_for_held_ns = 0;  // when it would have slept
  int64_t idle_guest_ns = 0;       // a signal was held, and no processor of the guest's ran
  uint64_t sleeps = 0;
};

class IoThreadSimulation {
 public:
  struct Parts {
    Events& events;
    Ring& ring;
    QueueSimulation& queue;
    GuestSimulation& guest;
    DeviceSimulation& device;
  };
  // `batched`: shows and signals at the end of a turn. What it is given outlives it.
  IoThreadSimulation(const Scenario& scenario, bool batched, const Parts& parts)
      : model_(scenario.thread),
        inline_(scenario.device.kind == DeviceModel::Kind::kInline),
        service_ns_(scenario.device.service_ns),
        batched_(batched),
        parts_(parts) {}

  void Start() { Idle(); }
  // The guest has submitted a request. Returns whether it has to kick.
  bool Submitted();
  void Completed();
  const ThreadCounts& counts() const { return counts_; }
  void Measure() { counts_ = {}; }

 private:
  // Batched turns are slow because much is done in them, as QEMU's are.
  static constexpr int64_t kBatchedTurnNs = 8'000;

  // A turn, step by step.
  void Begin();
  void ShowFirst();
  void Take();
  void LookAtHeld();
  void HandOver();
  void ShowLast();
  void End();
  // Goes on after what it costs to send an interrupt, if one is to be sent.
  void Then(bool raise, void (IoThreadSimulation::*step)());
  void After(int64_t ns, void (IoThreadSimulation::*step)());

  bool AnythingToDo();
  void Idle();
  void LookAgain();
  void LookNow();
  void MaybeSleep();

  const ThreadModel model_;
  const bool inline_;
  const int64_t service_ns_;
  const bool batched_;
  const Parts parts_;
  std::vector<IoId> answers_;
  std::vector<IoId> taken_;
  enum class State : uint8_t { kTurn, kPolling, kAsleep, kWaking } state_ = State::kTurn;
  uint64_t idles_ = 0;  // tells a wait from the next
  int64_t idle_since_ns_ = 0;
  ThreadCounts counts_;
};

}  // namespace ringside
