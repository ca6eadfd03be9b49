#include "tests/support/subprocess.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

int StatusOf(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

constexpr char kGone = 0;

// Of a process or a thread, by its directory in /proc: as in proc(5), or kGone.
char StateOf(const std::string& directory) {
  std::ifstream file(directory + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(") ");
  return name_end == std::string::npos ? kGone : stat[name_end + 2];
}

template <typename Condition>
bool InTime(Condition condition) {
  const absl::Time deadline = absl::Now() + testing::kWaitLimit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

// Waits with a limit; kills what does not end.
int Reap(pid_t pid, absl::Duration limit) {
  const absl::Time deadline = absl::Now() + limit;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (absl::Now() > deadline) {
      ADD_FAILURE() << "the program did not end within " << limit;
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    absl::SleepFor(absl::Milliseconds(1));
  }
  return StatusOf(status);
}

[[noreturn]] void Execute(const std::vector<std::string>& command) {
  // What whoever runs the tests ignores, as nohup does, a program ignores only if a test has it so.
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGXFSZ})
    signal(number, SIG_DFL);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

std::string ReadAll(int fd) {
  std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
  EXPECT_EQ(pread(fd, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

}  // namespace

ProcessResult RunProcess(const std::vector<std::string>& command) {
  const UniqueFd output(memfd_create("stdout", MFD_CLOEXEC));
  const UniqueFd errors(memfd_create("stderr", MFD_CLOEXEC));
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output.get(), STDOUT_FILENO);
    dup2(errors.get(), STDERR_FILENO);
    Execute(command);
  }
  ProcessResult result;
  result.status = Reap(pid, absl::Seconds(30));
  result.output = ReadAll(output.get());
  result.errors = ReadAll(errors.get());
  return result;
}

ChildProcess::ChildProcess(const std::vector<std::string>& command, int in, int out, int err) {
  pid_ = fork();
  if (pid_ != 0) return;
  const int given[] = {in, out, err};
  int copies[3];  // beyond the three places, which may be each other's
  for (int i = 0; i < 3; ++i) copies[i] = given[i] < 0 ? -1 : fcntl(given[i], F_DUPFD_CLOEXEC, 3);
  for (int i = 0; i < 3; ++i) copies[i] < 0 ? close(i) : dup2(copies[i], i);
  Execute(command);
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::Signal(int signal) const {
  kill(pid_, signal);
}

int ChildProcess::Wait() {
  return Reap(std::exchange(pid_, -1), testing::kWaitLimit);
}

std::vector<std::string> ChildProcess::Threads() const {
  std::vector<std::string> names;
  std::error_code error;  // a thread may end meanwhile
  const std::filesystem::directory_iterator tasks(absl::StrCat("/proc/", pid_, "/task"), error);
  for (const auto& task : tasks) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    if (std::getline(file, name)) names.push_back(name);
  }
  return names;
}

TerminalProcess::TerminalProcess(const std::vector<std::string>& command)
    : master_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
  grantpt(master_.get());
  unlockpt(master_.get());
  slave_ = UniqueFd(open(ptsname(master_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  initial_mode_ = mode();
  pid_ = fork();
  if (pid_ == 0) {
    setsid();
    ioctl(slave_.get(), TIOCSCTTY, 0);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(slave_.get(), fd);
    Execute(command);
  }
}

TerminalProcess::~TerminalProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TerminalProcess::Type(std::string_view text) const {
  EXPECT_EQ(write(master_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

void TerminalProcess::Signal(int signal) const {
  kill(pid_, signal);
}

bool TerminalProcess::ReadSome(int timeout_ms) {
  pollfd ready = {master_.get(), POLLIN, 0};
  if (poll(&ready, 1, timeout_ms) <= 0) return false;
  char chunk[4096];
  const ssize_t got = read(master_.get(), chunk, sizeof chunk);
  if (got <= 0) return false;
  output_.append(chunk, static_cast<size_t>(got));
  return true;
}

bool TerminalProcess::WaitFor(std::string_view text) {
  const absl::Time deadline = absl::Now() + testing::kWaitLimit;
  while (output_.find(text) == std::string::npos) {
    if (absl::Now() > deadline) return false;
    ReadSome(10);
  }
  return true;
}

int TerminalProcess::Wait() {
  const int status = Reap(pid_, testing::kWaitLimit);
  pid_ = -1;
  while (ReadSome(0)) {
  }
  return status;
}

bool TerminalProcess::WaitForDeath() const {
  return InTime([this] {
    const char state = StateOf(absl::StrCat("/proc/", pid_));
    return state == kGone || state == 'Z';
  });
}

bool TerminalProcess::WaitUntilTheKernelHoldsAThread() const {
  return InTime([this] {
    std::error_code error;
    std::filesystem::directory_iterator tasks(absl::StrCat("/proc/", pid_, "/task"), error);
    return std::any_of(begin(tasks), end(tasks),
                       [](const auto& task) { return StateOf(task.path()) == 'D'; });
  });
}

termios TerminalProcess::mode() const {
  termios mode = {};
  EXPECT_EQ(tcgetattr(slave_.get(), &mode), 0);
  return mode;
}

}  // namespace ringside
