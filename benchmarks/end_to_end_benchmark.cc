// The whole way of an I/O: boots the measuring guest in this process through the public API, one
// job a case, on a null disk, a file in memory and a file on a disk. The case's last word is how
// the I/O thread waits (--iothread poll=), the one before how the guest does. Interrupts are raised
// with the completions (signal=early), lest what an I/O costs depend on what was learned meanwhile.
//
// Rate and latencies are the guest's own, of its whole job. What an I/O cost (kicks, exits,
// interrupts, system calls, CPU) is counted by the machine between two moments well within the job,
// over the requests that the device took between them; so neither booting nor the printing of the
// result, which is thousands of exits, is in it. `exits` are returns of KVM_RUN, `kernel_exits` all
// that KVM counts, where it does. CPU is that of this process and so holds the guest's own: a vCPU
// that polls for completions is never idle.
//
// With RINGSIDE_NVME_SOCKET in the environment also namespace 1 of the controller that is served
// there by vfio-user (nvme_user/...), such as SPDK's; it needs a processor of its own.
//
// A case that did not measure fails: no I/O, errors, another engine than the one that was asked
// for, or a machine so busy that the two moments were missed.
#include <array>
#include <benchmark/benchmark.h>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"
#include "tests/support/temp_file.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

using testing::TempFile;

constexpr absl::Duration kRuntime = absl::Seconds(1);
constexpr absl::Duration kWarmup = absl::Milliseconds(50);
constexpr absl::Duration kPatience = absl::Seconds(20);
constexpr uint64_t kDiskSize = 256 << 20;
constexpr char kNvmeUser[] = "nvme_user";
constexpr char kSocketVariable[] = "RINGSIDE_NVME_SOCKET";

struct Case {
  const char* target;
  const char* rw;
  int depth;
  const char* wait;
  PollKind poll;
};

// Written in full, so that no read is answered from a hole.
std::unique_ptr<TempFile> MakeFile(const char* directory) {
  auto file = std::make_unique<TempFile>(kDiskSize, directory);
  std::string chunk(1 << 20, '\0');
  uint64_t state = 1;
  for (uint64_t at = 0; at < kDiskSize; at += chunk.size()) {
    for (char& byte : chunk) {
      state = state * 6364136223846793005 + 1442695040888963407;
      byte = static_cast<char>(state >> 56);
    }
    file->Fill(at, chunk);
  }
  fsync(file->fd());
  return file;
}

// Where the bytes are: each target with the engine that suits it best.
DiskConfig MakeDisk(const std::string& target) {
  if (target == "null") return {.backend = NullConfig{.size = kDiskSize}};
  if (target == "tmpfs") {
    static const auto file = MakeFile("/dev/shm");
    return {.backend = FileConfig{
                .path = file->path(), .cache = CacheMode::kNone, .aio = Engine::kNative}};
  }
  if (target == kNvmeUser) return {.backend = NvmeConfig{.socket = getenv(kSocketVariable)}};
  static const auto file = MakeFile(RINGSIDE_BENCHMARK_DIRECTORY);
  return {.backend =
              FileConfig{.path = file->path(), .cache = CacheMode::kNone, .aio = Engine::kIoUring}};
}

std::string ExpectedEngine(const DiskConfig& disk) {
  if (disk.backend.As<NvmeConfig>() != nullptr) return "nvme";
  const auto* file = disk.backend.As<FileConfig>();
  return file != nullptr ? EngineName(file->aio) : "null";
}

class Console {
 public:
  Console() : output_(memfd_create("console", MFD_CLOEXEC)) {}
  int fd() const { return output_.get(); }
  std::string Text() const {
    std::string text(static_cast<size_t>(lseek(fd(), 0, SEEK_END)), '\0');
    text.resize(
        static_cast<size_t>(std::max<ssize_t>(pread(fd(), text.data(), text.size(), 0), 0)));
    return text;
  }
  // The line of the job, from the moment on that it is over.
  std::string JobLine() const {
    const std::string text = Text();
    const size_t begin = text.find("\n{");
    if (begin == std::string::npos) return "";
    return text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
  }

 private:
  UniqueFd output_;
};

// Counts up to a moment.
struct Sample {
  uint64_t requests = 0, kicks = 0, interrupts = 0, exits = 0, kernel_exits = 0, enters = 0;
  int64_t cpu_ns = 0;
};

Sample TakeSample(Machine& machine) {
  const MachineStatistics statistics = machine.Statistics();
  Sample sample;
  for (const QueueStatistics& queue : statistics.disks.at(0).queues) {
    sample.requests += queue.requests();
    sample.kicks += queue.kicks;
    sample.interrupts += queue.interrupts;
  }
  for (const VcpuStatistics& vcpu : statistics.vcpus) {
    for (const ExitCount& exit : vcpu.exits) sample.exits += exit.count;
    for (const KernelCount& count : vcpu.kernel_exits) {
      if (std::string_view(count.name) == "exits") sample.kernel_exits += count.count;
    }
  }
  for (const IoThreadStatistics& thread : statistics.io_threads) {
    sample.enters += thread.io_uring_enters;
  }
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  sample.cpu_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  return sample;
}

struct Result {
  nlohmann::json job;  // the guest's line
  Sample begin, end;   // within the job
};

absl::Status WaitForRequests(Machine& machine) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (TakeSample(machine).requests == 0) {
    if (absl::Now() > deadline) return absl::DeadlineExceededError("the guest does no I/O");
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::OkStatus();
}

absl::Status CheckJob(const nlohmann::json& job) {
  if (job.is_discarded()) return absl::InternalError("the guest printed no result");
  if (job.contains("error")) return absl::InternalError(job["error"].get<std::string>());
  if (job["ios"] == 0) return absl::InternalError("no I/O was done");
  if (job["errors"] != 0 || job["mismatches"] != 0) {
    return absl::InternalError("errors or wrong data: " + job.dump());
  }
  return absl::OkStatus();
}

absl::StatusOr<Result> Run(const Case& parameters) {
  const Console console;
  MachineConfig config;
  config.kernel = RINGSIDE_GUEST_ELF;
  config.memory = 256 << 20;
  config.console.output_fd = console.fd();
  config.disks = {MakeDisk(parameters.target)};
  config.io_threads = {
      {.tuning = {.poll = {.kind = parameters.poll}, .signalling = Signalling::kEarly}}};
  config.command_line = absl::StrFormat(
      "rw=%s bs=4k qd=%d wait=%s runtime=%dms warmup=%dms", parameters.rw, parameters.depth,
      parameters.wait, absl::ToInt64Milliseconds(kRuntime), absl::ToInt64Milliseconds(kWarmup));
  RINGSIDE_ASSIGN_OR_RETURN(const auto machine, Machine::Create(config));
  RINGSIDE_RETURN_IF_ERROR(machine->Start());

  Result result;
  RINGSIDE_RETURN_IF_ERROR(WaitForRequests(*machine));
  absl::SleepFor(kWarmup + 0.1 * kRuntime);
  result.begin = TakeSample(*machine);
  absl::SleepFor(0.7 * kRuntime);
  result.end = TakeSample(*machine);
  if (!console.JobLine().empty()) {
    return absl::UnavailableError("the job was over too soon; this machine is too busy to measure");
  }

  const MachineEnd end = machine->Wait();
  if (end.kind != EndKind::kPowerOff) return absl::InternalError("the guest ended: " + end.detail);
  if (console.Text().find("FAIL") != std::string::npos) {
    return absl::InternalError(console.Text());
  }
  const std::string engine = machine->Statistics().disks.at(0).engine;
  if (engine != ExpectedEngine(config.disks[0])) {
    return absl::InternalError("the disk fell back to aio=" + engine);
  }
  result.job = nlohmann::json::parse(console.JobLine(), nullptr, /*allow_exceptions=*/false);
  RINGSIDE_RETURN_IF_ERROR(CheckJob(result.job));
  if (result.end.requests == result.begin.requests) {
    return absl::InternalError("no I/O was done while the machine was watched");
  }
  return result;
}

void Report(benchmark::State& state, const Result& result) {
  const auto number = [](const nlohmann::json& value) { return value.get<double>(); };
  const double ios = number(result.job["ios"]);
  const double seconds = number(result.job["runtime_ns"]) / 1e9;
  state.SetIterationTime(seconds / ios);  // so that the time is that of an I/O
  state.counters["IOPS"] = ios / seconds;
  for (const char* quantile : {"p50", "p99", "p999"}) {
    state.counters[std::string(quantile) + "_ns"] = number(result.job["latency_ns"][quantile]);
  }
  const Sample &begin = result.begin, &end = result.end;
  const auto each = [&](auto Sample::* member) {
    return static_cast<double>(end.*member - begin.*member) /
           static_cast<double>(end.requests - begin.requests);
  };
  state.counters["kicks"] = each(&Sample::kicks);
  state.counters["exits"] = each(&Sample::exits);
  if (end.kernel_exits > 0) state.counters["kernel_exits"] = each(&Sample::kernel_exits);
  state.counters["interrupts"] = each(&Sample::interrupts);
  state.counters["io_uring_enters"] = each(&Sample::enters);
  state.counters["cpu_ns"] = each(&Sample::cpu_ns);
}

void EndToEnd(benchmark::State& state, const Case& parameters) {
  for (auto _ : state) {
    const absl::StatusOr<Result> result = Run(parameters);
    if (!result.ok()) {
      state.SkipWithError(std::string(Message(result.status())).c_str());
      return;
    }
    Report(state, *result);
  }
}

// A boot is an iteration, and one is a measurement: its length is the job's.
bool RegisterAll() {
  std::vector<const char*> targets = {"null", "tmpfs", "disk"};
  if (getenv(kSocketVariable) != nullptr) targets.push_back(kNvmeUser);
  for (const char* target : targets) {
    for (const char* rw : {"randread", "randwrite"}) {
      for (const int depth : {1, 32, 64}) {
        for (const char* wait : {"poll", "irq"}) {
          for (const PollKind poll : {PollKind::kNever, PollKind::kAlways}) {
            const std::string name =
                absl::StrFormat("%s/%s/qd:%d/%s/%s", target, rw, depth, wait, PollKindName(poll));
            benchmark::RegisterBenchmark(name.c_str(), EndToEnd,
                                         Case{target, rw, depth, wait, poll})
                ->UseManualTime()
                ->Iterations(1);
          }
        }
      }
    }
  }
  return true;
}
[[maybe_unused]] const bool registered = RegisterAll();

}  // namespace
}  // namespace ringside
