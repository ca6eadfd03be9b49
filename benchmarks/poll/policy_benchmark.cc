// The policies where waits are mixed: a slow and a fast disk on one thread, busy and idle phases,
// more threads than processors. The thread of the benchmark plays the guests, with one request in
// flight a disk; the disks are null disks with a latency.
//
//   iops      requests a second, of all disks
//   cpu       processors that the I/O threads took
//   us_an_io  their CPU time a request
//
// These are times of a whole machine: compare policies in one run only, with
// --benchmark_enable_random_interleaving=true --benchmark_repetitions=9.
#include <atomic>
#include <benchmark/benchmark.h>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/affinity.h"
#include "base/clock.h"
#include "base/fd.h"
#include "block/null_device.h"
#include "poll/io_thread.h"
#include "tests/support/cpus.h"
#include "tests/support/poll/run_on.h"

namespace ringside {
namespace {

using testing::AllowedCpus;
using testing::RunOn;

// A queue with one request, in the manner of a virtqueue.
class Disk final : public Source {
 public:
  Disk(IoThread& io_thread, int64_t latency_ns) : Disk(io_thread, latency_ns, *EventFd::Create()) {}
  ~Disk() override {
    while (!Idle()) std::this_thread::yield();
    RunOn(io_thread_, [this] {
      io_thread_.Detach(*this);
      channel_ = nullptr;
    });
  }

  // The guest's side.
  bool Idle() const { return done_.load(std::memory_order_acquire) == asked_.load(); }
  void Ask() {
    asked_.store(asked_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    // Pairs with the fence of Wait::GoToSleep, as a driver's does.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (wants_kick_.load(std::memory_order_relaxed)) wake_.Signal();
  }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }

  bool HasWork() override { return asked_.load(std::memory_order_acquire) != taken_; }
  void Run() override {
    ++taken_;
    io_thread_.RequestBegins();
    channel_->Submit(request_);
  }
  void EnableNotify() override { wants_kick_.store(true, std::memory_order_relaxed); }
  void DisableNotify() override { wants_kick_.store(false, std::memory_order_relaxed); }

 private:
  struct Request : BlockRequest {
    Disk* disk = nullptr;
  };

  Disk(IoThread& io_thread, int64_t latency_ns, EventFd wake)
      : Source(wake.fd()),
        wake_(std::move(wake)),
        io_thread_(io_thread),
        device_(*NullDevice::Create({.size = 4096, .latency_ns = latency_ns})) {
    request_.op = BlockOp::kRead;
    request_.disk = this;
    request_.done = [](BlockRequest& request) {
      Disk& disk = *static_cast<Request&>(request).disk;
      disk.io_thread_.RequestEnds();
      disk.done_.store(disk.taken_, std::memory_order_release);
    };
    RunOn(io_thread_, [this] {
      channel_ = *device_->Open(io_thread_);
      if (!io_thread_.Attach(*this, Phase::kTake).ok()) std::abort();
    });
  }

  const EventFd wake_;
  IoThread& io_thread_;
  const std::unique_ptr<NullDevice> device_;
  std::unique_ptr<BlockChannel> channel_;
  Request request_;
  uint64_t taken_ = 0;
  std::atomic<uint64_t> asked_{0};
  std::atomic<uint64_t> done_{0};
  std::atomic<bool> wants_kick_{true};
};

struct Scenario {
  const char* name;
  size_t threads;                     // each has all of the disks
  std::vector<int64_t> latencies_ns;  // of its disks
  int64_t busy_ns = INT64_MAX;        // then nothing is asked for `idle_ns`
  int64_t idle_ns = 0;
};

class Machine {
 public:
  Machine(const Scenario& scenario, PollKind poll) : cpus_(AllowedCpus()) {
    for (size_t i = 0; i < scenario.threads; ++i) {
      threads_.push_back(
          *IoThread::Start("io", IoThread::Waiter::kUring, {.poll = {.kind = poll}}));
      for (const int64_t latency_ns : scenario.latencies_ns) {
        disks_.push_back(std::make_unique<Disk>(*threads_.back(), latency_ns));
      }
    }
    if (threads_.size() > 1 || cpus_.size() == 1) return;
    // The scheduler often wakes a thread where its waker runs, and takes long to part the two.
    Pin({cpus_.front()});
    RunOn(*threads_.front(), [this] { Pin({cpus_.back()}); });
  }
  ~Machine() { Pin(cpus_); }

  void Drive(int64_t ns) {
    const int64_t end_ns = MonotonicNs() + ns;
    while (MonotonicNs() < end_ns) {
      for (const auto& disk : disks_) {
        if (disk->Idle()) disk->Ask();
      }
    }
  }

  uint64_t done() const {
    uint64_t sum = 0;
    for (const auto& disk : disks_) sum += disk->done();
    return sum;
  }
  int64_t cpu_ns() const {
    int64_t sum = 0;
    for (const auto& thread : threads_) RunOn(*thread, [&] { sum += ThreadCpuNs(); });
    return sum;
  }

 private:
  static void Pin(const std::vector<int>& cpus) {
    if (!PinThisThread(cpus).ok()) std::abort();
  }

  const std::vector<int> cpus_;
  std::vector<std::unique_ptr<IoThread>> threads_;
  std::vector<std::unique_ptr<Disk>> disks_;
};

void Run(benchmark::State& state, const Scenario& scenario, PollKind poll) {
  constexpr int64_t kWarmUpNs = 100'000'000;
  constexpr int64_t kRunNs = 400'000'000;
  Machine machine(scenario, poll);
  const auto drive = [&](int64_t ns) {
    const int64_t end_ns = MonotonicNs() + ns;
    for (int64_t left_ns = ns; left_ns > 0; left_ns = end_ns - MonotonicNs()) {
      machine.Drive(std::min(left_ns, scenario.busy_ns));
      std::this_thread::sleep_for(std::chrono::nanoseconds(scenario.idle_ns));
    }
  };
  drive(kWarmUpNs);
  uint64_t done = 0;
  int64_t cpu_ns = 0;
  int64_t elapsed_ns = 0;
  for ([[maybe_unused]] auto _ : state) {
    const uint64_t done_before = machine.done();
    const int64_t cpu_before_ns = machine.cpu_ns();
    const int64_t start_ns = MonotonicNs();
    drive(kRunNs);
    const int64_t ran_ns = MonotonicNs() - start_ns;
    cpu_ns += machine.cpu_ns() - cpu_before_ns;
    done += machine.done() - done_before;
    elapsed_ns += ran_ns;
    state.SetIterationTime(static_cast<double>(ran_ns) * 1e-9);
  }
  if (done == 0) state.SkipWithError("no request was done");
  state.counters["iops"] = static_cast<double>(done) / static_cast<double>(elapsed_ns) * 1e9;
  state.counters["cpu"] = static_cast<double>(cpu_ns) / static_cast<double>(elapsed_ns);
  state.counters["us_an_io"] = static_cast<double>(cpu_ns) / static_cast<double>(done) * 1e-3;
}

const bool kRegistered = [] {
  static const std::vector<Scenario> scenarios = {
      {.name = "slow_and_fast_disk", .threads = 1, .latencies_ns = {500'000, 10'000}},
      {.name = "busy_and_idle",
       .threads = 1,
       .latencies_ns = {10'000},
       .busy_ns = 5'000'000,
       .idle_ns = 20'000'000},
      {.name = "sixteen_threads", .threads = 16, .latencies_ns = {100'000}},
  };
  for (const Scenario& scenario : scenarios) {
    for (const PollKind poll : {PollKind::kNever, PollKind::kGrowShrink, PollKind::kWeighted,
                                PollKind::kCost, PollKind::kAlways}) {
      benchmark::RegisterBenchmark((std::string(scenario.name) + '/' + PollKindName(poll)).c_str(),
                                   [&scenario, poll](auto& state) { Run(state, scenario, poll); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace ringside
