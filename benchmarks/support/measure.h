// What one operation costs: its time by Google Benchmark, its instructions, and its allocations, of
// which there must be none.
//
//   Measure(state, [&](Calls& calls) {
//     while (calls.More()) queue.Take(chains);
//   });
//
// The counters it adds are per operation. `instructions` and `cycles` are those of user space,
// `kernel_instructions` and `kernel_cycles` the kernel's, each where it can be had; instructions
// are counted apart from the time, over a fixed number of operations, so they depend on the code
// alone. Where the processor has no counters, instructions are counted by single steps.
#pragma once

#include <benchmark/benchmark.h>
#include <cstdint>
#include <optional>

#include "benchmarks/support/perf_counters.h"

namespace ringside::benchmarks {

// Fails the benchmark, and with it the program, unless `holds`.
void Require(benchmark::State& state, bool holds, const char* what);

// Averages of one operation.
struct Cost {
  std::optional<double> instructions, cycles, kernel_instructions, kernel_cycles;
};
Cost operator-(const Cost& left, const Cost& right);
Cost operator/(const Cost& cost, double count);

// How often an operation is to be done, and the measuring of it. More belongs on the thread that
// does the work, which may be another than the benchmark's.
class Calls {
 public:
  // Timed: as often as the benchmark says.
  explicit Calls(benchmark::State& state) : state_(&state) {}
  // Counted: a fixed number, after some that let things settle: threads wake up, functions of
  // shared libraries are found.
  explicit Calls(uint64_t settling = 16) : settling_(settling) {}

  // Before each operation: whether it is to be done.
  bool More() {
    if (left_ == 0) return AtEdge();
    --left_;
    return true;
  }

  bool timed() const { return state_ != nullptr; }
  // When More has said no. Of a timed loop: allocations of the thread. Of a counted one: its cost.
  uint64_t allocations() const { return allocations_; }
  const Cost& cost() const { return cost_; }

 private:
  enum class Stage { kStart, kSettling, kMeasuring };

  bool AtEdge();
  bool AtEdgeOfTimed();
  bool AtEdgeOfCounted();
  void StartCounting();
  void StopCounting();

  benchmark::State* const state_ = nullptr;
  const uint64_t settling_ = 0;
  Stage stage_ = Stage::kStart;
  uint64_t left_ = 0;
  uint64_t allocations_ = 0;
  PerfCounters perf_;
  Cost cost_;
};

// Of Calls itself, counted.
const Cost& OverheadOfCalls();

// Of one call of the loop's operation.
template <typename Loop>
Cost CostOf(const Loop& loop) {
  Calls counted;
  loop(counted);
  return counted.cost() - OverheadOfCalls();
}

// As counters of `state`.
void Report(benchmark::State& state, const Cost& cost);
// That something was counted, and that nothing was allocated.
void Check(benchmark::State& state, const Cost& cost, const Calls& timed);

// Each call of the loop does `operations` at once. Returns what it reported.
template <typename Loop>
Cost Measure(benchmark::State& state, const Loop& loop, int64_t operations = 1) {
  const Cost cost = CostOf(loop) / static_cast<double>(operations);
  Report(state, cost);
  Calls timed(state);
  loop(timed);
  Check(state, cost, timed);
  state.SetItemsProcessed(state.iterations() * operations);
  return cost;
}

}  // namespace ringside::benchmarks
