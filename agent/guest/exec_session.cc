#include "agent/guest/exec_session.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

namespace ringside {
namespace {

constexpr char kEndOfFile = 4;  // ^D, as a terminal has it

// What a command has written is still in its pipe when it has ended; what it has left running in
// the background may write for ever. So this much is read after its end: as much as a pipe can
// hold.
constexpr size_t kAfterEnd = 1 << 20;
// A terminal passes on what was written by a work queue of the kernel, some time later.
constexpr int64_t kTerminalLagNs = 50'000'000;

}  // namespace

bool ExecSession::TakeStdin(std::string_view data) {
  if (stdin_ends_ || data.size() > allowed_) return false;
  allowed_ -= data.size();
  if (!child_.in.valid()) {
    taken_ += data.size();  // nobody reads it any more
    return true;
  }
  stdin_.append(data);
  WriteStdin();
  return true;
}

bool ExecSession::EndStdin() {
  if (stdin_ends_) return false;
  stdin_ends_ = true;
  if (has_terminal_ && child_.in.valid()) stdin_.push_back(kEndOfFile);
  WriteStdin();
  return true;
}

void ExecSession::WriteStdin() {
  if (!child_.in.valid()) return;
  while (!stdin_.empty()) {
    const ssize_t written = write(child_.in.get(), stdin_.data(), stdin_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    const size_t gone = written < 0 ? stdin_.size() : static_cast<size_t>(written);
    stdin_.erase(0, gone);
    taken_ += gone;
    if (written < 0) child_.in = UniqueFd();
  }
  if (stdin_ends_ && !has_terminal_) child_.in = UniqueFd();
}

bool ExecSession::Signal(uint32_t number) const {
  if (number == 0 || number >= NSIG) return false;
  if (!status_) kill(-child_.pid, static_cast<int>(number));
  return true;
}

void ExecSession::Resize(TerminalSize size) const {
  if (has_terminal_ && child_.out.valid()) SetTerminalSize(child_.out.get(), size);
}

void ExecSession::AddPolls(std::vector<pollfd>& polls, bool may_read) const {
  // Not those that are of no interest now: poll would report their hang-ups.
  if (!stdin_.empty() && child_.in.valid()) polls.push_back({child_.in.get(), POLLOUT, 0});
  for (const UniqueFd* const fd : {&child_.out, &child_.err}) {
    if (may_read && fd->valid()) polls.push_back({fd->get(), POLLIN, 0});
  }
}

void ExecSession::Turn(std::string& out, size_t limit, int64_t now_ns) {
  WriteStdin();
  while (!is_over_ && out.size() < limit) {
    const size_t before = out.size();
    ReadOutput(child_.out, AgentType::kStdout, out, now_ns);
    ReadOutput(child_.err, AgentType::kStderr, out, now_ns);
    if (out.size() == before) break;
  }
  if (is_over_ || out.size() >= limit) return;
  if (OwesWindow()) {
    EncodeNumber(AgentType::kStdinTaken, static_cast<uint32_t>(taken_), out);
    allowed_ += taken_;
    taken_ = 0;
  }
  if (!status_ || child_.out.valid() || child_.err.valid()) return;
  ExitMessage exit;
  if (WIFSIGNALED(*status_)) exit.signal = static_cast<uint32_t>(WTERMSIG(*status_));
  if (WIFEXITED(*status_)) exit.code = static_cast<uint32_t>(WEXITSTATUS(*status_));
  Encode(exit, out);
  is_over_ = true;
}

// Closes it when nothing more is to come.
void ExecSession::ReadOutput(UniqueFd& fd, AgentType type, std::string& out, int64_t now_ns) {
  if (!fd.valid()) return;
  std::array<char, kMostData> data;
  const ssize_t got = read(fd.get(), data.data(), data.size());
  if (got > 0) {
    AppendFrame(type, {data.data(), static_cast<size_t>(got)}, out);
    if (!status_) return;
    budget_ -= std::min(budget_, static_cast<size_t>(got));
    if (budget_ == 0) fd = UniqueFd();
    return;
  }
  if (got < 0 && errno == EINTR) return;
  if (got < 0 && errno == EAGAIN && MayStillSpeak(now_ns)) return;
  fd = UniqueFd();
}

bool ExecSession::MayStillSpeak(int64_t now_ns) const {
  return !status_ || (has_terminal_ && now_ns < ended_ns_ + kTerminalLagNs);
}

bool ExecSession::OwesWindow() const {
  const bool has_room = taken_ >= kStdinWindow / 2 || (taken_ > 0 && stdin_.empty());
  return has_room && !stdin_ends_ && !is_over_;
}

std::optional<int64_t> ExecSession::deadline_ns() const {
  // There was no room for the message. The command may wait for the client, and that for this.
  if (OwesWindow()) return 0;
  if (!status_ || is_over_) return std::nullopt;
  return has_terminal_ ? ended_ns_ + kTerminalLagNs : ended_ns_;
}

void ExecSession::Reaped(int wait_status, int64_t now_ns) {
  status_ = wait_status;
  ended_ns_ = now_ns;
  budget_ = kAfterEnd;
  child_.terminal = UniqueFd();
}

void ExecSession::Lose(int64_t kill_at_ns) {
  kill(-child_.pid, SIGHUP);
  // A command that was stopped would not notice.
  kill(-child_.pid, SIGCONT);
  child_.in = UniqueFd();
  child_.out = UniqueFd();
  child_.err = UniqueFd();
  child_.terminal = UniqueFd();
  kill_at_ns_ = kill_at_ns;
}

void ExecSession::Kill(int64_t again_at_ns) {
  kill(-child_.pid, SIGKILL);
  kill_at_ns_ = again_at_ns;
}

}  // namespace ringside
