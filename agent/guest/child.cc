#include "agent/guest/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <grp.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ringside {
namespace {

constexpr char kPath[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

// Where the child failed, through a pipe that its program closes.
enum class Step : int { kTerminal, kUser, kDirectory, kProgram };
struct Failure {
  Step step;
  int error;
};

// The child's three descriptors, of pipes.
struct TheirEnds {
  UniqueFd in, out, err;
};

// argv and envp, made before the fork.
struct Words {
  std::vector<std::string> texts;
  std::vector<char*> pointers;

  void Add(std::string_view text) { texts.emplace_back(text); }
  bool Has(std::string_view prefix) const {
    for (const std::string& text : texts) {
      if (text.starts_with(prefix)) return true;
    }
    return false;
  }
  char** Finish() {
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers.data();
  }
};

Words Environment(const ExecMessage& command) {
  Words words;
  for (const std::string_view variable : command.environment) words.Add(variable);
  if (!words.Has("PATH=")) words.Add(kPath);
  if (!words.Has("HOME=")) words.Add(command.uid.value_or(getuid()) == 0 ? "HOME=/root" : "HOME=/");
  if (command.with_terminal && !words.Has("TERM=")) words.Add("TERM=linux");
  return words;
}

bool MakePipe(UniqueFd& reads, UniqueFd& writes) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return false;
  reads = UniqueFd(ends[0]);
  writes = UniqueFd(ends[1]);
  return true;
}

bool Unblock(const UniqueFd& fd) {
  return fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) == 0;
}

bool MakePipes(GuestChild& ours, TheirEnds& theirs) {
  return MakePipe(theirs.in, ours.in) && MakePipe(ours.out, theirs.out) &&
         MakePipe(ours.err, theirs.err) && Unblock(ours.in) && Unblock(ours.out) &&
         Unblock(ours.err);
}

bool MakeTerminal(TerminalSize size, GuestChild& ours) {
  ours.out = UniqueFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, 64> name;
  if (!ours.out.valid() || unlockpt(ours.out.get()) != 0 ||
      ptsname_r(ours.out.get(), name.data(), name.size()) != 0) {
    return false;
  }
  ours.terminal = UniqueFd(open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  ours.in = UniqueFd(fcntl(ours.out.get(), F_DUPFD_CLOEXEC, 0));
  SetTerminalSize(ours.out.get(), size);
  return ours.terminal.valid() && ours.in.valid();
}

// What a program expects to find, whatever the agent has of its own.
void ResetProcess(const rlimit& files) {
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, nullptr);
  setrlimit(RLIMIT_NOFILE, &files);
  umask(022);
}

bool TakeDescriptors(const GuestChild& ours, const TheirEnds& theirs) {
  const bool has_terminal = ours.terminal.valid();
  const int in = has_terminal ? ours.terminal.get() : theirs.in.get();
  const int out = has_terminal ? in : theirs.out.get();
  const int err = has_terminal ? in : theirs.err.get();
  if (has_terminal && ioctl(in, TIOCSCTTY, 0) != 0) return false;
  // Above the three places first, which may be each other's.
  const std::array<int, 3> copies = {fcntl(in, F_DUPFD_CLOEXEC, 3), fcntl(out, F_DUPFD_CLOEXEC, 3),
                                     fcntl(err, F_DUPFD_CLOEXEC, 3)};
  for (int i = 0; i < 3; ++i) {
    if (dup2(copies[i], i) < 0) return false;
  }
  return true;
}

// A user is given without its groups: the agent reads no /etc/group.
bool BecomeUser(const ExecMessage& command) {
  if (!command.uid && !command.gid) return true;
  const gid_t group = command.gid.value_or(command.uid.value_or(0));
  if (setgroups(1, &group) != 0 || setresgid(group, group, group) != 0) return false;
  return !command.uid || setresuid(*command.uid, *command.uid, *command.uid) == 0;
}

// In the child. Returns where it failed.
Step Become(const ExecMessage& command, const rlimit& files, const GuestChild& ours,
            const TheirEnds& theirs, Words& words, Words& environment) {
  setsid();
  ResetProcess(files);
  if (!TakeDescriptors(ours, theirs)) return Step::kTerminal;
  if (command.with_terminal && command.uid) {
    // Who opens /dev/tty or the terminal's name has to be its owner.
    if (fchown(STDIN_FILENO, *command.uid, static_cast<gid_t>(-1)) != 0) return Step::kUser;
  }
  if (!BecomeUser(command)) return Step::kUser;
  const std::string directory(command.directory);
  if (!directory.empty() && chdir(directory.c_str()) != 0) return Step::kDirectory;
  environ = environment.Finish();
  char** const arguments = words.Finish();
  execvp(arguments[0], arguments);
  return Step::kProgram;
}

AgentFault Explain(const Failure& failure, const ExecMessage& command) {
  switch (failure.step) {
    case Step::kTerminal:
      return AgentFault::Of(failure.error, "cannot set up the descriptors of",
                            command.arguments.front());
    case Step::kUser:
      return AgentFault::Of(failure.error, "cannot become the user for", command.arguments.front());
    case Step::kDirectory:
      return AgentFault::Of(failure.error, "cannot change to", command.directory);
    case Step::kProgram:
      break;
  }
  return AgentFault::Of(failure.error, "cannot run", command.arguments.front());
}

}  // namespace

void SetTerminalSize(int terminal, TerminalSize size) {
  const winsize asked = {
      .ws_row = size.rows, .ws_col = size.columns, .ws_xpixel = 0, .ws_ypixel = 0};
  ioctl(terminal, TIOCSWINSZ, &asked);
}

AgentFault StartChild(const ExecMessage& command, const rlimit& files, GuestChild& child,
                      FaultOf& of) {
  of = FaultOf::kRequest;
  TheirEnds theirs;
  UniqueFd failed_read, failed_write;
  const bool has_ends =
      command.with_terminal ? MakeTerminal(command.size, child) : MakePipes(child, theirs);
  if (!has_ends || !MakePipe(failed_read, failed_write)) {
    return AgentFault::Of(errno, "cannot set up", command.arguments.front());
  }
  Words words, environment = Environment(command);
  for (const std::string_view argument : command.arguments) words.Add(argument);
  const pid_t pid = fork();
  if (pid < 0) return AgentFault::Of(errno, "cannot start", command.arguments.front());
  if (pid == 0) {
    const Step step = Become(command, files, child, theirs, words, environment);
    const Failure failure = {step, errno};
    [[maybe_unused]] const ssize_t told = write(failed_write.get(), &failure, sizeof failure);
    _exit(127);
  }
  failed_write = UniqueFd();
  Failure failure;
  ssize_t got;
  do {
    got = read(failed_read.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got != sizeof failure) {
    child.pid = pid;
    return {};
  }
  waitpid(pid, nullptr, 0);
  if (failure.step == Step::kProgram) of = FaultOf::kProgram;
  return Explain(failure, command);
}

}  // namespace ringside
