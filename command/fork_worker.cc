#include "command/fork_worker.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
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
#include "command/fork_output.h"
#include "command/fork_results.h"
#include "command/line_writer.h"
#include "command/passt.h"
#include "command/run_config.h"
#include "command/serial_port.h"
#include "ringside/guest_agent.h"
#include "ringside/io_pool.h"
#include "ringside/machine.h"
#include "vmm/io_pool_parts.h"

namespace ringside {
namespace {

constexpr int64_t kAgentPatienceNs = 120'000'000'000;
constexpr int64_t kFirstAgentStepNs = 2'000'000, kLastAgentStepNs = 100'000'000;

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
  EndSignals::Taken stopped_by;  // of somebody else's than the command
  std::thread command;           // has `result` until the command is over
  std::atomic<bool> is_command_over = false;
  std::atomic<bool> is_printed = false;   // what it said, and that thread is done
  std::atomic<bool> is_over = false;      // its machine has ended
  std::thread end;                        // waits for that, as its storage may take long
  bool is_ending = false;                 // that has begun
  std::atomic<bool> is_finished = false;  // and has told of it
};

class ForkWorker {
 public:
  ForkWorker(const RunOptions& options, std::shared_ptr<const MachineTemplate> from,
             const WorkerPipes& pipes, LogSink& log, EventFd news)
      : options_(options),
        from_(std::move(from)),
        pipes_(pipes),
        log_(log),
        news_(std::move(news)) {}

  // As RunForks. Threads may be left that wait for who reads what their commands said: may_go says
  // whether there are none.
  int Run(ForkSpan span);
  bool may_go() const { return told_.empty(); }

 private:
  void Attend(bool to_make);
  void Begin(uint32_t number);
  absl::Status Make(Fork& fork);
  absl::Status ShareIoThreads(MachineConfig& config);
  absl::Status Start(Fork& fork);
  void Execute(Fork& fork);
  void Print(Fork& fork, const GuestCommandEnd& end);
  void Signalled();
  void StopThoseWithoutCommand();
  void BeginEnd(Fork& fork);
  void Finish(Fork& fork);
  void ForgetFinished();
  void AwaitPrinted();
  void Tell(const ForkResult& result);

  const RunOptions& options_;
  const std::shared_ptr<const MachineTemplate> from_;
  const WorkerPipes pipes_;
  LogSink& log_;
  const EventFd news_;  // of a fork: its command is over or has been printed, or its end is told
  const EndSignals signals_;
  // Of the first of several forks, for all that want the same threads. Null: there is none yet.
  std::shared_ptr<IoPool> pool_;
  std::vector<IoThreadConfig> pool_threads_;
  ForkOutput said_;                        // by the forks' commands
  std::atomic<bool> lost_output_ = false;  // some of that
  std::mutex results_mutex_;               // a line is one fork's
  bool is_signalled_ = false;
  uint32_t next_ = 0;  // number that is to be made
  std::list<Fork> forks_;
  std::list<Fork> told_;  // that are over, and whose commands' threads may not be
};

int ForkWorker::Run(ForkSpan span) {
  next_ = span.first;
  while (true) {
    const bool to_make = next_ <= span.last && !is_signalled_;
    if (!to_make && forks_.empty()) break;
    Attend(to_make);
  }
  AwaitPrinted();
  return lost_output_ || !told_.empty() ? kExitFailure : kExitOk;
}

// Waits for something to do, and does it. Others may be faster to take what poll has seen.
void ForkWorker::Attend(bool to_make) {
  std::vector<pollfd> fds = {{signals_.fd(), POLLIN, 0},
                             {news_.fd(), POLLIN, 0},
                             {to_make ? pipes_.turns[0] : -1, POLLIN, 0}};
  const size_t before = fds.size();
  for (const Fork& fork : forks_) {
    fds.push_back({fork.is_ending ? -1 : fork.machine->end_fd(), POLLIN, 0});
  }
  poll(fds.data(), fds.size(), -1);
  auto fork = forks_.begin();
  for (size_t i = before; i < fds.size(); ++i, ++fork) {
    if ((fds[i].revents & POLLIN) != 0) BeginEnd(*fork);
  }
  if ((fds[0].revents & POLLIN) != 0) return Signalled();
  if ((fds[1].revents & POLLIN) != 0) {
    news_.Clear();
    StopThoseWithoutCommand();
    ForgetFinished();
  }
  char turn;
  if ((fds[2].revents & POLLIN) == 0 || read(pipes_.turns[0], &turn, 1) != 1) return;
  Begin(next_++);
  static_cast<void>(!write(pipes_.turns[1], "", 1));
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
  RINGSIDE_RETURN_IF_ERROR(ShareIoThreads(config));
  RINGSIDE_ASSIGN_OR_RETURN(fork.passts, Passt::StartFor(config));
  RINGSIDE_ASSIGN_OR_RETURN(fork.machine, Machine::Create(config));
  for (const Passt& passt : fork.passts) RINGSIDE_RETURN_IF_ERROR(passt.CheckRuns());
  return fork.serial.Begin();
}

absl::Status ForkWorker::ShareIoThreads(MachineConfig& config) {
  if (pool_ == nullptr) {
    const bool takes_commands = EntriesFor(config.disks) == UringEntries::kWithCommands;
    RINGSIDE_ASSIGN_OR_RETURN(pool_, IoPool::Create({.io_threads = config.io_threads,
                                                     .nvme_passthrough = takes_commands}));
    pool_threads_ = config.io_threads;
  }
  if (config.io_threads != pool_threads_) return absl::OkStatus();  // such as by "{n}"
  config.io_pool = pool_;
  config.io_threads.clear();
  return absl::OkStatus();
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
  const int64_t deadline_ns = MonotonicNs() + kAgentPatienceNs;
  for (int64_t step_ns = kFirstAgentStepNs;; step_ns = std::min(2 * step_ns, kLastAgentStepNs)) {
    const absl::Status status = agent.Ping().status();
    if (!absl::IsUnavailable(status) || fork.is_over || MonotonicNs() > deadline_ns) return status;
    absl::SleepFor(absl::Nanoseconds(step_ns));
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
  // Before all that waits for who reads what it said.
  fork.is_command_over = true;
  fork.is_command_over.notify_one();
  news_.Signal();
  if (end.ok()) Print(fork, *end);
  fork.is_printed = true;
  news_.Signal();
}

// Its number alone of the result: the rest is Finish's by now.
void ForkWorker::Print(Fork& fork, const GuestCommandEnd& end) {
  const auto print = [&](int fd, const char* name, const std::string& text) {
    const int error = said_.Write(fd, fork.result.number, text);
    if (error == 0 || error == EPIPE || lost_output_.exchange(true)) return;
    const std::string refusal = absl::StrFormat("%s does not take what commands say", name);
    const absl::Status status = ErrnoError(error, refusal, "free some space, or write elsewhere");
    log_.Log(Severity::kError, Message(status));
  };
  print(STDOUT_FILENO, "standard output", end.output);
  print(STDERR_FILENO, "standard error", end.errors);
  if (end.was_cut) fork.log.Log(Severity::kWarning, "its output is longer than 1M, and was cut");
}

// Each is told before any is waited for, and no more are made.
void ForkWorker::Signalled() {
  const EndSignals::Taken taken = signals_.TakeWithSender();
  if (taken.signal == 0) return;
  is_signalled_ = true;
  // The command's own signal it tells itself, and so does the terminal.
  const bool is_others = taken.sender != 0 && taken.sender != getppid();
  for (Fork& fork : forks_) {
    if (fork.is_ending) continue;
    if (is_others) fork.stopped_by = taken;
    fork.machine->Stop();
  }
}

void ForkWorker::StopThoseWithoutCommand() {
  for (const Fork& fork : forks_) {
    if (fork.is_command_over && !fork.is_ending) fork.machine->Stop();
  }
}

// On a thread of its own, so that others are not held up by its storage.
void ForkWorker::BeginEnd(Fork& fork) {
  fork.is_ending = true;
  const auto finish = [this, &fork] {
    Finish(fork);
    fork.is_finished = true;
    news_.Signal();
  };
  auto started = StartThread("end", finish);
  if (started.ok()) {
    fork.end = *std::move(started);
  } else {
    finish();
  }
}

void ForkWorker::ForgetFinished() {
  for (auto fork = forks_.begin(); fork != forks_.end();) {
    const auto current = fork++;
    if (!current->is_finished) continue;
    if (current->end.joinable()) current->end.join();
    if (current->command.joinable()) {
      told_.splice(told_.end(), forks_, current);
    } else {
      forks_.erase(current);
    }
  }
}

// Until all that commands have said is printed, or a signal has asked to end: then whoever does not
// read it is not waited for, and such threads are left.
void ForkWorker::AwaitPrinted() {
  while (true) {
    news_.Clear();
    std::erase_if(told_, [](Fork& fork) {
      if (!fork.is_printed) return false;
      fork.command.join();
      return true;
    });
    if (told_.empty() || is_signalled_) return;
    std::array<pollfd, 2> fds = {pollfd{signals_.fd(), POLLIN, 0}, pollfd{news_.fd(), POLLIN, 0}};
    poll(fds.data(), fds.size(), -1);
    if ((fds[0].revents & POLLIN) != 0) Signalled();
  }
}

void ForkWorker::Tell(const ForkResult& result) {
  const std::scoped_lock lock(results_mutex_);
  static_cast<void>(WriteAll(pipes_.results, LineOf(result)));
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
    if (const auto& [signal, sender] = fork.stopped_by; signal != 0) {
      result.code = 128 + signal;
      result.error = absl::StrFormat("process %d ended its process %d by signal %d", sender,
                                     result.process, signal);
    }
  }
  if (!recorded.ok() && result.error.empty()) {
    result.error = std::string(Message(recorded));
    result.code = kExitFailure;
  }
  Tell(result);
  // Here, as their storage may take long, too.
  fork.machine.reset();
  fork.passts.clear();
}

}  // namespace

int RunForks(const RunOptions& options, const std::shared_ptr<const MachineTemplate>& from,
             ForkSpan span, const WorkerPipes& pipes, LogSink& log) {
  absl::StatusOr<EventFd> news = EventFd::Create();
  if (!news.ok()) return Finish(news.status(), log);
  // Where threads of it are left it stays until the process ends, which is next.
  static std::unique_ptr<ForkWorker> worker;
  worker = std::make_unique<ForkWorker>(options, from, pipes, log, *std::move(news));
  const int code = worker->Run(span);
  if (worker->may_go()) worker.reset();
  return code;
}

}  // namespace ringside
