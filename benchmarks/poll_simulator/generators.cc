#include "benchmarks/poll_simulator/generators.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace ringside {
namespace {

constexpr double kLongestNs = 1e9;

int64_t Clipped(double ns) {
  return static_cast<int64_t>(std::clamp(ns, 1.0, kLongestNs));
}

int64_t Exponential(double mean_ns, Random& random) {
  return Clipped(std::exponential_distribution<double>(1 / mean_ns)(random));
}

int64_t Around(double ns, double deviation, Random& random) {
  return Clipped(std::normal_distribution<double>(ns, deviation * ns)(random));
}

int64_t LognormalWait(double median_ns, double sigma, Random& random) {
  return Clipped(std::lognormal_distribution<double>(std::log(median_ns), sigma)(random));
}

Wait IdleWait(int64_t waited_ns) {
  return {.waited_ns = waited_ns, .busy_ns = kBusyNs, .ready = kFirstSourceBit};
}

// `length(i)` is that of the i-th.
template <typename Length>
std::vector<Wait> IdleWaits(size_t count, Length length) {
  std::vector<Wait> waits;
  waits.reserve(count);
  for (size_t i = 0; i < count; ++i) waits.push_back(IdleWait(length(i)));
  return waits;
}

}  // namespace

std::vector<Wait> Periodic(int64_t period_ns, double jitter, size_t count, Random& random) {
  return IdleWaits(count,
                   [&](size_t) { return Around(static_cast<double>(period_ns), jitter, random); });
}

std::vector<Wait> Poisson(int64_t mean_ns, size_t count, Random& random) {
  return IdleWaits(count,
                   [&](size_t) { return Exponential(static_cast<double>(mean_ns), random); });
}

std::vector<Wait> OnOff(const Bursts& bursts, size_t count, Random& random) {
  std::bernoulli_distribution ends(1 / bursts.mean_length);
  return IdleWaits(count, [&](size_t) {
    const int64_t mean_ns = ends(random) ? bursts.between_ns : bursts.within_ns;
    return Exponential(static_cast<double>(mean_ns), random);
  });
}

std::vector<Wait> Bimodal(const TwoModes& modes, size_t count, Random& random) {
  std::bernoulli_distribution is_short(modes.short_share);
  return IdleWaits(count, [&](size_t) {
    const int64_t mode_ns = is_short(random) ? modes.short_ns : modes.long_ns;
    return Around(static_cast<double>(mode_ns), 0.1, random);
  });
}

std::vector<Wait> Drifting(int64_t least_ns, int64_t most_ns, size_t cycle, size_t count,
                           Random& random) {
  const double ratio = static_cast<double>(most_ns) / static_cast<double>(least_ns);
  return IdleWaits(count, [&](size_t i) {
    const double place = static_cast<double>(i % cycle) / static_cast<double>(cycle);
    const double height = 1 - std::abs(2 * place - 1);  // 0 to 1 and back
    return Exponential(static_cast<double>(least_ns) * std::pow(ratio, height), random);
  });
}

std::vector<Wait> Pareto(int64_t least_ns, double shape, size_t count, Random& random) {
  std::uniform_real_distribution<double> uniform(0, 1);
  return IdleWaits(count, [&](size_t) {
    return Clipped(static_cast<double>(least_ns) * std::pow(1 - uniform(random), -1 / shape));
  });
}

std::vector<Wait> Lognormal(int64_t median_ns, double sigma, size_t count, Random& random) {
  return IdleWaits(
      count, [&](size_t) { return LognormalWait(static_cast<double>(median_ns), sigma, random); });
}

std::vector<Wait> ClosedLoop(int64_t disk_ns, int64_t think_ns, size_t count, Random& random) {
  std::vector<Wait> waits = IdleWaits(count, [&](size_t i) {
    if (i % 2 == 0) return LognormalWait(static_cast<double>(disk_ns), 0.2, random);
    return think_ns / 10 + Exponential(0.9 * static_cast<double>(think_ns), random);
  });
  for (size_t i = 0; i < count; i += 2) {
    waits[i].what = Waiting::kInFlight;
    waits[i].ready = kCompletionBit;
  }
  return waits;
}

std::vector<Wait> PhaseChange(const Phases& phases, size_t count, Random& random) {
  return IdleWaits(count, [&](size_t i) {
    const bool idle = i % (phases.idle_waits + phases.busy_waits) < phases.idle_waits;
    return Exponential(static_cast<double>(idle ? phases.idle_ns : phases.busy_ns), random);
  });
}

std::vector<Wait> TwoSources(int64_t first_ns, int64_t second_ns, size_t count, Random& random) {
  const std::array means_ns = {static_cast<double>(first_ns), static_cast<double>(second_ns)};
  std::array<int64_t, 2> next_ns = {Exponential(means_ns[0], random),
                                    Exponential(means_ns[1], random)};
  std::vector<Wait> waits;
  waits.reserve(count);
  int64_t now_ns = 0;
  while (waits.size() < count) {
    const size_t source = next_ns[0] <= next_ns[1] ? 0 : 1;
    if (next_ns[source] > now_ns) {
      Wait wait = IdleWait(next_ns[source] - now_ns);
      wait.ready = source == 0 ? kFirstSourceBit : kSecondSourceBit;
      waits.push_back(wait);
      now_ns = next_ns[source];
    } else if (!waits.empty()) {
      waits.back().busy_ns += kBusyNs;
    }
    now_ns += kBusyNs;
    next_ns[source] += Exponential(means_ns[source], random);
  }
  return waits;
}

}  // namespace ringside
