#include "benchmarks/support/measure.h"

#include "benchmarks/support/single_step.h"
#include "tests/support/allocation_counter.h"

namespace ringside::benchmarks {
namespace {

// Enough for what happens once in a while to average out; few where every instruction is a trap.
constexpr uint64_t kCountedByProcessor = 2000;
constexpr uint64_t kCountedBySteps = 2;
// The clocked loop asks Google Benchmark once for so many calls, so that asking costs none of them.
constexpr uint64_t kTimedAtOnce = 64;

bool ProcessorCounts() {
  return PerfCounters::WhyNot().empty();
}

uint64_t CountedCalls() {
  return ProcessorCounts() ? kCountedByProcessor : kCountedBySteps;
}

// Said once, at the head of the output.
[[maybe_unused]] const bool said = [] {
  benchmark::AddCustomContext(
      "instructions", ProcessorCounts() ? "counted by the processor"
                                        : "counted by single steps, cycles not available here: " +
                                              PerfCounters::WhyNot());
  return true;
}();

std::optional<double> Difference(std::optional<double> left, std::optional<double> right) {
  if (!left || !right) return {};
  return *left - *right;
}

std::optional<double> Ratio(std::optional<double> dividend, double divisor) {
  if (!dividend) return {};
  return *dividend / divisor;
}

void ReportOne(benchmark::State& state, const char* name, std::optional<double> value) {
  if (value) state.counters[name] = *value;
}

}  // namespace

void Require(benchmark::State& state, bool holds, const char* what) {
  if (!holds) state.SkipWithError(what);
}

Cost operator-(const Cost& left, const Cost& right) {
  return {Difference(left.instructions, right.instructions), Difference(left.cycles, right.cycles),
          Difference(left.kernel_instructions, right.kernel_instructions),
          Difference(left.kernel_cycles, right.kernel_cycles)};
}

Cost operator/(const Cost& cost, double count) {
  return {Ratio(cost.instructions, count), Ratio(cost.cycles, count),
          Ratio(cost.kernel_instructions, count), Ratio(cost.kernel_cycles, count)};
}

const Cost& OverheadOfCalls() {
  static const Cost overhead = [] {
    Calls nothing;
    while (nothing.More()) benchmark::ClobberMemory();
    return nothing.cost();
  }();
  return overhead;
}

bool Calls::AtEdge() {
  return state_ != nullptr ? AtEdgeOfTimed() : AtEdgeOfCounted();
}

bool Calls::AtEdgeOfTimed() {
  // Read within: Google Benchmark itself may allocate when it starts and stops its clocks.
  const uint64_t before = testing::AllocationsOfThisThread();
  const bool more = state_->KeepRunningBatch(kTimedAtOnce);
  if (stage_ == Stage::kStart) {
    stage_ = Stage::kMeasuring;
    allocations_ = testing::AllocationsOfThisThread();
  } else if (!more) {
    allocations_ = before - allocations_;
  }
  if (more) left_ = kTimedAtOnce - 1;
  return more;
}

bool Calls::AtEdgeOfCounted() {
  switch (stage_) {
    case Stage::kStart:
      stage_ = Stage::kSettling;
      left_ = settling_ - 1;
      return true;
    case Stage::kSettling:
      stage_ = Stage::kMeasuring;
      left_ = CountedCalls() - 1;
      StartCounting();
      return true;
    case Stage::kMeasuring:
      StopCounting();
      return false;
  }
  return false;
}

void Calls::StartCounting() {
  if (ProcessorCounts()) {
    perf_.Start();
  } else {
    StartSingleStep();
  }
}

void Calls::StopCounting() {
  PerfCounters::Figures figures;
  if (ProcessorCounts()) {
    figures = perf_.Stop();
  } else {
    figures.instructions = StopSingleStep();
  }
  cost_ = Cost{figures.instructions, figures.cycles, figures.kernel_instructions,
               figures.kernel_cycles} /
          static_cast<double>(CountedCalls());
}

void Report(benchmark::State& state, const Cost& cost) {
  ReportOne(state, "instructions", cost.instructions);
  ReportOne(state, "cycles", cost.cycles);
  ReportOne(state, "kernel_instructions", cost.kernel_instructions);
  ReportOne(state, "kernel_cycles", cost.kernel_cycles);
}

void Check(benchmark::State& state, const Cost& cost, const Calls& timed) {
  Require(state, !cost.instructions || *cost.instructions > 0, "no instruction was counted");
  if (!testing::CanCountAllocations()) return;
  state.counters["allocations"] = benchmark::Counter(static_cast<double>(timed.allocations()),
                                                     benchmark::Counter::kAvgIterations);
  Require(state, timed.allocations() == 0, "the hot path allocates");
}

}  // namespace ringside::benchmarks
