#include "benchmarks/signal_simulator/adversaries.h"

#include <utility>

namespace ringside {
namespace {

Scenario Against(const char* name, Mischief mischief, uint32_t depth) {
  Scenario scenario = {.name = name, .costs = kMid, .jobs = {{.depth = depth}}};
  scenario.mischief = mischief;
  return scenario;
}

}  // namespace

std::vector<Scenario> MakeAdversaries() {
  std::vector<Scenario> all = {
      Against("one request less at each hold", Mischief::kShrinks, 32),
      Against("replaces one just before a hold ends", Mischief::kDrips, 32),
      Against("moves used_event away and back", Mischief::kMovesEvent, 32),
      Against("completions just after each signal", Mischief::kAfterRaise, 32),
      Against("indices wrap", Mischief::kNone, 32),
      Against("serial and parallel in turns, 1ms", Mischief::kNone, 32),
      Against("serial and parallel in turns, 10ms", Mischief::kNone, 32),
  };
  all[4].first_index = 65'000;
  all[5].jobs[0].alternates_ns = 1'000'000;
  all[5].jobs[0].think_ns = 20'000;
  all[6].jobs[0].alternates_ns = 10'000'000;
  all[6].jobs[0].think_ns = 20'000;
  return all;
}

}  // namespace ringside
