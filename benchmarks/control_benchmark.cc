// How long a client of a control socket waits for a call whose effect is there when it is answered:
// p50_us and p99_us of each, on one connection, of a machine whose guest reads with 8 requests in
// flight from a disk that takes 20 us for each.
//
//   control_benchmark
#include <algorithm>
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "absl/time/clock.h"
#include "api/api_server.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "http/http_client.h"

namespace ringside {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);

struct Call {
  const char* method;
  const char* target;
  const char* body;
};

// Calls in turns, so that each has something to do.
struct Case {
  const char* name;
  std::vector<Call> calls;
};
const Case kCases[] = {
    {"machine", {{"GET", "/machine", ""}}},
    {"statistics", {{"GET", "/statistics", ""}}},
    {"pause, resume", {{"POST", "/machine/pause", ""}, {"POST", "/machine/resume", ""}}},
    {"change-iothread",
     {{"PATCH", "/iothreads/a", R"({"price": 0.5})"},
      {"PATCH", "/iothreads/a", R"({"price": 1})"}}},
    {"move-queue",
     {{"PUT", "/devices/disk0/queues/0", R"({"iothread": "b"})"},
      {"PUT", "/devices/disk0/queues/0", R"({"iothread": "a"})"}}},
    {"set-trace",
     {{"PUT", "/devices/disk0/trace", R"({"on": true})"},
      {"PUT", "/devices/disk0/trace", R"({"on": false})"}}},
    {"add-iothread, remove-iothread",
     {{"POST", "/iothreads", R"({"id": "c"})"}, {"DELETE", "/iothreads/c", ""}}},
    {"explain-iothread", {{"GET", "/iothreads/a/explanation", ""}}},
};

// A machine that is driven.
class Driven {
 public:
  static absl::StatusOr<std::unique_ptr<Driven>> Start() {
    auto driven = std::make_unique<Driven>();
    MachineConfig config;
    config.kernel = RINGSIDE_GUEST_ELF;
    config.command_line = "rw=randread qd=8 runtime=600s wait=irq";
    config.memory = 64 << 20;
    config.disks = {{.backend = NullConfig{.size = 64 << 20, .latency_ns = 20'000}}};
    config.io_threads = {{.id = "a"}, {.id = "b"}};
    RINGSIDE_ASSIGN_OR_RETURN(driven->control_, MachineControl::Create({}));
    config.events = driven->control_.get();
    RINGSIDE_ASSIGN_OR_RETURN(driven->machine_, Machine::Create(config));
    const std::string path = "control_benchmark." + std::to_string(getpid()) + ".sock";
    RINGSIDE_ASSIGN_OR_RETURN(UnixListener listener, UnixListener::Bind(path));
    RINGSIDE_ASSIGN_OR_RETURN(driven->server_,
                              ApiServer::Start(std::move(listener), *driven->control_, nullptr));
    RINGSIDE_RETURN_IF_ERROR(driven->machine_->Start());
    driven->control_->Started(*driven->machine_);
    RINGSIDE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::Connect(path, kPatience));
    driven->client_ = std::make_unique<HttpClient>(std::move(client));
    return driven;
  }
  ~Driven() {
    if (machine_ != nullptr) machine_->Stop();
  }

  // Its time in ns.
  absl::StatusOr<int64_t> Make(const Call& call) {
    const int64_t begin = MonotonicNs();
    RINGSIDE_ASSIGN_OR_RETURN(
        const HttpResponse response,
        client_->Call(call.method, std::string("/ringside/v1") + call.target, call.body));
    const int64_t took = MonotonicNs() - begin;
    if (response.status == 200 || response.status == 204) return took;
    return absl::InternalError(response.body);
  }

 private:
  std::unique_ptr<MachineControl> control_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<ApiServer> server_;
  std::unique_ptr<HttpClient> client_;
};

double PercentileUs(std::vector<int64_t> times, size_t percent) {
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return static_cast<double>(times[std::min(times.size() * percent / 100, times.size() - 1)]) / 1e3;
}

void Control(benchmark::State& state, const Case& the_case) {
  auto driven = Driven::Start();
  if (!driven.ok()) return state.SkipWithError(driven.status().ToString().c_str());
  absl::SleepFor(absl::Milliseconds(50));  // it is at work
  std::vector<int64_t> times;
  for (auto _ : state) {
    absl::SleepFor(absl::Microseconds(500));
    const Call& call = the_case.calls[times.size() % the_case.calls.size()];
    const absl::StatusOr<int64_t> took = (*driven)->Make(call);
    if (!took.ok()) return state.SkipWithError(took.status().ToString().c_str());
    times.push_back(*took);
    state.SetIterationTime(static_cast<double>(*took) / 1e9);
  }
  state.counters["p50_us"] = PercentileUs(times, 50);
  state.counters["p99_us"] = PercentileUs(times, 99);
}

[[maybe_unused]] const bool registered = [] {
  for (const Case& the_case : kCases) {
    benchmark::RegisterBenchmark((std::string("Control/") + the_case.name).c_str(), Control,
                                 the_case)
        ->UseManualTime()
        ->Iterations(400)
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace ringside
