#include "benchmarks/signal_simulator/families.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "benchmarks/signal_simulator/adversaries.h"

namespace ringside {
namespace {

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

using Scenarios = std::vector<Scenario>;

Scenario OneJob(const GuestCosts& costs, int64_t service_ns, uint32_t depth) {
  Scenario scenario = {
      .name = absl::StrFormat("%s, disk %dus, depth %d", costs.name, service_ns / kUs, depth),
      .costs = costs,
      .jobs = {{.depth = depth}}};
  scenario.device.service_ns = service_ns;
  return scenario;
}

// One job on one processor, which is what limits it if the disk is fast.
Scenarios Serial() {
  Scenarios all;
  for (const GuestCosts& costs : {kCheap, kMid, kDear}) {
    for (const int64_t service_ns : {4 * kUs, 20 * kUs, 80 * kUs}) {
      for (const uint32_t depth : {1, 2, 4, 8, 32, 128}) {
        all.push_back(OneJob(costs, service_ns, depth));
      }
    }
  }
  return all;
}

// The same, but what a job begins with comes at once: nothing new is taken for a replacement.
Scenarios Bursts() {
  Scenarios all;
  for (const GuestCosts& costs : {kMid, kDear}) {
    for (const int64_t service_ns : {4 * kUs, 20 * kUs}) {
      for (const uint32_t depth : {4, 8, 32, 128}) {
        all.push_back(OneJob(costs, service_ns, depth));
        all.back().jobs[0].at_once = true;
      }
    }
  }
  return all;
}

// Each request has a processor to itself.
Scenarios Parallel() {
  Scenarios all;
  for (const GuestCosts& costs : {kMid, kDear}) {
    for (const int64_t think_ns : {20 * kUs, 100 * kUs}) {
      for (const uint32_t depth : {1, 4, 32}) {
        Scenario scenario = OneJob(costs, 20 * kUs, depth);
        scenario.name =
            absl::StrFormat("%s, thinks %dus, depth %d", costs.name, think_ns / kUs, depth);
        scenario.jobs[0].parallel = true;
        scenario.jobs[0].think_ns = think_ns;
        all.push_back(std::move(scenario));
      }
    }
  }
  return all;
}

// The program works on each completion before it submits the next request.
Scenarios Thinking() {
  Scenarios all;
  for (const int64_t think_ns : {5 * kUs, 20 * kUs}) {
    for (const uint32_t depth : {1, 8, 32}) {
      Scenario scenario = OneJob(kMid, 20 * kUs, depth);
      scenario.name = absl::StrFormat("mid, works %dus, depth %d", think_ns / kUs, depth);
      scenario.jobs[0].think_ns = think_ns;
      all.push_back(std::move(scenario));
    }
  }
  return all;
}

// Threads of several processors use the queue; one processor has its interrupts.
Scenarios Shared() {
  Scenarios all;
  for (const size_t vcpus : {2, 4}) {
    for (const uint32_t depth : {1, 8, 32}) {
      Scenario scenario = OneJob(kMid, 20 * kUs, depth);
      scenario.name = absl::StrFormat("mid, %d vCPUs, depth %d each", vcpus, depth);
      scenario.vcpus = vcpus;
      for (size_t i = 1; i < vcpus; ++i) scenario.jobs.push_back({.vcpu = i, .depth = depth});
      all.push_back(std::move(scenario));
    }
  }
  return all;
}

// The first job waits for each request; the other has many. Both are reported apart.
Scenarios Mixed() {
  Scenarios all;
  for (const GuestCosts& costs : {kMid, kDear}) {
    for (const size_t vcpus : {1, 2}) {
      Scenario scenario = OneJob(costs, 20 * kUs, 1);
      scenario.name = absl::StrFormat("%s, depth 1 beside 32, %s vCPU", costs.name,
                                      vcpus == 1 ? "same" : "other");
      scenario.vcpus = vcpus;
      scenario.jobs[0].preempts = true;
      scenario.jobs[0].vcpu = vcpus - 1;
      scenario.jobs.push_back({.depth = 32});
      all.push_back(std::move(scenario));
    }
  }
  return all;
}

Scenarios Foreign() {
  Scenarios all;
  for (const uint32_t depth : {1, 32}) {
    for (const int64_t for_ns : {50 * kUs, 500 * kUs}) {
      Scenario scenario = OneJob(kMid, 20 * kUs, depth);
      scenario.name = absl::StrFormat("mid, depth %d, %dus of each %dus", depth, for_ns / kUs,
                                      3 * for_ns / kUs);
      scenario.foreign.push_back({.every_ns = 3 * for_ns, .for_ns = for_ns});
      all.push_back(std::move(scenario));
    }
  }
  return all;
}

// The depth goes up and down; jobs end and begin.
Scenarios Changing() {
  Scenarios all;
  for (const int64_t step_ns : {500 * kUs, 5 * kMs}) {
    Scenario scenario = OneJob(kMid, 20 * kUs, 32);
    scenario.name = absl::StrFormat("mid, depth 1 to 64, each %dus", step_ns / kUs);
    uint32_t depths[] = {1, 8, 64, 0, 32, 2};
    for (int64_t at_ns = step_ns, i = 0; at_ns < 100 * kMs; at_ns += step_ns, ++i) {
      scenario.jobs[0].changes.push_back({.at_ns = at_ns, .depth = depths[i % 6]});
    }
    all.push_back(std::move(scenario));
  }
  return all;
}

// Kernels whose handler asks for the next interrupt at each entry.
Scenarios Rearming() {
  Scenarios all;
  for (const GuestCosts& costs : {kMid, kDear}) {
    for (const uint32_t depth : {1, 8, 32}) {
      Scenario scenario = OneJob(costs, 20 * kUs, depth);
      scenario.name = absl::StrFormat("%s, depth %d", costs.name, depth);
      scenario.rearms_early = true;
      all.push_back(std::move(scenario));
    }
  }
  return all;
}

// Disks that take one request after the other, or answer in the turn.
Scenarios Devices() {
  Scenarios all;
  for (const auto& [kind, name] :
       {std::pair{DeviceModel::Kind::kSerial, "serial"}, {DeviceModel::Kind::kInline, "inline"}}) {
    for (const int64_t service_ns : {1 * kUs, 5 * kUs}) {
      for (const uint32_t depth : {1, 8, 32}) {
        Scenario scenario = OneJob(kMid, service_ns, depth);
        scenario.name = absl::StrFormat("mid, %s %dus, depth %d", name, service_ns / kUs, depth);
        scenario.device.kind = kind;
        all.push_back(std::move(scenario));
      }
    }
  }
  return all;
}

// The I/O thread sleeps as soon as it has nothing to do.
Scenarios Sleeping() {
  Scenarios all;
  for (const int64_t service_ns : {20 * kUs, 80 * kUs}) {
    for (const uint32_t depth : {1, 4, 32}) {
      Scenario scenario = OneJob(kMid, service_ns, depth);
      scenario.thread.spin_ns = 0;
      all.push_back(std::move(scenario));
    }
  }
  return all;
}

struct NamedFamily {
  std::string name;
  Scenarios (*make)();
};

const std::vector<NamedFamily>& Families() {
  static const std::vector<NamedFamily> families = {
      {"serial", Serial},     {"bursts", Bursts},     {"parallel", Parallel},
      {"thinking", Thinking}, {"shared", Shared},     {"mixed", Mixed},
      {"foreign", Foreign},   {"changing", Changing}, {"rearming", Rearming},
      {"devices", Devices},   {"sleeping", Sleeping}, {kAdversaries, MakeAdversaries}};
  return families;
}

}  // namespace

const std::vector<std::string>& SignalFamilyNames() {
  static const auto& names = *[] {
    auto* all = new std::vector<std::string>;
    for (const NamedFamily& family : Families()) all->push_back(family.name);
    return all;
  }();
  return names;
}

std::vector<Scenario> MakeSignalFamily(const std::string& name) {
  const auto family = std::ranges::find(Families(), name, &NamedFamily::name);
  Scenarios scenarios = family->make();
  for (Scenario& scenario : scenarios) scenario.family = name;
  return scenarios;
}

}  // namespace ringside
