// How long a machine takes to stand still, and to go on: the time of an iteration is that from
// Pause to paused; resume_p50_us is that from Resume to the first request that is completed after
// it (of a machine without requests, to the return of Resume), restore_p50_us that of a
// SaveDevices and a RestoreDevices, which makes all devices anew.
//
//   pause_benchmark
//
// The guest runs a job of the given depth, or computes, or is halted, and is left alone for some
// milliseconds between two pauses. The disk is a file in memory, or one that moves no bytes and
// takes 100 us for each request: what storage takes is part of a pause.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "tests/support/temp_file.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

constexpr uint64_t kDiskSize = 64 << 20;
constexpr absl::Duration kPatience = absl::Seconds(10);

struct Case {
  const char* name;
  const char* command_line;
  bool has_job;
  bool restore = false;
};
constexpr Case kCases[] = {
    {"halted", "end=halt", false},
    {"computing", "end=spin", false},
    {"tmpfs/qd:1", "rw=randrw qd=1 runtime=600s wait=irq", true},
    {"tmpfs/qd:32", "rw=randrw qd=32 runtime=600s wait=irq", true},
    {"delayed/qd:32", "rw=randrw qd=32 runtime=600s wait=irq", true},
    {"halted/restore", "end=halt", false, true},
    {"tmpfs/qd:32/restore", "rw=randrw qd=32 runtime=600s wait=irq", true, true},
};

MachineConfig Configure(const Case& the_case, const testing::TempFile& file, int console) {
  MachineConfig config;
  config.kernel = RINGSIDE_GUEST_ELF;
  config.command_line = the_case.command_line;
  config.memory = 64 << 20;
  config.console.output_fd = console;
  if (std::string_view(the_case.name).starts_with("delayed")) {
    config.disks = {{.backend = NullConfig{.size = kDiskSize, .latency_ns = 100'000}}};
  } else {
    config.disks = {{.backend = FileConfig{.path = file.path(), .cache = CacheMode::kNone}}};
  }
  return config;
}

uint64_t Requests(Machine& machine) {
  uint64_t sum = 0;
  const MachineStatistics statistics = machine.Statistics();
  for (const QueueStatistics& queue : statistics.disks.at(0).queues) sum += queue.requests();
  return sum;
}

// Whether it comes in time: some more requests.
bool AwaitRequests(Machine& machine, uint64_t more_than) {
  const int64_t deadline = MonotonicNs() + absl::ToInt64Nanoseconds(kPatience);
  while (Requests(machine) <= more_than) {
    if (MonotonicNs() > deadline) return false;
    absl::SleepFor(absl::Microseconds(10));  // the processor is for the guest
  }
  return true;
}

double Percentile(std::vector<int64_t> times, size_t percent) {
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return static_cast<double>(times[std::min(times.size() * percent / 100, times.size() - 1)]) / 1e3;
}

struct Times {
  std::vector<int64_t> pauses, resumes, restores;  // ns
};

// One pause; the empty string, or what went wrong.
std::string PauseOnce(Machine& machine, const Case& the_case, Times& times) {
  const int64_t begin = MonotonicNs();
  if (const absl::Status status = machine.Pause(kPatience); !status.ok()) {
    return std::string(Message(status));
  }
  const int64_t paused = MonotonicNs();
  times.pauses.push_back(paused - begin);
  if (the_case.restore) {
    const absl::StatusOr<DevicesState> state = machine.internals().SaveDevices();
    const absl::Status status =
        state.ok() ? machine.internals().RestoreDevices(*state) : state.status();
    if (!status.ok()) return std::string(Message(status));
    times.restores.push_back(MonotonicNs() - paused);
  }
  const uint64_t requests = Requests(machine);
  const int64_t resume = MonotonicNs();
  machine.Resume();
  if (the_case.has_job && !AwaitRequests(machine, requests)) return "no request after a resume";
  times.resumes.push_back(MonotonicNs() - resume);
  return "";
}

void Pause(benchmark::State& state, const Case& the_case) {
  const testing::TempFile file(kDiskSize, "/dev/shm");
  const UniqueFd console(open("/dev/null", O_WRONLY | O_CLOEXEC));
  auto machine = Machine::Create(Configure(the_case, file, console.get()));
  absl::Status status = machine.ok() ? (*machine)->Start() : machine.status();
  if (!status.ok()) return state.SkipWithError(std::string(Message(status)).c_str());
  if (the_case.has_job) AwaitRequests(**machine, 1000);
  absl::SleepFor(absl::Milliseconds(50));  // it has booted, or begun

  Times times;
  for (auto _ : state) {
    // Of another length each time: a pause meets whatever the guest is about.
    absl::SleepFor(absl::Microseconds(2000 + 37 * times.pauses.size() % 1000));
    const std::string wrong = PauseOnce(**machine, the_case, times);
    if (!wrong.empty()) return state.SkipWithError(wrong.c_str());
    state.SetIterationTime(static_cast<double>(times.pauses.back()) / 1e9);
  }
  state.counters["pause_p50_us"] = Percentile(times.pauses, 50);
  state.counters["pause_p99_us"] = Percentile(times.pauses, 99);
  state.counters["resume_p50_us"] = Percentile(times.resumes, 50);
  state.counters["resume_p99_us"] = Percentile(times.resumes, 99);
  if (the_case.restore) state.counters["restore_p50_us"] = Percentile(times.restores, 50);
}

[[maybe_unused]] const bool registered = [] {
  for (const Case& the_case : kCases) {
    benchmark::RegisterBenchmark((std::string("Pause/") + the_case.name).c_str(), Pause, the_case)
        ->UseManualTime()
        ->Iterations(300)
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace ringside
