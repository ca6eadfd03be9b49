#include "command/exec_pump.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {
namespace {

constexpr int kBySignal = 128;

// Those that are ignored at first, as nohup has it, stay ignored.
UniqueFd BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH}) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// What may be written without waiting once poll has said that there is room: a pipe has PIPE_BUF.
size_t MostAtOnce(int fd) {
  struct stat file = {};
  return fstat(fd, &file) == 0 && S_ISREG(file.st_mode) ? SIZE_MAX : PIPE_BUF;
}

}  // namespace

bool ReadTerminalSize(TerminalSize& size) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    winsize window = {};
    if (ioctl(fd, TIOCGWINSZ, &window) != 0 || window.ws_row == 0) continue;
    size = {.rows = window.ws_row, .columns = window.ws_col};
    return true;
  }
  return false;
}

ExecPump::ExecPump(ExecClient client, bool with_input)
    : client_(std::move(client)), with_input_(with_input), signals_(BlockSignals()) {}

void ExecPump::Fill(Fds& fds) const {
  const bool reads = with_input_ && !exit_code_ && client_.input_room() > 0;
  const short events = exit_code_ ? short{0} : client_.events(!has_pending());
  // What is of no interest has no descriptor there: poll would report its hang-ups again and again.
  fds[kAgent] = {events == 0 ? -1 : client_.fd(), events, 0};
  fds[kInput] = {reads ? STDIN_FILENO : -1, POLLIN, 0};
  fds[kSignals] = {signals_.get(), POLLIN, 0};
  fds[kOutput] = {output_.empty() ? -1 : STDOUT_FILENO, POLLOUT, 0};
  fds[kErrors] = {errors_.empty() ? -1 : STDERR_FILENO, POLLOUT, 0};
}

absl::StatusOr<int> ExecPump::Run() {
  // What came with the news of the start has been read already, and wakes nobody.
  RINGSIDE_RETURN_IF_ERROR(TakeEvents());
  while (!exit_code_ || has_pending()) {
    Fds fds;
    Fill(fds);
    if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) {
      return ErrnoError(errno, "cannot wait for the command");
    }
    if (fds[kSignals].revents != 0) {
      if (const std::optional<int> end = TakeSignals()) return *end;
    }
    if (fds[kInput].revents != 0) ReadInput();
    // While output is held back nothing is read; a connection that is gone shows up afterwards.
    const int wanted = has_pending() ? POLLOUT : ~0;
    const auto revents = static_cast<short>(fds[kAgent].revents & wanted);
    if (!exit_code_) RINGSIDE_RETURN_IF_ERROR(client_.Turn(revents));
    RINGSIDE_RETURN_IF_ERROR(TakeEvents());
    if (!WriteSome(STDOUT_FILENO, output_) || !WriteSome(STDERR_FILENO, errors_)) {
      return kBySignal + SIGPIPE;
    }
  }
  return *exit_code_;
}

absl::Status ExecPump::TakeEvents() {
  while (!exit_code_) {
    RINGSIDE_ASSIGN_OR_RETURN(const std::optional<ExecClient::Event> event, client_.Next());
    if (!event) break;
    switch (event->kind) {
      case ExecClient::Event::Kind::kOutput:
        output_.append(event->data);
        break;
      case ExecClient::Event::Kind::kErrors:
        errors_.append(event->data);
        break;
      case ExecClient::Event::Kind::kExit:
        exit_code_ = event->exit.signal != 0 ? kBySignal + static_cast<int>(event->exit.signal)
                                             : static_cast<int>(event->exit.code);
        break;
    }
  }
  return absl::OkStatus();
}

void ExecPump::ReadInput() {
  // A signal that came with it may have taken the room: nothing read would look like the end.
  const size_t room = client_.input_room();
  if (room == 0) return;
  std::array<char, kMostData> data;
  const ssize_t got = read(STDIN_FILENO, data.data(), std::min(data.size(), room));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got > 0) {
    client_.SendInput({data.data(), static_cast<size_t>(got)});
    return;
  }
  client_.EndInput();
  with_input_ = false;
}

std::optional<int> ExecPump::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    const auto signal = static_cast<int>(info.ssi_signo);
    TerminalSize size;
    if (signal == SIGQUIT) return kBySignal + SIGQUIT;
    if (exit_code_) return kBySignal + signal;  // only what nobody reads is left
    if (signal != SIGWINCH) {
      client_.SendSignal(signal);
    } else if (ReadTerminalSize(size)) {
      client_.Resize(size);
    }
  }
  return std::nullopt;
}

// As much as there is room for. False if nobody will read it.
bool ExecPump::WriteSome(int fd, std::string& pending) {
  while (!pending.empty()) {
    pollfd ready = {fd, POLLOUT, 0};
    if (poll(&ready, 1, 0) != 1) return true;
    const ssize_t written = write(fd, pending.data(), std::min(pending.size(), MostAtOnce(fd)));
    if (written < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (written < 0) return false;
    pending.erase(0, static_cast<size_t>(written));
  }
  return true;
}

}  // namespace ringside
