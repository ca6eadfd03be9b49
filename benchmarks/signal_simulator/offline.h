// What signals have cost on a trace, what each policy's would, and the least that they could.
//
// The cost is that of the interrupts, and a price for each ns from a completion's being shown until
// the guest is told of it. What the guest takes from the ring and submits is as in the trace,
// whatever it is told when: so this compares policies on one sequence, and says nothing of a guest
// that would have gone on otherwise. In particular everything has to be told, but for the bill of
// the recorded signals: what the guest found without one was free, so that bill may be the least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "benchmarks/signal_simulator/signal_trace.h"
#include "benchmarks/signal_simulator/signaller.h"

namespace ringside {

// The optimum takes a time that grows with the square of this; more completions are left out.
inline constexpr size_t kMostCompletions = 20'000;

struct SignalPrice {
  double signal_ns = 5'000;
  double per_ns = 0.1;  // of a completion's delay
};

struct SignalBill {
  uint64_t signals = 0;
  int64_t delay_ns = 0;  // of all completions
  double CostNs(const SignalPrice& price) const {
    return price.signal_ns * static_cast<double>(signals) +
           price.per_ns * static_cast<double>(delay_ns);
  }
};

// The trace up to where kMostCompletions were shown.
SignalTrace FirstPart(const SignalTrace& trace);

SignalBill AsRecorded(const SignalTrace& trace);
SignalBill AsDecidedBy(Signaller& signaller, const SignalTrace& trace);
// The least cost of any times of signals, known in advance.
double LeastCostNs(const SignalTrace& trace, const SignalPrice& price);

}  // namespace ringside
