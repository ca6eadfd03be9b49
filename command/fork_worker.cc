#include "command/fork_worker.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits.h>
#include <list>
#include <mutex>
#include <poll.h>
#include <thread>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "base/thread.h"
#include "command/end_signals.h"
#include "command/exit_codes.h"
#include "command/fork_results.h"
#include "command/line_writer.h"
#include "command/passt.h"
#include "command/run_config.h"
#include "command/serial_port.h"
#include "ringside/guest_agent.h"
#include "ringside/machine.h"

namespace ringside {
namespace {

constexpr absl::Duration kAgentPatience = absl::Seconds(30);
constexpr absl::Duration kAgentStep = absl::Milliseconds(5);

// What descriptors take that others write to as well: whole lines, and several at once.
class Lines {
 public:
  void Write(int fd, std::string_view lines) {
    const std::scoped_lock lock(mutex_);
    while (!lines.empty()) {
      // No more than is written without those of another process in between (pipe(7)).
      const size_t end = lines.substr(0, PIPE_BUF).rfind('\n');
      const size_t size = end == std::string_view::npos ? PIPE_BUF : end + 1;
      WriteAll(fd, lines.substr(0, size));
      lines.remove_prefix(std::min(size, lines.size()));
    }
  }

 private:
  std::mutex mutex_;
};

std::string Behind(uint32_t number, std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    absl::StrAppendFormat(&lines, "[%d] %s\n", number, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// What the library says of one of them.
class ForkLog final : public LogSink {
 public:
  ForkLog(uint32_t number, LogSink& log) : number_(number), log_(log) {}
  void Log(Severity severity, std::string_view line) override {
    log_.Log(severity, absl::StrFormat("fork %d: %s", number_, line));
  }

 private:
  const uint32_t number_;
  LogSink& log_;
};

struct Fork {
  Fork(uint32_t number, LogSink& sink) : log(number, sink) {
    result.number = number;
    result.process = getpid();
  }
  int64_t age_ns() const { return MonotonicNs() - begin_ns; }

  const int64_t begin_ns = MonotonicNs();
  ForkResult result;
  ForkLog log;
  SerialPort serial;
  std::vector<Passt> passts;
  std::unique_ptr<Machine> machine;
  std::string vsock, exec;
  bool is_recorded = false;
  std::thread command;  // has `result` until the command is over
  std::atomic<bool> is_command_over = false;
  std::atomic<bool> is_printed = false;  // what it said, and that thread is done
  std::atomic<bool> is_over = false;     // its machine has ended
};

class ForkWorker {
 public:
  ForkWorker(const RunOptions& options, std::shared_ptr<const MachineTemplate> from,
             const WorkerPipes& pipes, LogSink& log, EventFd command_over)
      : options_(options),
        from_(std::move(from)),
        pipes_(pipes),
        log_(log),
        command_over_(std::move(command_over)) {}

  // False: threads are left that wait for who reads what their commands said.
  bool Run(ForkSpan span);

 private:
  bool TakeTurn();
  void Begin(uint32_t number);
  absl::Status Make(Fork& fork);
  absl::Status Start(Fork& fork);
  void Execute(Fork& fork);
  void AwaitEnds();
  bool AwaitPrinted();
  void StopAll();
  void StopThoseWithoutCommand();
  void Finish(Fork& fork);
  void Tell(const ForkResult& result) { WriteAll(pipes_.results, LineOf(result)); }

  const RunOptions& options_;
  const std::shared_ptr<const MachineTemplate> from_;
  const WorkerPipes pipes_;
  LogSink& log_;
  const EventFd command_over_;
  const EndSignals signals_;
  Lines said_;  // by the forks' commands
  bool is_signalled_ = false;
  std::list<Fork> forks_;
  std::list<Fork> told_;  // that are over, and whose commands' threads may not be
};

bool ForkWorker::Run(ForkSpan span) {
  for (uint32_t number = span.first; number <= span.last; ++number) {
    if (!TakeTurn()) {
      StopAll();
      break;
    }
    Begin(number);
    static_cast<void>(!write(pipes_.turns[1], "", 1));
  }
  AwaitEnds();
  return AwaitPrinted();
}

// False: a signal has asked to end. Others may be faster to take what poll has seen.
bool ForkWorker::TakeTurn() {
  while (true) {
    std::array<pollfd, 2> fds = {pollfd{signals_.fd(), POLLIN, 0},
                                 pollfd{pipes_.turns[0], POLLIN, 0}};
    poll(fds.data(), fds.size(), -1);
    if ((fds[0].revents & POLLIN) != 0 && signals_.Take() != 0) return false;
    char turn;
    if ((fds[1].revents & POLLIN) != 0 && read(pipes_.turns[0], &turn, 1) == 1) return true;
  }
}

void ForkWorker::Begin(uint32_t number) {
  Fork& fork = forks_.emplace_back(number, log_);
  absl::Status status = Make(fork);
  if (status.ok()) status = Start(fork);
  if (status.ok()) return;
  fork.result.error = std::string(Message(status));
  fork.result.code = ExitCodeOf(status);
  Tell(fork.result);
  forks_.pop_back();
}

absl::Status ForkWorker::Make(Fork& fork) {
  const RunOptions options = NumberedOptions(options_, fork.result.number);
  fork.is_recorded = options.record_working_set;
  RINGSIDE_ASSIGN_OR_RETURN(MachineOptions wanted, MakeMachineOptions(options, from_));
  MachineConfig& config = wanted.machine;
  // They share the terminal with each other and with the command's messages: none has it.
  if (wanted.serial.target == SerialOptions::Target::kStdio) {
    wanted.serial.target = SerialOptions::Target::kNone;
  }
  RINGSIDE_ASSIGN_OR_RETURN(fork.serial, OpenSerial(wanted.serial));
  RINGSIDE_RETURN_IF_ERROR(fork.serial.CheckIsNoneOf(config, options.template_directory));
  config.console = fork.serial.config;
  config.log = &fork.log;
  fork.exec = options.exec;
  if (config.vsock.has_value()) fork.vsock = config.vsock->path;
  RINGSIDE_ASSIGN_OR_RETURN(fork.passts, Passt::StartFor(config));
  RINGSIDE_ASSIGN_OR_RETURN(fork.machine, Machine::Create(config));
  for (const Passt& passt : fork.passts) RINGSIDE_RETURN_IF_ERROR(passt.CheckRuns());
  return fork.serial.Begin();
}

absl::Status ForkWorker::Start(Fork& fork) {
  RINGSIDE_RETURN_IF_ERROR(fork.machine->Start());
  fork.result.up_ns = fork.age_ns();
  Tell(fork.result);
  if (fork.exec.empty()) return absl::OkStatus();
  RINGSIDE_ASSIGN_OR_RETURN(fork.command, StartThread("exec", [this, &fork] { Execute(fork); }));
  return absl::OkStatus();
}

// A guest that has just been forked takes its vsock into use again first, which takes as long as
// its processors let it; until then nobody listens there.
absl::Status AwaitAgent(const GuestAgent& agent, const Fork& fork) {
  const absl::Time deadline = absl::Now() + kAgentPatience;
  while (true) {
    const absl::Status status = agent.Ping().status();
    if (!absl::IsUnavailable(status) || fork.is_over || absl::Now() > deadline) return status;
    absl::SleepFor(kAgentStep);
  }
}

absl::StatusOr<GuestCommandEnd> ResultOf(const GuestAgent& agent, const Fork& fork) {
  RINGSIDE_RETURN_IF_ERROR(AwaitAgent(agent, fork));
  return agent.Exec({.arguments = {"/bin/sh", "-c", fork.exec}});
}

// On a thread of the fork's. The machine ends with its command, and the command with its machine.
void ForkWorker::Execute(Fork& fork) {
  const GuestAgent agent(fork.vsock);
  const absl::StatusOr<GuestCommandEnd> end = ResultOf(agent, fork);
  ForkResult& result = fork.result;
  if (end.ok()) {
    result.ended_ns = fork.age_ns();
    result.code = end->how == GuestCommandEnd::How::kKilled ? 128 + end->signal : end->code;
  } else {
    result.error = std::string(Message(end.status()));
    result.code = kExitFailure;
  }
  const uint32_t number = result.number;
  // Before all that waits for who reads what it said.
  fork.is_command_over = true;
  fork.is_command_over.notify_one();
  command_over_.Signal();
  if (end.ok()) {
    said_.Write(STDOUT_FILENO, Behind(number, end->output));
    said_.Write(STDERR_FILENO, Behind(number, end->errors));
    if (end->was_cut) fork.log.Log(Severity::kWarning, "its output is longer than 1M, and was cut");
  }
  fork.is_printed = true;
  command_over_.Signal();
}

void ForkWorker::AwaitEnds() {
  std::vector<pollfd> fds;
  while (!forks_.empty()) {
    fds = {{signals_.fd(), POLLIN, 0}, {command_over_.fd(), POLLIN, 0}};
    const size_t before = fds.size();
    for (const Fork& fork : forks_) fds.push_back({fork.machine->end_fd(), POLLIN, 0});
    poll(fds.data(), fds.size(), -1);
    if ((fds[0].revents & POLLIN) != 0 && signals_.Take() != 0) StopAll();
    if ((fds[1].revents & POLLIN) != 0) StopThoseWithoutCommand();
    auto fork = forks_.begin();
    for (size_t i = before; i < fds.size(); ++i) {
      const auto current = fork++;
      if ((fds[i].revents & POLLIN) == 0) continue;
      Finish(*current);
      if (current->command.joinable()) {
        told_.splice(told_.end(), forks_, current);
      } else {
        forks_.erase(current);
      }
    }
  }
}

// Until all that commands have said is printed, or a signal has asked to end: then whoever does not
// read it is not waited for. False: such threads are left.
bool ForkWorker::AwaitPrinted() {
  while (true) {
    command_over_.Clear();
    std::erase_if(told_, [](Fork& fork) {
      if (!fork.is_printed) return false;
      fork.command.join();
      return true;
    });
    if (told_.empty()) return true;
    if (is_signalled_) return false;
    std::array<pollfd, 2> fds = {pollfd{signals_.fd(), POLLIN, 0},
                                 pollfd{command_over_.fd(), POLLIN, 0}};
    poll(fds.data(), fds.size(), -1);
    if ((fds[0].revents & POLLIN) != 0 && signals_.Take() != 0) is_signalled_ = true;
  }
}

// Each is told before any is waited for.
void ForkWorker::StopAll() {
  is_signalled_ = true;
  for (const Fork& fork : forks_) fork.machine->Stop();
}

void ForkWorker::StopThoseWithoutCommand() {
  command_over_.Clear();
  for (const Fork& fork : forks_) {
    if (fork.is_command_over) fork.machine->Stop();
  }
}

void ForkWorker::Finish(Fork& fork) {
  const MachineEnd end = fork.machine->Wait();
  const absl::Status recorded =
      fork.is_recorded ? fork.machine->RecordWorkingSet() : absl::OkStatus();
  ForkResult& result = fork.result;
  if (fork.command.joinable()) {
    fork.is_over = true;
    fork.machine.reset();  // and with it the command's connection
    fork.is_command_over.wait(false);
    if (end.kind != EndKind::kStopped && !result.ended_ns && !end.detail.empty()) {
      result.error = end.detail;
    }
  } else {
    result.ended_ns = fork.age_ns();
    result.code = ExitCodeOf(end.kind);
    result.error = end.detail;
  }
  if (!recorded.ok() && result.error.empty()) {
    result.error = std::string(Message(recorded));
    result.code = kExitFailure;
  }
  Tell(result);
}

}  // namespace

int RunForks(const RunOptions& options, const std::shared_ptr<const MachineTemplate>& from,
             ForkSpan span, const WorkerPipes& pipes, LogSink& log) {
  absl::StatusOr<EventFd> command_over = EventFd::Create();
  if (!command_over.ok()) return Finish(command_over.status(), log);
  // Where threads of it are left it stays until the process ends, which is next.
  static std::unique_ptr<ForkWorker> worker;
  worker = std::make_unique<ForkWorker>(options, from, pipes, log, *std::move(command_over));
  if (worker->Run(span)) worker.reset();
  return kExitOk;
}

}  // namespace ringside
