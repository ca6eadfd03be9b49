#include "command/forks_command.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "command/end_signals.h"
#include "command/exit_codes.h"
#include "command/fork_results.h"
#include "command/fork_worker.h"
#include "command/progress_bar.h"
#include "command/run_config.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

constexpr size_t kMostLine = 64 << 10;
constexpr int kReapMs = 5;  // how often one is looked for that says no more

struct Pipe {
  static absl::StatusOr<Pipe> Create() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "cannot make a pipe");
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
  }
  void GiveTurn() const { static_cast<void>(!write(write_end.get(), "", 1)); }

  UniqueFd read_end, write_end;
};

struct Worker {
  ForkSpan span;
  pid_t process = 0;
  UniqueFd results;  // closed: it says no more
  bool is_over = false;
  std::string received;  // of a line that is not whole yet
};

// The library leaves that to its user, and the command is one.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// How a process has ended that still had forks. `signal`: that asked to end; 0: none.
std::string EndText(const Worker& worker, int status, int signal) {
  if (WIFEXITED(status) && signal != 0) {
    return absl::StrFormat("signal %d ended the run before it began", signal);
  }
  if (!WIFSIGNALED(status)) {
    return absl::StrFormat("its process %d ended before it, with exit code %d", worker.process,
                           WEXITSTATUS(status));
  }
  return absl::StrFormat("its process %d was killed by signal %d%s", worker.process,
                         WTERMSIG(status),
                         WTERMSIG(status) == SIGKILL ? " (did the host run out of memory?)" : "");
}

class Forks {
 public:
  Forks(const RunOptions& options, const ForkCounts& counts, Pipe turns, LogSink& log,
        LineWriter& errors)
      : turns_(std::move(turns)),
        options_(options),
        counts_(counts),
        log_(log),
        errors_(errors),
        results_(counts.forks) {}

  int Run(const std::shared_ptr<const MachineTemplate>& from);

 private:
  void Start(const std::shared_ptr<const MachineTemplate>& from);
  absl::StatusOr<Worker> StartWorker(const std::shared_ptr<const MachineTemplate>& from,
                                     ForkSpan span);
  void Read(Worker& worker);
  void Reap(Worker& worker);
  bool HasEnding() const;
  void AwaitAll();
  void End(int signal);
  int Report();

  const Pipe turns_;
  const RunOptions& options_;
  const ForkCounts counts_;
  LogSink& log_;
  LineWriter& errors_;
  const EndSignals signals_;
  ForkResults results_;
  std::vector<Worker> workers_;
  size_t running_ = 0;
  int signal_ = 0;            // that asked to end
  bool lost_output_ = false;  // of commands, as a worker has told
};

int Forks::Run(const std::shared_ptr<const MachineTemplate>& from) {
  Start(from);
  AwaitAll();
  return Report();
}

void Forks::Start(const std::shared_ptr<const MachineTemplate>& from) {
  fcntl(turns_.read_end.get(), F_SETFL, O_NONBLOCK);
  for (unsigned i = std::max(1U, std::thread::hardware_concurrency()); i > 0; --i) {
    turns_.GiveTurn();
  }
  for (uint32_t first = 1; first <= counts_.forks; first += counts_.per_process) {
    const uint32_t last = std::min(counts_.forks, first + counts_.per_process - 1);
    absl::StatusOr<Worker> worker = StartWorker(from, {first, last});
    if (worker.ok()) {
      workers_.push_back(*std::move(worker));
      ++running_;
    } else {
      results_.Lost(first, last, 0, std::string(Message(worker.status())));
    }
  }
}

absl::StatusOr<Worker> Forks::StartWorker(const std::shared_ptr<const MachineTemplate>& from,
                                          ForkSpan span) {
  RINGSIDE_ASSIGN_OR_RETURN(Pipe results, Pipe::Create());
  Worker worker = {.span = span, .results = std::move(results.read_end)};
  const pid_t parent = getpid();
  worker.process = fork();
  if (worker.process < 0) return ErrnoError(errno, "cannot make a process");
  if (worker.process > 0) return worker;
  // It does not outlive the command, however that ends.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(kExitFailure);
  worker.results = UniqueFd();
  workers_.clear();  // what the others say is not for this one
  // Nothing has been logged until now, so that its lines have no thread yet: it starts its own.
  const int code = RunForks(options_, from, span,
                            {.results = results.write_end.get(),
                             .turns = {turns_.read_end.get(), turns_.write_end.get()}},
                            log_);
  errors_.Flush();
  _exit(code);
}

void Forks::AwaitAll() {
  ProgressBar bar(STDERR_FILENO);
  bar.Begin(options_.exec.empty() ? "forks that are up" : "forks that are over", counts_.forks);
  std::vector<pollfd> fds;
  while (running_ > 0) {
    fds = {{signals_.fd(), POLLIN, 0}};
    for (const Worker& worker : workers_) fds.push_back({worker.results.get(), POLLIN, 0});
    poll(fds.data(), fds.size(), HasEnding() ? kReapMs : -1);
    if ((fds[0].revents & POLLIN) != 0) End(signals_.Take());
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (fds[i + 1].revents != 0) Read(workers_[i]);
      if (!workers_[i].results.valid() && !workers_[i].is_over) Reap(workers_[i]);
    }
    bar.At(options_.exec.empty() ? results_.up() : results_.over());
  }
}

bool Forks::HasEnding() const {
  return std::ranges::any_of(
      workers_, [](const Worker& worker) { return !worker.results.valid() && !worker.is_over; });
}

// The second signal ends this process, and by that the workers.
void Forks::End(int signal) {
  if (signal == 0) return;
  if (signal_ != 0) signals_.Deliver(signal);
  signal_ = signal;
  for (const Worker& worker : workers_) {
    if (!worker.is_over) kill(worker.process, SIGTERM);
  }
}

void Forks::Read(Worker& worker) {
  char bytes[16 << 10];
  const ssize_t got = read(worker.results.get(), bytes, sizeof bytes);
  if (got > 0) {
    worker.received.append(bytes, static_cast<size_t>(got));
    for (size_t end; (end = worker.received.find('\n')) != std::string::npos;) {
      auto result = ReadForkLine(std::string_view(worker.received).substr(0, end));
      // A signal to all of a process group is the command's own, too, of which it says enough.
      if (result && signal_ != 0 && result->code == 128 + signal_) {
        result->code = kExitOk;
        result->error.clear();
      }
      if (result && result->number >= worker.span.first && result->number <= worker.span.last) {
        results_.Take(*result);
      }
      worker.received.erase(0, end + 1);
    }
    if (worker.received.size() > kMostLine) worker.received.clear();  // no line of ours
    return;
  }
  worker.results = UniqueFd();
}

// Waits for nobody: a process whose storage hangs may take long to go.
void Forks::Reap(Worker& worker) {
  int status = 0;
  if (waitpid(worker.process, &status, WNOHANG) != worker.process) return;
  worker.is_over = true;
  --running_;
  if (WIFSIGNALED(status)) turns_.GiveTurn();  // it may have had one
  lost_output_ |= WIFEXITED(status) && WEXITSTATUS(status) != kExitOk;
  results_.Lost(worker.span.first, worker.span.last, worker.process,
                EndText(worker, status, signal_));
}

int Forks::Report() {
  signals_.Release();  // who does not read what is printed now is not waited for
  const Logger log(&log_);
  for (const std::string& error : results_.Errors()) log.Log(Severity::kError, "%s", error);
  log.Log(Severity::kInfo, "%s", results_.Summary(static_cast<uint32_t>(workers_.size())));
  errors_.Flush();  // what is printed comes after what was logged
  if (options_.stats == "json") std::fputs(JsonLine(results_.ToJson()).c_str(), stderr);
  if (options_.stats == "table") std::fputs(results_.Table().c_str(), stderr);
  if (signal_ != 0) signals_.Deliver(signal_);
  const int code = results_.exit_code();
  return code == kExitOk && lost_output_ ? kExitFailure : code;
}

}  // namespace

int ForksCommand(const RunOptions& given, LogSink& log, LineWriter& errors) {
  const absl::StatusOr<ForkCounts> counts = CheckForks(given);
  if (!counts.ok()) return Finish(counts.status(), log);
  RunOptions options = given;
  if (!given.config.empty()) {
    // Once, as it may be a pipe.
    absl::StatusOr<std::string> text = ReadConfigText("--config", given.config);
    if (!text.ok()) return Finish(text.status(), log);
    options.config_text = *std::move(text);
  }
  const absl::StatusOr<std::shared_ptr<const MachineTemplate>> from =
      MachineTemplate::Load(options.template_directory);
  if (!from.ok()) return Finish(from.status(), log);
  // What is wrong with all of them is said once.
  const absl::StatusOr<MachineOptions> first =
      MakeMachineOptions(NumberedOptions(options, 1), *from);
  if (!first.ok()) return Finish(first.status(), log);
  if (!options.exec.empty() && !first->machine.vsock.has_value()) {
    return Finish(BadInput("--exec asks the guest's agent, which is reached by a vsock: give "
                           "--vsock cid=3,path={n}.vsock"),
                  log);
  }
  RaiseDescriptorLimit();
  absl::StatusOr<Pipe> turns = Pipe::Create();
  if (!turns.ok()) return Finish(turns.status(), log);
  return Forks(options, *counts, *std::move(turns), log, errors).Run(*from);
}

}  // namespace ringside
