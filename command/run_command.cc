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
#include "command/control_socket.h"
#include "command/end_signals.h"
#include "command/event_file.h"
#include "command/exit_codes.h"
#include "command/forks_command.h"
#include "command/metrics_file.h"
#include "command/passt.h"
#include "command/poll_report.h"
#include "command/run_config.h"
#include "command/serial_port.h"
#include "command/standard_output.h"
#include "command/statistics_report.h"
#include "command/terminal.h"
#include "command/trace_files.h"
#include "vmm/host_probe.h"
#include "vmm/json_text.h"
#include "vmm/machine.h"

namespace ringside {
namespace {

constexpr uint8_t kDetachKey = 0x1d;  // Ctrl-]
// A kernel that says nothing for this long may be on a host that interprets ring 0.
constexpr int kSilenceMs = 5000;

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
  RINGSIDE_RETURN_IF_ERROR(serial.CheckIsNoneOf(config, config.restore));
  for (const auto* trace : {&traces.latencies, &traces.waits, &traces.signals}) {
    if (*trace) RINGSIDE_RETURN_IF_ERROR(serial.CheckIsNot("a trace", (*trace)->path()));
  }
  if (traces.events == nullptr) return absl::OkStatus();
  return serial.CheckIsNot("the file of events", traces.events->path());
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
      format == "json" ? StatisticsJsonText(statistics) : StatisticsTable(statistics);
  std::fputs(text.c_str(), stderr);
}

void PrintExplanations(const MachineStatistics& statistics,
                       const std::vector<IoThreadExplanation>& explanations,
                       const std::vector<int>& memory_nodes, const std::string& format) {
  const std::vector<DiskPlacement> placements = PlacementsOf(statistics, memory_nodes);
  const std::string text =
      format == "json" ? PollReportJson(statistics, explanations, placements)
                       : PollReportText(statistics, explanations) + PlacementText(placements);
  std::fputs(text.c_str(), stderr);
}

// A guest, and what the command has opened for it. What stands first goes last.
struct Guest {
  std::vector<Passt> passts;
  SerialPort serial;
  bool on_our_terminal = false;
  std::unique_ptr<Machine> machine;
  std::unique_ptr<RawTerminal> terminal;
};

// What a run has beside its machine.
struct Surroundings {
  const TraceFiles& traces;
  const EndSignals& signals;
  LogSink& log;
  ControlSocket* socket;  // null: none is asked for
};

absl::StatusOr<Guest> MakeGuest(MachineOptions options, const Surroundings& around) {
  Guest guest;
  MachineConfig& config = options.machine;
  RINGSIDE_ASSIGN_OR_RETURN(guest.serial, OpenSerial(options.serial));
  RINGSIDE_RETURN_IF_ERROR(CheckSerial(guest.serial, config, around.traces));
  config.log = &around.log;
  config.events = around.traces.events.get();
  if (around.socket != nullptr) {
    around.socket->control().PassOn(config.events);
    config.events = &around.socket->control();
  }
  config.console = guest.serial.config;
  const bool on_terminal = guest.serial.on_stdio && isatty(STDIN_FILENO) != 0;
  guest.on_our_terminal = on_terminal && RawTerminal::IsOurs(STDIN_FILENO);
  if (on_terminal) {
    if (!guest.on_our_terminal) config.console.input_fd = -1;  // in the background
    config.console.detach_key = kDetachKey;
  }
  RINGSIDE_ASSIGN_OR_RETURN(guest.passts, Passt::StartFor(config));
  RINGSIDE_ASSIGN_OR_RETURN(guest.machine, Machine::Create(config));
  for (const Passt& passt : guest.passts) RINGSIDE_RETURN_IF_ERROR(passt.CheckRuns());
  if (around.traces.signals) guest.machine->internals().RecordSignals();
  return guest;
}

// To open a slow server may take a while: a signal ends it and the process, whose terminal and
// files are as they were.
absl::StatusOr<Guest> MakeGuestUnlessSignalled(const MachineOptions& options,
                                               const Surroundings& around) {
  const auto deliver = [&around](int signal) {
    if (around.socket != nullptr) around.socket->End();
    around.signals.Deliver(signal);
  };
  absl::StatusOr<Guest> guest;
  around.signals.Attend([&] { guest = MakeGuest(options, around); }, deliver);
  return guest;
}

absl::Status StartGuest(Guest& guest) {
  RINGSIDE_RETURN_IF_ERROR(guest.serial.Begin());
  if (guest.on_our_terminal) guest.terminal = RawTerminal::Enter(STDIN_FILENO);
  return guest.machine->Start();
}

// `ringside run`: clients are served last, so that the guest does not wait for that; but no guest
// begins whose socket cannot be made.
absl::StatusOr<Guest> Run(const MachineOptions& options, const Surroundings& around) {
  if (around.socket != nullptr) RINGSIDE_RETURN_IF_ERROR(around.socket->Bind());
  RINGSIDE_ASSIGN_OR_RETURN(Guest guest, MakeGuestUnlessSignalled(options, around));
  RINGSIDE_RETURN_IF_ERROR(StartGuest(guest));
  if (around.socket != nullptr) {
    around.socket->control().Started(*guest.machine);
    RINGSIDE_RETURN_IF_ERROR(around.socket->Serve());
  }
  return guest;
}

// `ringside serve`: clients have the machine made, until one could be. Null: they want none.
absl::StatusOr<Guest> Serve(const RunOptions& options, const Surroundings& around) {
  MachineControl& control = around.socket->control();
  RINGSIDE_RETURN_IF_ERROR(around.socket->Bind());
  RINGSIDE_RETURN_IF_ERROR(around.socket->Serve());
  std::array<pollfd, 3> fds = {pollfd{control.start_fd(), POLLIN, 0},
                               pollfd{control.stop_fd(), POLLIN, 0},
                               pollfd{around.signals.fd(), POLLIN, 0}};
  while (true) {
    poll(fds.data(), fds.size(), -1);
    if (const int signal = around.signals.Take(); signal != 0) {
      around.socket->End();
      around.signals.Deliver(signal);
    }
    if ((fds[1].revents & POLLIN) != 0) return Guest();
    std::optional<MachineOptions> wanted = control.TakeStart();
    if (!wanted) continue;
    absl::StatusOr<Guest> guest = Guest();
    if (const absl::Status lacks = CompleteOptions(options, *wanted); !lacks.ok()) {
      guest = lacks;
    } else {
      guest = MakeGuestUnlessSignalled(*wanted, around);
    }
    if (!guest.ok()) {
      control.NotStarted(guest.status());
      continue;
    }
    absl::Status started = StartGuest(*guest);
    if (!started.ok()) {
      control.NotStarted(started);
      return started;
    }
    control.Started(*guest->machine);
    return guest;
  }
}

// What is left of a run.
struct Results {
  MachineEnd end;
  absl::Status recorded;  // the working set, if that is asked for
  int64_t first_run_ns = 0;
  uint64_t resident_at_start = 0;
  MachineStatistics statistics;
  std::vector<IoThreadExplanation> explanations;
  std::vector<int> memory_nodes;
  Traced traced;
};

Results EndMachine(std::unique_ptr<Machine> machine, const RunOptions& options,
                   ControlSocket* socket, MetricsFile* metrics) {
  Results results;
  results.end = machine->Wait();
  if (options.record_working_set) results.recorded = machine->RecordWorkingSet();
  // Clients may ask until now; what they have asked for is over with the machine.
  if (socket != nullptr) socket->End();
  results.first_run_ns = machine->first_run_ns();
  results.statistics = machine->Statistics();
  if (!options.explain.empty()) results.explanations = *machine->Explain();
  results.memory_nodes = machine->internals().config().memory_nodes;
  results.traced = {
      .latencies = *machine->Latencies(), .waits = *machine->internals().Waits(), .signals = {}};
  if (!options.signal_trace.empty())
    results.traced.signals = *machine->internals().QueueSignalRecords();
  if (metrics != nullptr) metrics->End();
  return results;
}

// What comes when the machine has ended; returns whether all that is asked for could be written.
bool Report(const Results& results, const RunOptions& options, const TraceFiles& traces,
            int64_t start_ns, const Logger& log, LineWriter& errors) {
  if (!results.end.detail.empty()) log.Log(Severity::kError, "%s", results.end.detail);
  if (results.end.kind == EndKind::kCrash) WarnIfRing0IsInterpreted(log);
  errors.Flush();  // what is printed comes after what was logged
  if (options.timing) PrintTiming(start_ns, results.first_run_ns, results.resident_at_start);
  if (!options.stats.empty()) PrintStatistics(results.statistics, options.stats);
  if (!options.explain.empty()) {
    PrintExplanations(results.statistics, results.explanations, results.memory_nodes,
                      options.explain);
  }
  if (!results.recorded.ok()) log.Log(Severity::kError, "%s", Message(results.recorded));
  const bool written = WriteTraces(results.traced, traces, log) && results.recorded.ok();
  errors.Flush();
  return written;
}

// Null: none is asked for.
absl::StatusOr<std::unique_ptr<ControlSocket>> OpenSocket(const RunOptions& options,
                                                          const MachineOptions& machine,
                                                          LogSink& log) {
  if (!options.api_sock.empty()) return ControlSocket::Create(options.api_sock, machine, log);
  if (!options.serve) return nullptr;
  return BadInput("serve waits for clients: give --api-sock PATH");
}

int PrintConfig(const MachineOptions& options, LogSink& log) {
  const absl::StatusOr<Json> json = PrintOptions(options);
  if (!json.ok()) return Finish(json.status(), log);
  return Finish(WriteToStdout(JsonDocument(*json)), log);
}

}  // namespace

int RunCommand(const RunOptions& options, int64_t start_ns, LogSink& sink, LineWriter& errors,
               RunCompanion* companion) {
  if (!options.template_directory.empty() && !options.print_config) {
    return ForksCommand(options, sink, errors);
  }
  const Logger log(&sink);
  absl::StatusOr<MachineOptions> machine_options = MakeMachineOptions(options);
  if (!machine_options.ok()) return Finish(machine_options.status(), sink);
  if (options.print_config) return PrintConfig(*machine_options, sink);
  absl::StatusOr<TraceFiles> traces = OpenTraces(options, log);
  if (!traces.ok()) return Finish(traces.status(), sink);
  absl::StatusOr<std::unique_ptr<ControlSocket>> socket =
      OpenSocket(options, *machine_options, sink);
  if (!socket.ok()) return Finish(socket.status(), sink);
  absl::StatusOr<std::unique_ptr<MetricsFile>> metrics_file = OpenMetrics(options, log);
  if (!metrics_file.ok()) return Finish(metrics_file.status(), sink);
  const EndSignals signals;  // what came before has ended the process, with nothing to restore
  const Surroundings around = {*traces, signals, sink, socket->get()};

  absl::StatusOr<Guest> guest =
      options.serve ? Serve(options, around) : Run(*machine_options, around);
  if (!guest.ok()) return Finish(guest.status(), sink);
  if (guest->machine == nullptr) return kExitOk;
  // These look at the machine, and so end before it.
  const std::unique_ptr<ControlSocket> clients = *std::move(socket);
  const std::unique_ptr<MetricsFile> metrics = *std::move(metrics_file);
  if (metrics != nullptr) {
    if (absl::Status status = metrics->Begin(*guest->machine); !status.ok()) {
      guest->machine->Stop();
      // Its last event goes to the socket's control, which goes before the guest does.
      EndMachine(std::move(guest->machine), options, clients.get(), nullptr);
      return Finish(status, sink);
    }
  }
  const uint64_t resident = options.timing ? ResidentBeyondGuest() : 0;

  if (companion != nullptr) companion->Begin(*guest->machine);
  const int signal = WaitForEnd(*guest->machine, signals, log);
  if (signal != 0) guest->machine->Stop();
  if (companion != nullptr) companion->End();
  // The machine's end may take as long as its storage does.
  guest->terminal.reset();
  Results results;
  signals.Attend(
      [&] {
        results = EndMachine(std::move(guest->machine), options, clients.get(), metrics.get());
      },
      [&](int another) { signals.Deliver(another); });
  results.resident_at_start = resident;
  if (traces->events != nullptr) traces->events->Finish();
  signals.Release();  // who does not read what is printed now is not waited for

  const bool written = Report(results, options, *traces, start_ns, log, errors);
  if (signal != 0) signals.Deliver(signal);
  return written ? ExitCodeOf(results.end.kind) : kExitFailure;
}

}  // namespace ringside
