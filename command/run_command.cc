#include "command/run_command.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <functional>
#include <poll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "command/end_signals.h"
#include "command/exit_codes.h"
#include "command/latency_file.h"
#include "command/metrics_file.h"
#include "command/poll_report.h"
#include "command/run_config.h"
#include "command/serial_port.h"
#include "command/standard_output.h"
#include "command/statistics_report.h"
#include "command/terminal.h"
#include "command/wait_file.h"
#include "vmm/host_probe.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

constexpr uint8_t kDetachKey = 0x1d;  // Ctrl-]
// A kernel that says nothing for this long may be on a host that interprets ring 0.
constexpr int kSilenceMs = 5000;

// The files that this run fills at its end: those that are asked for.
struct TraceFiles {
  std::optional<TraceFile> latencies;
  std::optional<TraceFile> waits;
};

absl::StatusOr<TraceFiles> OpenTraces(const RunOptions& options) {
  TraceFiles files;
  if (!options.trace_latency.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(files.latencies,
                              TraceFile::Open(kLatencyFile, options.trace_latency));
  }
  if (!options.poll_trace.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(files.waits, TraceFile::Open(kWaitFile, options.poll_trace));
  }
  return files;
}

// Null: none are wanted.
absl::StatusOr<std::unique_ptr<MetricsFile>> OpenMetrics(const RunOptions& options,
                                                         const Logger& log) {
  if (options.metrics.empty()) return nullptr;
  RINGSIDE_ASSIGN_OR_RETURN(const absl::Duration interval, MetricsInterval(options));
  return MetricsFile::Open(options.metrics, interval, log);
}

// What the guest says is written into none of the files that it runs from.
absl::Status CheckSerial(const SerialPort& serial, const MachineConfig& config,
                         const TraceFiles& traces) {
  RINGSIDE_RETURN_IF_ERROR(serial.CheckIsNot("the kernel", config.kernel));
  RINGSIDE_RETURN_IF_ERROR(serial.CheckIsNot("the initrd", config.initrd));
  for (const DiskConfig& disk : config.disks) {
    for (const std::string& file : disk.backend.Describe().files) {
      RINGSIDE_RETURN_IF_ERROR(serial.CheckIsNot("a disk", file));
    }
  }
  for (const auto* trace : {&traces.latencies, &traces.waits}) {
    if (*trace) RINGSIDE_RETURN_IF_ERROR(serial.CheckIsNot("a trace", (*trace)->path()));
  }
  return absl::OkStatus();
}

// Whether all could be written.
bool WriteTraces(const std::vector<QueueLatencies>& latencies,
                 const std::vector<IoThreadWaits>& waits, const TraceFiles& files,
                 const Logger& log) {
  bool written = true;
  const auto write = [&](const TraceFile& file, const std::function<void(std::ostream&)>& fill) {
    const absl::Status status = file.Write(fill);
    if (!status.ok()) log.Log(Severity::kError, "%s", Message(status));
    written &= status.ok();
  };
  if (files.latencies) {
    write(*files.latencies, [&](std::ostream& file) { WriteLatencies(latencies, file); });
  }
  if (files.waits) write(*files.waits, [&](std::ostream& file) { WriteWaits(waits, file); });
  return written;
}

void WarnIfRing0IsInterpreted(const Logger& log) {
  const absl::StatusOr<Kvm> kvm = Kvm::Open();
  if (!kvm.ok()) return;
  const absl::StatusOr<double> ns = MeasureRing0(*kvm);
  if (!ns.ok() || *ns < kRing0NativeNs) return;
  log.Log(
      Severity::kWarning,
      "this host's KVM interprets kernel mode (%.0f ns per instruction): a Linux guest will not "
      "finish booting here; run it in the lab (tools/lab), see 'ringside doctor'",
      *ns);
}

// Returns the signal that asked to end, or 0 when the machine ended by itself.
int WaitForEnd(Machine& machine, const EndSignals& signals, const Logger& log) {
  std::array<pollfd, 2> fds = {pollfd{machine.end_fd(), POLLIN, 0},
                               pollfd{signals.fd(), POLLIN, 0}};
  int timeout = kSilenceMs;
  while (true) {
    const int ready = poll(fds.data(), fds.size(), timeout);
    if (ready == 0) {
      timeout = -1;
      if (!machine.console_spoken()) WarnIfRing0IsInterpreted(log);
      continue;
    }
    if ((fds[0].revents & POLLIN) != 0) return 0;
    if ((fds[1].revents & POLLIN) != 0) {
      if (const int signal = signals.Take(); signal != 0) return signal;
    }
  }
}

// Bytes of this process that are resident and not guest memory (which is shared memory).
uint64_t ResidentBeyondGuest() {
  std::ifstream status("/proc/self/status");
  uint64_t total = 0;
  for (std::string key; status >> key;) {
    uint64_t kib = 0;
    if ((key == "RssAnon:" || key == "RssFile:") && status >> kib) total += kib * 1024;
  }
  return total;
}

void PrintTiming(int64_t start_ns, int64_t first_run_ns, uint64_t resident) {
  std::fprintf(stderr,
               "timing: first KVM_RUN %.3f ms after main, at monotonic %lld ns; resident beyond "
               "guest memory %.2f MiB\n",
               static_cast<double>(first_run_ns - start_ns) / 1e6,
               static_cast<long long>(first_run_ns), static_cast<double>(resident) / (1 << 20));
}

// On stderr, as stdout is the guest's console.
void PrintStatistics(const MachineStatistics& statistics, const std::string& format) {
  const std::string text =
      format == "json" ? StatisticsJsonText(statistics) + '\n' : StatisticsTable(statistics);
  std::fputs(text.c_str(), stderr);
}

void PrintExplanations(const MachineStatistics& statistics,
                       const std::vector<IoThreadExplanation>& explanations,
                       const std::string& format) {
  const std::string text = format == "json" ? PollReportJson(statistics, explanations)
                                            : PollReportText(statistics, explanations);
  std::fputs(text.c_str(), stderr);
}

// To open a slow server may take a while: a signal ends it and the process, whose terminal and
// files are as they were.
absl::StatusOr<std::unique_ptr<Machine>> CreateMachine(const MachineConfig& config,
                                                       const EndSignals& signals) {
  absl::StatusOr<std::unique_ptr<Machine>> machine;
  RINGSIDE_RETURN_IF_ERROR(signals.Attend([&] { machine = Machine::Create(config); },
                                          [&](int signal) { signals.Deliver(signal); }));
  return machine;
}

// What is left of a run.
struct Results {
  MachineEnd end;
  int64_t first_run_ns = 0;
  MachineStatistics statistics;
  std::vector<IoThreadExplanation> explanations;
  std::vector<QueueLatencies> latencies;
  std::vector<IoThreadWaits> waits;
};

Results EndMachine(std::unique_ptr<Machine> machine, const RunOptions& options,
                   MetricsFile* metrics) {
  Results results;
  results.end = machine->Wait();
  results.first_run_ns = machine->first_run_ns();
  results.statistics = machine->Statistics();
  if (!options.explain.empty()) results.explanations = *machine->Explain();
  results.latencies = *machine->Latencies();
  results.waits = *machine->internals().Waits();
  if (metrics != nullptr) metrics->End();
  return results;
}

int PrintConfig(const MachineOptions& options, LogSink& log) {
  const absl::StatusOr<Json> json = PrintOptions(options);
  if (!json.ok()) return Finish(json.status(), log);
  return Finish(WriteToStdout(json->dump(2) + '\n'), log);
}

}  // namespace

int RunCommand(const RunOptions& options, int64_t start_ns, LogSink& sink, LineWriter& errors,
               RunCompanion* companion) {
  const Logger log(&sink);
  absl::StatusOr<MachineOptions> machine_options = MakeMachineOptions(options);
  if (!machine_options.ok()) return Finish(machine_options.status(), sink);
  if (options.print_config) return PrintConfig(*machine_options, sink);
  MachineConfig* const config = &machine_options->machine;
  absl::StatusOr<SerialPort> serial = OpenSerial(machine_options->serial);
  if (!serial.ok()) return Finish(serial.status(), sink);
  absl::StatusOr<TraceFiles> traces = OpenTraces(options);
  if (!traces.ok()) return Finish(traces.status(), sink);
  if (const absl::Status other = CheckSerial(*serial, *config, *traces); !other.ok()) {
    return Finish(other, sink);
  }
  absl::StatusOr<std::unique_ptr<MetricsFile>> metrics_file = OpenMetrics(options, log);
  if (!metrics_file.ok()) return Finish(metrics_file.status(), sink);
  const EndSignals signals;  // what came before has ended the process, with nothing to restore
  config->log = &sink;
  config->console = serial->config;
  const bool on_terminal = serial->on_stdio && isatty(STDIN_FILENO);
  const bool is_ours = on_terminal && RawTerminal::IsOurs(STDIN_FILENO);
  if (on_terminal) {
    if (!is_ours) config->console.input_fd = -1;  // in the background
    config->console.detach_key = kDetachKey;
  }

  absl::StatusOr<std::unique_ptr<Machine>> machine = CreateMachine(*config, signals);
  if (!machine.ok()) return Finish(machine.status(), sink);
  if (const absl::Status begun = serial->Begin(); !begun.ok()) return Finish(begun, sink);
  std::unique_ptr<RawTerminal> terminal;
  if (is_ours) terminal = RawTerminal::Enter(STDIN_FILENO);
  if (absl::Status status = (*machine)->Start(); !status.ok()) return Finish(status, sink);
  // It looks at the machine, and so ends before it.
  const std::unique_ptr<MetricsFile> metrics = *std::move(metrics_file);
  if (metrics != nullptr) {
    if (absl::Status status = metrics->Begin(**machine); !status.ok()) return Finish(status, sink);
  }
  const uint64_t resident = options.timing ? ResidentBeyondGuest() : 0;

  if (companion != nullptr) companion->Begin(**machine);
  const int signal = WaitForEnd(**machine, signals, log);
  if (signal != 0) (*machine)->Stop();
  if (companion != nullptr) companion->End();
  // The machine's end may take as long as its storage does.
  terminal.reset();
  Results results;
  const absl::Status ended =
      signals.Attend([&] { results = EndMachine(*std::move(machine), options, metrics.get()); },
                     [&](int another) { signals.Deliver(another); });
  if (!ended.ok()) return Finish(ended, sink);
  signals.Release();  // who does not read what is printed now is not waited for

  if (!results.end.detail.empty()) log.Log(Severity::kError, "%s", results.end.detail);
  if (results.end.kind == EndKind::kCrash) WarnIfRing0IsInterpreted(log);
  errors.Flush();  // what is printed comes after what was logged
  if (options.timing) PrintTiming(start_ns, results.first_run_ns, resident);
  if (!options.stats.empty()) PrintStatistics(results.statistics, options.stats);
  if (!options.explain.empty()) {
    PrintExplanations(results.statistics, results.explanations, options.explain);
  }
  const bool traced = WriteTraces(results.latencies, results.waits, *traces, log);
  errors.Flush();
  if (signal != 0) signals.Deliver(signal);
  return traced ? ExitCodeOf(results.end.kind) : kExitFailure;
}

}  // namespace ringside
