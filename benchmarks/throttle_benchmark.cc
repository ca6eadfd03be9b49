// What limits do to a guest that asks for more, by hand since each case takes ten seconds:
//
//   throttle_benchmark
//
// limit/...: a bare-metal guest reads 4 KiB blocks at depth 32 from a disk with one limit. `per_s`:
// the requests or bytes per second it got; `error_percent`: by how much that is not the limit;
// `spacing_p99`: of the times between two requests, the 99th percentile over the ideal;
// `cpu_percent`: of a processor, what the I/O thread took.
//
// beside/...: three disks on one I/O thread, two of them limited. `left`: of the third's reads, the
// share that it has of those with the two idle.
//
// group/...: three disks in a group, two on one I/O thread and one on another. `least` and `most`:
// the shares of the group's limit that its disks got, over a third.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "block/null_device.h"
#include "devices/virtio_blk.h"
#include "ringside/machine.h"
#include "tests/support/devices/blk_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/devices/virtio_blk_rig.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

constexpr uint64_t kDiskSize = 64 << 20;
constexpr absl::Duration kTime = absl::Seconds(10);

// Of a thread of this process, in seconds.
double CpuSecondsOf(const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, word;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (name.find(thread) == std::string::npos) continue;
    // The first number is nanoseconds on a processor.
    uint64_t ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    return static_cast<double>(ns) / 1e9;
  }
  return 0;
}

struct Limit {
  const char* name;
  ThrottleLimits limits;
  double per_second;
  bool counts_bytes;
};

constexpr Limit kLimits[] = {
    {"iops:500", {.iops_total = {.average = 500}}, 500, false},
    {"iops:5000", {.iops_total = {.average = 5000}}, 5000, false},
    {"iops:50000", {.iops_total = {.average = 50'000}}, 50'000, false},
    {"bps:1M", {.bps_total = {.average = 1 << 20}}, 1 << 20, true},
    {"bps:100M", {.bps_total = {.average = 100 << 20}}, 100 << 20, true},
};

// The 99th percentile of the times between two submissions, of the newest.
double SpacingP99Ns(const std::vector<QueueLatencies>& queues) {
  std::vector<int64_t> at_ns, gaps_ns;
  for (const QueueLatencies& queue : queues) {
    for (const LatencyRecord& record : queue.records) {
      at_ns.push_back(record.at(LatencyPoint::kSubmitted));
    }
  }
  std::ranges::sort(at_ns);
  for (size_t i = 1; i < at_ns.size(); ++i) gaps_ns.push_back(at_ns[i] - at_ns[i - 1]);
  if (gaps_ns.empty()) return 0;
  std::ranges::sort(gaps_ns);
  return static_cast<double>(gaps_ns[gaps_ns.size() * 99 / 100]);
}

uint64_t Done(Machine& machine, bool counts_bytes) {
  const MachineStatistics statistics = machine.Statistics();
  const QueueStatistics& queue = statistics.disks.at(0).queues.at(0);
  return counts_bytes ? queue.bytes_read : queue.reads;
}

void LimitedGuest(benchmark::State& state, const Limit& limit, bool on_tmpfs) {
  const testing::TempFile file(kDiskSize, "/dev/shm");
  const UniqueFd console(open("/dev/null", O_WRONLY | O_CLOEXEC));
  BlockBackend backend = NullConfig{.size = kDiskSize};
  if (on_tmpfs) backend = FileConfig{.path = file.path()};
  MachineConfig config;
  config.kernel = RINGSIDE_GUEST_ELF;
  config.command_line = "rw=randread qd=32 runtime=600s wait=irq";
  config.memory = 64 << 20;
  config.console.output_fd = console.get();
  config.disks = {{.backend = backend, .trace_latency = true, .throttle = limit.limits}};
  for (auto _ : state) {
    auto machine = Machine::Create(config);
    const absl::Status status = machine.ok() ? (*machine)->Start() : machine.status();
    if (!status.ok()) return state.SkipWithError(std::string(Message(status)).c_str());
    absl::SleepFor(absl::Milliseconds(500));
    const double cpu_before = CpuSecondsOf("io0");
    const uint64_t before = Done(**machine, limit.counts_bytes);
    const int64_t start_ns = MonotonicNs();
    absl::SleepFor(kTime);
    const uint64_t done = Done(**machine, limit.counts_bytes) - before;
    const double seconds = static_cast<double>(MonotonicNs() - start_ns) / 1e9;
    const double cpu_seconds = CpuSecondsOf("io0") - cpu_before;
    const double per_second = static_cast<double>(done) / seconds;
    const auto latencies = (*machine)->Latencies();
    if (!latencies.ok()) return state.SkipWithError("there are no latencies");
    const double ideal_ns = 1e9 / limit.per_second * (limit.counts_bytes ? 4096 : 1);
    state.counters["per_s"] = per_second;
    state.counters["error_percent"] = 100 * (per_second / limit.per_second - 1);
    state.counters["spacing_p99"] = SpacingP99Ns(*latencies) / ideal_ns;
    state.counters["cpu_percent"] = 100 * cpu_seconds / seconds;
  }
}

// A disk, and a driver that keeps it busy from the benchmark's thread.
class Disk {
 public:
  Disk(IoThread& io_thread, DiskThrottle& throttle)
      : device_(*null_, *memory_, {&io_thread}, {.throttle = &throttle}),
        rig_(*memory_, {.queue = {.size = 128, .event_idx = true}}) {
    const QueueSetup setup = rig_.Setup(0);
    device_.Activate(rig_.queue().features(), {&setup, 1}, events_);
  }
  ~Disk() {
    Event done;
    TaskOf task([&] { done.Notify(); });
    device_.Reset(task);
    done.Wait();
  }

  void Begin(int depth) {
    for (int i = 0; i < depth; ++i) rig_.driver.AddRead(0, 4096);
    rig_.Publish();
  }
  // Asks again for what was answered, if it is busy.
  void Serve() {
    bool any = false;
    while (rig_.queue().HasUsed()) {
      rig_.queue().TakeUsed();
      rig_.driver.AddRead(0, 4096);
      any = true;
      ++done;
    }
    if (any) rig_.Publish();
  }

  uint64_t done = 0;

 private:
  const std::unique_ptr<NullDevice> null_ = *NullDevice::Create({.size = kDiskSize});
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(4 << 20);
  testing::IgnoredVirtioEvents events_;
  VirtioBlk device_;
  testing::QueueRig rig_;
};

void ServeAll(std::vector<std::unique_ptr<Disk>>& disks, absl::Duration time) {
  const int64_t end_ns = MonotonicNs() + absl::ToInt64Nanoseconds(time);
  while (MonotonicNs() < end_ns) {
    for (int i = 0; i < 16; ++i) {
      for (const auto& disk : disks) disk->Serve();
    }
  }
}

std::unique_ptr<IoThread> StartThread(const char* name) {
  const IoThreadConfig config;
  return *IoThread::Start(name, IoThread::Waiter::kUring, config.tuning);
}

void Beside(benchmark::State& state, uint64_t iops) {
  const auto io_thread = StartThread("beside");
  std::vector<DiskThrottle> throttles(3);
  std::vector<double> shares;
  for (auto _ : state) {
    std::vector<std::unique_ptr<Disk>> disks;
    for (DiskThrottle& throttle : throttles) {
      disks.push_back(std::make_unique<Disk>(*io_thread, throttle));
    }
    throttles[0].Set({.iops_total = {.average = iops}});
    throttles[1].Set({.iops_total = {.average = iops}});
    disks[2]->Begin(32);
    ServeAll(disks, absl::Milliseconds(500));
    const uint64_t alone = std::exchange(disks[2]->done, 0);
    disks[0]->Begin(32);
    disks[1]->Begin(32);
    ServeAll(disks, absl::Milliseconds(500));
    shares.push_back(static_cast<double>(disks[2]->done) / static_cast<double>(alone));
  }
  std::ranges::sort(shares);
  state.counters["left"] = shares[shares.size() / 2];
}

void Group(benchmark::State& state, uint64_t iops) {
  const auto first = StartThread("first"), second = StartThread("second");
  for (auto _ : state) {
    ThrottleGroup group("g");
    group.Set({.iops_total = {.average = iops}});
    std::vector<std::unique_ptr<DiskThrottle>> throttles;
    std::vector<std::unique_ptr<Disk>> disks;
    for (IoThread* io_thread : {first.get(), first.get(), second.get()}) {
      throttles.push_back(std::make_unique<DiskThrottle>(&group));
      disks.push_back(std::make_unique<Disk>(*io_thread, *throttles.back()));
      disks.back()->Begin(32);
    }
    ServeAll(disks, kTime);
    std::vector<double> shares;
    for (const auto& disk : disks) {
      const double fair = static_cast<double>(iops) * absl::ToDoubleSeconds(kTime) / 3;
      shares.push_back(static_cast<double>(disk->done) / fair);
    }
    disks.clear();
    state.counters["least"] = *std::ranges::min_element(shares);
    state.counters["most"] = *std::ranges::max_element(shares);
  }
}

[[maybe_unused]] const bool registered = [] {
  for (const bool on_tmpfs : {false, true}) {
    for (const Limit& limit : kLimits) {
      const std::string name = std::string("limit/") + (on_tmpfs ? "tmpfs/" : "null/") + limit.name;
      benchmark::RegisterBenchmark(name.c_str(), LimitedGuest, limit, on_tmpfs)->Iterations(1);
    }
  }
  for (const uint64_t iops : {500, 5'000}) {
    const std::string text = "iops:" + std::to_string(iops);
    benchmark::RegisterBenchmark(("beside/" + text).c_str(), Beside, iops)->Iterations(9);
    benchmark::RegisterBenchmark(("group/" + text).c_str(), Group, iops)->Iterations(1);
  }
  return true;
}();

}  // namespace
}  // namespace ringside
