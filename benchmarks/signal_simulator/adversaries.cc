#include "benchmarks/signal_simulator/adversaries.h"

#include <utility>

namespace ringside {
namespace {

Scenario Against(const char* name, Mischief mischief, uint32_t depth) {
  Scenario scenario = {.name = name, .costs = kMid, .jobs = {{.depth = depth}}};
  scenario.mischief = mischief;
  return scenario;
}

void Alternate(Scenario& scenario, int64_t ns) {
  scenario.jobs[0].alternates_ns = ns;
  scenario.jobs[0].think_ns = 20'000;
}

}  // namespace

std::vector<Scenario> MakeAdversaries() {
  std::vector<Scenario> all = {
      Against("one request less at each hold", Mischief::kShrinks, 32),
      Against("replaces one just before a hold ends", Mischief::kDrips, 32),
      Against("moves used_event away and back", Mischief::kMovesEvent, 32),
      Against("completions just after each signal", Mischief::kAfterRaise, 32),
      Against("completions just after each signal, depth 2", Mischief::kAfterRaise, 2),
      Against("indices wrap", Mischief::kNone, 32),
      Against("serial and parallel in turns, 1ms", Mischief::kNone, 32),
      Against("serial and parallel in turns, 10ms", Mischief::kNone, 32),
  };
  // Often enough for it to have something to take away.
  for (int64_t at_ns = 0; at_ns < 100'000'000; at_ns += 500'000) {
    all[0].jobs[0].changes.push_back({.at_ns = at_ns, .depth = 32});
  }
  all[5].first_index = 55'000;
  Alternate(all[6], 1'000'000);
  Alternate(all[7], 10'000'000);
  return all;
}

}  // namespace ringside
