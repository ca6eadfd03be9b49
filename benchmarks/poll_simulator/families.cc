#include "benchmarks/poll_simulator/families.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_format.h"
#include "benchmarks/poll_simulator/adversaries.h"
#include "benchmarks/poll_simulator/generators.h"

namespace ringside {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

// Gathers a family's traces; each has random numbers of its own, so that none changes if another is
// added after it.
class Maker {
 public:
  Maker(const FamilyOptions& options, const CostModel& model, size_t family)
      : options_(options), model_(model), family_(family) {}

  size_t count() const { return options_.waits; }
  const CostModel& model() const { return model_; }

  Random NextRandom() const {
    std::seed_seq seed{options_.seed, uint64_t{family_}, uint64_t{traces_.size()}};
    return Random(seed);
  }
  void Add(std::string name, std::vector<Wait> waits) {
    traces_.push_back({.name = std::move(name), .waits = std::move(waits)});
  }
  void Add(std::string name, Adversary adversary) {
    const Wait wait = {.busy_ns = kBusyNs, .ready = kFirstSourceBit};
    traces_.push_back({.name = std::move(name),
                       .waits = std::vector<Wait>(count(), wait),
                       .adversary = std::move(adversary)});
  }
  std::vector<Trace> Take() { return std::move(traces_); }

 private:
  const FamilyOptions options_;
  const CostModel model_;
  const size_t family_;
  std::vector<Trace> traces_;
};

// "20us", "1ms".
std::string Short(int64_t ns) {
  return ns % kMs == 0 ? absl::StrFormat("%dms", ns / kMs)
                       : absl::StrFormat("%gus", static_cast<double>(ns) / 1e3);
}

void AddPeriodic(Maker& maker) {
  for (const int64_t period_ns : {10 * kUs, 20 * kUs, 50 * kUs, 100 * kUs, 200 * kUs, kMs}) {
    Random random = maker.NextRandom();
    maker.Add("period " + Short(period_ns), Periodic(period_ns, 0.02, maker.count(), random));
  }
}

void AddPoisson(Maker& maker) {
  for (const int64_t mean_ns : {5 * kUs, 20 * kUs, 60 * kUs, 200 * kUs, kMs}) {
    Random random = maker.NextRandom();
    maker.Add("mean " + Short(mean_ns), Poisson(mean_ns, maker.count(), random));
  }
}

void AddOnOff(Maker& maker) {
  for (const Bursts& bursts :
       {Bursts{.within_ns = 3 * kUs, .between_ns = 200 * kUs, .mean_length = 4},
        Bursts{.within_ns = 3 * kUs, .between_ns = kMs, .mean_length = 16},
        Bursts{.within_ns = 12 * kUs, .between_ns = 500 * kUs, .mean_length = 16},
        Bursts{.within_ns = 5 * kUs, .between_ns = 5 * kMs, .mean_length = 256}}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("%g of %s, then %s", bursts.mean_length, Short(bursts.within_ns),
                              Short(bursts.between_ns)),
              OnOff(bursts, maker.count(), random));
  }
}

void AddBimodal(Maker& maker) {
  for (const TwoModes& modes :
       {TwoModes{.short_ns = 5 * kUs, .long_ns = 100 * kUs, .short_share = 0.5},
        TwoModes{.short_ns = 8 * kUs, .long_ns = 150 * kUs, .short_share = 0.8},
        TwoModes{.short_ns = 15 * kUs, .long_ns = 60 * kUs, .short_share = 0.5},
        TwoModes{.short_ns = 3 * kUs, .long_ns = kMs, .short_share = 0.9}}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("%.0f%% %s, else %s", 100 * modes.short_share, Short(modes.short_ns),
                              Short(modes.long_ns)),
              Bimodal(modes, maker.count(), random));
  }
}

void AddDrifting(Maker& maker) {
  for (const size_t cycle : {200, 2'000, 20'000}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("cycle of %d", cycle),
              Drifting(3 * kUs, 300 * kUs, cycle, maker.count(), random));
  }
}

void AddHeavyTailed(Maker& maker) {
  for (const double shape : {1.1, 1.5}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("Pareto %g", shape), Pareto(3 * kUs, shape, maker.count(), random));
  }
  for (const auto& [median_ns, sigma] :
       {std::pair{6 * kUs, 1.0}, std::pair{12 * kUs, 2.0}, std::pair{60 * kUs, 1.5}}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("lognormal %s, sigma %g", Short(median_ns), sigma),
              Lognormal(median_ns, sigma, maker.count(), random));
  }
}

void AddClosedLoop(Maker& maker) {
  for (const auto& [disk_ns, think_ns] :
       {std::pair{8 * kUs, 2 * kUs}, std::pair{15 * kUs, 40 * kUs}, std::pair{60 * kUs, 5 * kUs},
        std::pair{90 * kUs, 100 * kUs}}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("disk %s, guest %s", Short(disk_ns), Short(think_ns)),
              ClosedLoop(disk_ns, think_ns, maker.count(), random));
  }
}

void AddPhaseChange(Maker& maker) {
  for (const Phases& phases :
       {Phases{.idle_ns = 2 * kMs, .idle_waits = 100, .busy_ns = 4 * kUs, .busy_waits = 2'000},
        Phases{.idle_ns = 200 * kUs, .idle_waits = 50, .busy_ns = 10 * kUs, .busy_waits = 200},
        Phases{.idle_ns = 10 * kMs, .idle_waits = 20, .busy_ns = 20 * kUs, .busy_waits = 500}}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("%d of %s, %d of %s", phases.idle_waits, Short(phases.idle_ns),
                              phases.busy_waits, Short(phases.busy_ns)),
              PhaseChange(phases, maker.count(), random));
  }
}

void AddTwoSources(Maker& maker) {
  for (const auto& [first_ns, second_ns] :
       {std::pair{10 * kUs, 200 * kUs}, std::pair{30 * kUs, 300 * kUs},
        std::pair{100 * kUs, kMs}}) {
    Random random = maker.NextRandom();
    maker.Add(absl::StrFormat("means %s and %s", Short(first_ns), Short(second_ns)),
              TwoSources(first_ns, second_ns, maker.count(), random));
  }
}

void AddBeyondLimit(Maker& maker) {
  for (const int64_t late_ns : {200, 2'000, 20'000}) {
    maker.Add("late by " + Short(late_ns),
              JustBeyondTheLimit(late_ns, maker.model().sleep.wake_ns));
  }
}

void AddInsideDoze(Maker& maker) {
  for (const int64_t bait_ns : {50 * kUs, 150 * kUs, kMs}) {
    maker.Add("bait " + Short(bait_ns), JustInsideTheDoze(kUs, bait_ns));
  }
}

void AddTrains(Maker& maker) {
  const int64_t break_even_ns = BreakEvenNs(maker.model());
  for (const Trains& trains :
       {Trains{.short_ns = 5 * kUs, .long_ns = 200 * kUs, .longest_train = 16},
        Trains{.short_ns = 5 * kUs, .long_ns = 200 * kUs, .longest_train = 256},
        Trains{.short_ns = break_even_ns / 2, .long_ns = 2 * break_even_ns, .longest_train = 64},
        Trains{.short_ns = 20 * kUs, .long_ns = 33 * kUs, .longest_train = 8}}) {
    maker.Add(absl::StrFormat("%s, %s, up to %d", Short(trains.short_ns), Short(trains.long_ns),
                              trains.longest_train),
              TrainsAgainstTheLearner(trains, maker.NextRandom()));
  }
}

void AddNearSleepCost(Maker& maker) {
  for (const double deviation : {0.01, 0.1, 0.3}) {
    maker.Add(absl::StrFormat("give or take %g%%", 100 * deviation),
              AroundTheSleepCost(BreakEvenNs(maker.model()), deviation, maker.NextRandom()));
  }
}

struct NamedFamily {
  const char* name;
  void (*add)(Maker&);
};
constexpr std::array kFamilies = {NamedFamily{"periodic", AddPeriodic},
                                  NamedFamily{"poisson", AddPoisson},
                                  NamedFamily{"on-off", AddOnOff},
                                  NamedFamily{"bimodal", AddBimodal},
                                  NamedFamily{"drifting", AddDrifting},
                                  NamedFamily{"heavy-tailed", AddHeavyTailed},
                                  NamedFamily{"closed-loop", AddClosedLoop},
                                  NamedFamily{"phase-change", AddPhaseChange},
                                  NamedFamily{"two-sources", AddTwoSources},
                                  NamedFamily{"adversary-beyond-limit", AddBeyondLimit},
                                  NamedFamily{"adversary-inside-doze", AddInsideDoze},
                                  NamedFamily{"adversary-trains", AddTrains},
                                  NamedFamily{"adversary-near-cost", AddNearSleepCost}};

}  // namespace

const std::vector<std::string>& FamilyNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    all.reserve(kFamilies.size());
    for (const NamedFamily& family : kFamilies) all.emplace_back(family.name);
    return all;
  }();
  return names;
}

Family MakeFamily(const std::string& name, const FamilyOptions& options, const CostModel& model) {
  const auto* const found = std::ranges::find(kFamilies, name, &NamedFamily::name);
  Maker maker(options, model, static_cast<size_t>(found - kFamilies.begin()));
  found->add(maker);
  return {.name = name, .traces = maker.Take()};
}

}  // namespace ringside
