// The signal simulator's model: what a request takes on its way, who runs when, and what a policy
// is asked and told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "benchmarks/signal_simulator/families.h"
#include "benchmarks/signal_simulator/queue.h"
#include "benchmarks/signal_simulator/simulation.h"
#include "benchmarks/signal_simulator/vcpu.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

// ---- A processor ----

// Says when each of its steps begins, and when it blocks.
class Steps final : public GuestThread {
 public:
  Steps(Events& events, Priority priority, int64_t step_ns, int count)
      : GuestThread(priority), events_(events), step_ns_(step_ns), left_(count) {}
  std::vector<int64_t> times_ns;

 private:
  int64_t Step() override {
    times_ns.push_back(events_.now_ns());
    return left_-- > 0 ? step_ns_ : kBlocks;
  }
  Events& events_;
  const int64_t step_ns_;
  int left_;
};

using Priority = GuestThread::Priority;

TEST(VcpuTest, AnInterruptTakesTheProcessorAndGivesItBack) {
  Events events;
  Vcpu vcpu(events);
  Steps work(events, Priority::kNormal, 100, 2);
  Steps interrupt(events, Priority::kInterrupt, 10, 1);
  vcpu.Wake(work);
  events.After(30, [&] { vcpu.Wake(interrupt); });
  events.RunUntil(kMs);
  EXPECT_THAT(interrupt.times_ns, ElementsAre(30, 40));
  EXPECT_THAT(work.times_ns, ElementsAre(0, 110, 210));  // nothing of the first step is lost
  EXPECT_EQ(vcpu.busy_ns(), 210);
  EXPECT_TRUE(vcpu.halted());
}

TEST(VcpuTest, EqualsWaitForEachOther) {
  Events events;
  Vcpu vcpu(events);
  Steps first(events, Priority::kPreempting, 100, 2);
  Steps second(events, Priority::kPreempting, 100, 1);
  Steps least(events, Priority::kNormal, 100, 1);
  vcpu.Wake(first);
  vcpu.Wake(least);
  vcpu.Wake(second);
  events.RunUntil(kMs);
  EXPECT_THAT(first.times_ns, ElementsAre(0, 100, 200));
  EXPECT_THAT(second.times_ns, ElementsAre(200, 300));
  EXPECT_THAT(least.times_ns, ElementsAre(300, 400));
}

// ---- A whole run ----

Scenario OneJob(uint32_t depth, int64_t service_ns = 20 * kUs) {
  Scenario scenario = {.costs = kMid, .jobs = {{.depth = depth}}};
  scenario.device.service_ns = service_ns;
  scenario.device.jitter = 0;
  return scenario;
}

RunResult RunAs(const Scenario& scenario, SignallerKind kind) {
  return Simulate(scenario, kind, {.length_ns = 20 * kMs, .warm_up_ns = 5 * kMs});
}

// From the device's completion: a look, the way back, the signal, the halted processor, the
// handler with one entry, the switch to the thread, the call that fetches it.
constexpr int64_t kToTheThreadNs = 100 + 350 + 800 + 4'000 + 3'300 + 1'500 + 600;
// And on: its work on that, a look, the way there, the device.
constexpr int64_t kCycleNs = kToTheThreadNs + 1'500 + 100 + 350 + 20'000;

TEST(SignalSimulationTest, ARequestTakesTheSumOfItsWay) {
  for (const SignallerKind kind : {SignallerKind::kEarly, SignallerKind::kCost}) {
    const RunResult run = RunAs(OneJob(1), kind);
    EXPECT_NEAR(run.all_done(), 20 * kMs / kCycleNs, 1);
    EXPECT_EQ(run.p50_ns, kToTheThreadNs);
    EXPECT_EQ(run.p99_ns, kToTheThreadNs);
    EXPECT_NEAR(run.queue.raised, run.all_done(), 1);
    EXPECT_NEAR(run.guest_busy_ns, run.all_done() * 6'900, 6'900);
  }
}

TEST(SignalSimulationTest, ASleepingThreadHasToBeKickedAndToWake) {
  Scenario scenario = OneJob(1);
  scenario.thread.spin_ns = 0;
  const RunResult run = RunAs(scenario, SignallerKind::kEarly);
  const int64_t wakes_ns = 2 * (scenario.thread.wake_ns - 100);  // instead of looks
  EXPECT_NEAR(run.all_done(), 20 * kMs / (kCycleNs + wakes_ns), 1);
  EXPECT_NEAR(run.guest_busy_ns, run.all_done() * (6'900 + scenario.thread.kick_ns), 9'000);
  EXPECT_NEAR(run.thread.sleeps, 2 * run.all_done(), 2);
}

TEST(SignalSimulationTest, OneInterruptBringsAllThatIsShown) {
  const RunResult run = RunAs(OneJob(4, 4 * kUs), SignallerKind::kEarly);
  EXPECT_NEAR(run.interrupts, run.all_done() / 4.0, 2);
}

TEST(SignalSimulationTest, ASerialDeviceIsAsFastAsItIs) {
  Scenario scenario = OneJob(32, 5 * kUs);
  scenario.device.kind = DeviceModel::Kind::kSerial;
  EXPECT_NEAR(RunAs(scenario, SignallerKind::kEarly).kiops(), 200, 1);
}

TEST(SignalSimulationTest, WithProcessorsForAllThinkingTakesItsTimeOnly) {
  Scenario scenario = OneJob(1);
  scenario.jobs[0].parallel = true;
  scenario.jobs[0].think_ns = 100 * kUs;
  const int64_t cycle_ns = 100 + 350 + 20'000 + 100 + 350 + 800 + 4'000 + 3'300 + 100 * kUs;
  const RunResult run =
      Simulate(scenario, SignallerKind::kEarly, {.length_ns = 400 * kMs, .warm_up_ns = kMs});
  EXPECT_NEAR(run.kiops(), 1e6 / static_cast<double>(cycle_ns), 0.3);  // thinking is random
  EXPECT_NEAR(run.guest_busy_ns, run.all_done() * 3'300, 3'300);
}

TEST(SignalSimulationTest, TheSameSeedGivesTheSameFigures) {
  Scenario scenario = OneJob(32);
  scenario.device.jitter = 0.2;
  const auto run = [&](uint64_t seed) {
    return Simulate(scenario, SignallerKind::kCost, {.length_ns = 5 * kMs, .seed = seed});
  };
  EXPECT_EQ(run(1).all_done(), run(1).all_done());
  EXPECT_EQ(run(1).p99_ns, run(1).p99_ns);
  EXPECT_NE(run(1).p50_ns, run(2).p50_ns);
}

TEST(SignalSimulationTest, WhereTheRingsBeginMakesNoDifference) {
  for (const SignallerKind kind : kAllSignallers) {
    Scenario scenario = OneJob(32);
    const RunResult from_zero = RunAs(scenario, kind);
    scenario.first_index = 65'000;
    const RunResult wrapping = RunAs(scenario, kind);
    EXPECT_EQ(wrapping.all_done(), from_zero.all_done()) << SignallerName(kind);
    EXPECT_EQ(wrapping.queue.raised, from_zero.queue.raised) << SignallerName(kind);
  }
}

TEST(SignalSimulationTest, HandlersThatAskAtEachEntryAreInterruptedMore) {
  Scenario scenario = OneJob(32);
  const RunResult plain = RunAs(scenario, SignallerKind::kEarly);
  scenario.rearms_early = true;
  const RunResult rearming = RunAs(scenario, SignallerKind::kEarly);
  EXPECT_GT(rearming.queue.raised * plain.all_done(), plain.queue.raised * rearming.all_done());
}

TEST(SignalSimulationTest, JobsEndAndBegin) {
  Scenario scenario = OneJob(8);
  scenario.jobs[0].changes = {{.at_ns = 5 * kMs, .depth = 0}, {.at_ns = 15 * kMs, .depth = 1}};
  const RunResult run = RunAs(scenario, SignallerKind::kEarly);
  EXPECT_NEAR(run.all_done(), 8 + 10 * kMs / kCycleNs, 8);
}

TEST(SignalSimulationTest, ForeignProgramsTakeTheirShare) {
  Scenario scenario = OneJob(32);
  const double alone = RunAs(scenario, SignallerKind::kEarly).kiops();
  scenario.foreign.push_back({.every_ns = 100 * kUs, .for_ns = 50 * kUs});
  EXPECT_NEAR(RunAs(scenario, SignallerKind::kEarly).kiops() / alone, 0.5, 0.1);
}

TEST(SignalSimulationTest, ThePreemptingJobDoesNotWaitForTheOther) {
  Scenario scenario = OneJob(1);
  scenario.jobs.push_back({.depth = 32});
  const double waiting = RunAs(scenario, SignallerKind::kEarly).job_kiops(0);
  scenario.jobs[0].preempts = true;
  EXPECT_GT(RunAs(scenario, SignallerKind::kEarly).job_kiops(0), 2 * waiting);
}

TEST(SignalSimulationTest, APollingThreadLooksAfterWhatIsHeld) {
  Scenario scenario = OneJob(8, 4 * kUs);
  scenario.thread.spin_ns = 0;
  EXPECT_EQ(RunAs(scenario, SignallerKind::kEarly).thread.polled_for_held_ns, 0);
  const RunResult held = RunAs(scenario, SignallerKind::kBusy);
  EXPECT_GT(held.queue.held, 0u);
  EXPECT_GT(held.thread.polled_for_held_ns, 0);
}

TEST(SignalSimulationTest, OneWhoDripsCanKeepASignalHeldLongerThanAnyOther) {
  std::vector<Scenario> adversaries = MakeSignalFamily(kAdversaries);
  for (const Scenario& scenario : adversaries) {
    const RunResult run = RunAs(scenario, SignallerKind::kBusy);
    EXPECT_GT(run.all_done(), 0u) << scenario.name;
    if (scenario.mischief == Mischief::kDrips) {
      EXPECT_GT(run.queue.longest_hold_ns, 100 * kUs);
    }
  }
}

// ---- A queue ----

// Answers as it is told to.
class Scripted final : public Signaller {
 public:
  SignalReason answer = SignalReason::kHold;
  std::vector<uint32_t> handed;

  bool busy() const override { return true; }
  void Handed(uint32_t count, int64_t /*now_ns*/) override { handed.push_back(count); }
  void Took(uint32_t /*count*/, int64_t /*now_ns*/) override {}
  SignalReason Decide(const QueueView& /*view*/) override { return answer; }
  SignalReason Look(int64_t /*since_ns*/, const QueueView& /*view*/) override { return answer; }
};

class QueueSimulationTest : public ::testing::Test {
 protected:
  bool Show(size_t count) { return queue_.Show(std::vector<IoId>(count)); }

  Events events_;
  Ring ring_{65'534};
  Scripted* script_ = new Scripted;  // the queue's
  SignalTrace trace_;
  QueueSimulation queue_{events_, ring_, std::unique_ptr<Signaller>(script_), &trace_};
};

TEST_F(QueueSimulationTest, WhatIsHeldIsRaisedWhenThePolicySaysSo) {
  queue_.Took(4);
  EXPECT_FALSE(Show(3));
  EXPECT_TRUE(queue_.held());
  EXPECT_FALSE(queue_.Look());
  EXPECT_FALSE(Show(1));
  events_.RunUntil(700);
  script_->answer = SignalReason::kDry;
  EXPECT_TRUE(queue_.Look());
  EXPECT_FALSE(queue_.held());
  EXPECT_THAT(script_->handed, ElementsAre(4));
  EXPECT_EQ(queue_.counts().longest_hold_ns, 700);
  using enum SignalEventKind;
  EXPECT_THAT(trace_.events, ElementsAre(SignalEvent{0, kTook, 2}, SignalEvent{0, kShown, 1},
                                         SignalEvent{0, kHeld, 1}, SignalEvent{0, kShown, 2},
                                         SignalEvent{700, kRaised, 2}));
}

TEST_F(QueueSimulationTest, WhatTheGuestHasFoundIsDropped) {
  queue_.Took(2);
  EXPECT_FALSE(Show(1));
  ring_.used_event = ring_.used;  // drained, and armed anew
  EXPECT_FALSE(queue_.Look());
  EXPECT_FALSE(queue_.held());
  EXPECT_EQ(queue_.counts().dropped, 1u);
  EXPECT_THAT(script_->handed, ElementsAre(1));
}

TEST_F(QueueSimulationTest, OfWhatTheGuestFindsByItselfThePolicyHearsAtOnce) {
  ring_.used_event = 100;  // far ahead
  queue_.Took(2);
  EXPECT_FALSE(Show(2));
  EXPECT_FALSE(queue_.held());
  EXPECT_THAT(script_->handed, ElementsAre(2));
}

TEST_F(QueueSimulationTest, AHoldThatGoesOnCountsAsLongAsItIs) {
  queue_.Took(1);
  Show(1);
  events_.RunUntil(kMs);
  EXPECT_EQ(queue_.counts().longest_hold_ns, kMs);
}

TEST_F(QueueSimulationTest, SeesWhenOneBeginsToWaitForAGuestThatHasNothing) {
  queue_.Took(1);
  Show(1);
  EXPECT_EQ(queue_.counts().held_for_nobody, 1u);
  queue_.Look();  // it may go on to count anew
  EXPECT_EQ(queue_.counts().held_for_nobody, 1u);
}

TEST_F(QueueSimulationTest, OneRequestUnderWayIsEnoughToHoldFor) {
  queue_.Took(2);
  Show(1);
  EXPECT_TRUE(queue_.held());
  EXPECT_EQ(queue_.counts().held_for_nobody, 0u);
}

TEST_F(QueueSimulationTest, IsReleasedBeforeASleep) {
  queue_.Took(2);
  EXPECT_FALSE(queue_.Release());
  Show(1);
  EXPECT_TRUE(queue_.Release());
  EXPECT_EQ(queue_.counts().reasons[static_cast<size_t>(SignalReason::kSleep)], 1u);
}

}  // namespace
}  // namespace ringside
