// The guest: its processors, the queue's interrupt handler as of Linux's virtio_blk, and the jobs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "benchmarks/signal_simulator/device.h"
#include "benchmarks/signal_simulator/events.h"
#include "benchmarks/signal_simulator/ring.h"
#include "benchmarks/signal_simulator/scenario.h"
#include "benchmarks/signal_simulator/vcpu.h"

namespace ringside {

class GuestSimulation;

// The handler. It drains the used ring, asks for the next interrupt, and looks once more.
class InterruptHandler final : public GuestThread {
 public:
  explicit InterruptHandler(GuestSimulation& guest)
      : GuestThread(Priority::kInterrupt), guest_(guest) {}
  void Arrives() { pending_ = true; }
  uint64_t runs() const { return runs_; }

 private:
  int64_t Step() override;

  GuestSimulation& guest_;
  bool pending_ = false;
  bool entered_ = false;
  bool has_entry_ = false;
  IoId entry_ = 0;
  uint64_t runs_ = 0;
};

// A job and the thread it is done by: it fetches all that has completed, and replaces one after the
// other. It sleeps if nothing has.
class JobThread final : public GuestThread {
 public:
  JobThread(GuestSimulation& guest, const Job& job, size_t index)
      : GuestThread(job.preempts ? Priority::kPreempting : Priority::kNormal),
        guest_(guest),
        job_(job),
        index_(index) {}

  const Job& job() const { return job_; }
  void SetDepth(uint32_t depth);
  uint32_t depth() const { return depth_; }
  // By the handler.
  void Finished(IoId io);
  // Mischief::kDrips: replaces one, and the next one some time later.
  void Drip();
  // An interrupt came that had been held: before the next drip, so that was too late.
  void HoldHasEnded();
  // From now on each request counts; how many that were, and how long each was on its way from
  // the device until somebody attended to it.
  void Measure();
  uint64_t done() const { return done_; }
  std::vector<int64_t>& latencies() { return latencies_; }

 private:
  static constexpr int64_t kLeastDripNs = 1'000;
  enum class Phase : uint8_t { kAsleep, kWaking, kReaping, kHandling, kKicking };
  int64_t Step() override;
  int64_t Next();
  void AttendTo(IoId io);
  bool ParallelNow() const;
  // Returns whether a kick was due.
  bool Replace(IoId io);
  void Wake();

  GuestSimulation& guest_;
  const Job job_;
  const size_t index_;
  Phase phase_ = Phase::kAsleep;
  uint32_t depth_ = 0;
  uint32_t under_way_ = 0;
  std::deque<IoId> finished_;  // not fetched yet
  std::deque<IoId> fetched_;   // not replaced yet
  bool ipi_sent_ = false;
  int64_t drip_ns_ = kLeastDripNs;
  uint64_t done_ = 0;
  std::vector<int64_t> latencies_;
};

// Somebody else's program.
class ForeignThread final : public GuestThread {
 public:
  explicit ForeignThread(int64_t for_ns) : GuestThread(Priority::kPreempting), for_ns_(for_ns) {}

 private:
  int64_t Step() override {
    running_ = !running_;
    return running_ ? for_ns_ : kBlocks;
  }
  const int64_t for_ns_;
  bool running_ = false;
};

class GuestSimulation {
 public:
  // `submitted` is called after each new request and returns whether the guest has to kick. What it
  // is given outlives it.
  GuestSimulation(const Scenario& scenario, Events& events, Ring& ring, Random& random,
                  std::function<bool()> submitted);

  void Start();
  // The I/O thread has sent an interrupt.
  void Interrupt();
  // It has put one off.
  void Held();
  bool halted() const;
  int64_t busy_ns() const;
  uint64_t handler_runs() const { return handler_.runs(); }
  std::vector<std::unique_ptr<JobThread>>& jobs() { return jobs_; }

 private:
  friend class InterruptHandler;
  friend class JobThread;

  Vcpu& handler_vcpu() { return *vcpus_.front(); }
  int64_t DeliveryNs(const Vcpu& vcpu) const {
    return vcpu.halted() ? scenario_.costs.to_halted_ns : scenario_.costs.to_running_ns;
  }
  void StartForeign(ForeignThread& thread, const ForeignLoad& load);
  void MoveEvent();
  bool Submit(IoId io);

  const Scenario& scenario_;
  Events& events_;
  Ring& ring_;
  Random& random_;
  const std::function<bool()> submitted_;
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
  std::vector<std::unique_ptr<JobThread>> jobs_;
  std::vector<std::unique_ptr<ForeignThread>> foreign_;
  InterruptHandler handler_{*this};
  bool interrupt_sent_ = false;  // and not delivered yet
  bool held_ = false;
};

}  // namespace ringside
