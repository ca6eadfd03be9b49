#include "agent/guest/agent_server.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <linux/vm_sockets.h>
#include <span>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "agent/guest/guest_shutdown.h"
#include "agent/guest/guest_system.h"

namespace ringside {
namespace {

// Commands whose client has gone count until they have ended, so that no more of them are about.
constexpr size_t kMostConnections = 128;
constexpr int64_t kGraceNs = 1'000'000'000;      // from SIGHUP to SIGKILL
constexpr int64_t kAcceptAgainNs = 200'000'000;  // after one that failed

// Any program in the guest can connect to its own ports (vsock_loopback): the agent, which runs
// commands as root, listens to the host alone.
bool IsOfHost(const sockaddr_storage& peer) {
  if (peer.ss_family != AF_VSOCK) return true;  // a Unix socket, whose file has permissions
  return reinterpret_cast<const sockaddr_vm&>(peer).svm_cid == VMADDR_CID_HOST;
}

void Refuse(const UniqueFd& connection, bool with_greeting) {
  std::string text = with_greeting ? "OK 0\n" : "";
  Encode(HelloMessage{}, text);
  Encode(ErrorMessage{.error = EAGAIN, .text = "the agent has too many connections"}, text);
  send(connection.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

AgentServer::AgentServer(UniqueFd listener, UniqueFd signals, bool with_greeting, bool is_init,
                         const rlimit& files)
    : listener_(std::move(listener)),
      signals_(std::move(signals)),
      with_greeting_(with_greeting),
      is_init_(is_init),
      button_(is_init),
      state_{.files = files, .shut_down = {}} {}

int AgentServer::Run() {
  while (!is_leaving_ || used() > 0) {
    Fill();
    const int ready = poll(polls_.data(), polls_.size(), Timeout(GuestMonotonicNs()));
    if (ready < 0 && errno != EINTR) return 1;
    const int64_t now_ns = GuestMonotonicNs();
    TakeSignals(now_ns);
    TurnConnections(now_ns);
    KillLost(now_ns);
    const bool may_accept = accept_at_ns_.value_or(now_ns + 1) <= now_ns;
    if (!is_leaving_ && (polls_[0].revents != 0 || may_accept)) Accept(now_ns);
    if (button_.WasPressed(now_ns)) state_.shut_down = ShutDownHow::kPowerOff;
    if (state_.shut_down) {
      const ShutDownHow how = *state_.shut_down;
      state_.shut_down.reset();
      ShutDown(how);
    }
  }
  return 0;
}

void AgentServer::Fill() {
  polls_.clear();
  polls_.push_back({is_leaving_ || accept_at_ns_ ? -1 : listener_.get(), POLLIN, 0});
  polls_.push_back({signals_.get(), POLLIN, 0});
  polls_.push_back({button_.fd(), POLLIN, 0});
  places_.clear();
  for (const AgentConnection& connection : connections_) {
    places_.push_back(polls_.size());
    connection.AddPolls(polls_);
  }
  places_.push_back(polls_.size());
}

// In milliseconds, rounded up; -1: none.
int AgentServer::Timeout(int64_t now_ns) const {
  std::optional<int64_t> first = button_.deadline_ns();
  const auto consider = [&first](std::optional<int64_t> deadline) {
    if (deadline) first = std::min(*deadline, first.value_or(*deadline));
  };
  consider(accept_at_ns_);
  for (const AgentConnection& connection : connections_) consider(connection.deadline_ns());
  for (const auto& session : lost_) consider(session->kill_at_ns());
  if (!first) return -1;
  return static_cast<int>(std::max<int64_t>(0, (*first - now_ns + 999'999) / 1'000'000));
}

void AgentServer::Accept(int64_t now_ns) {
  accept_at_ns_.reset();
  sockaddr_storage peer = {};
  socklen_t size = sizeof peer;
  UniqueFd connection(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    // The client is still in the backlog, and poll would report it again at once.
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      DropIdle();
      accept_at_ns_ = now_ns + kAcceptAgainNs;
    }
    return;
  }
  if (!IsOfHost(peer)) return;
  if (used() >= kMostConnections && !DropIdle()) {
    Refuse(connection, with_greeting_);
    return;
  }
  connections_.emplace_back(std::move(connection), with_greeting_, state_, now_ns);
}

// The connection that has been idle for longest gives its place to another. False if none is idle.
bool AgentServer::DropIdle() {
  auto oldest = connections_.end();
  for (auto each = connections_.begin(); each != connections_.end(); ++each) {
    if (!each->idle_since_ns()) continue;
    if (oldest == connections_.end() || *each->idle_since_ns() < *oldest->idle_since_ns()) {
      oldest = each;
    }
  }
  if (oldest == connections_.end()) return false;
  connections_.erase(oldest);
  return true;
}

void AgentServer::TurnConnections(int64_t now_ns) {
  size_t number = 0;
  for (auto each = connections_.begin(); each != connections_.end(); ++number) {
    const std::span polls =
        std::span(polls_).subspan(places_[number], places_[number + 1] - places_[number]);
    const bool is_ready =
        std::ranges::any_of(polls, [](const pollfd& p) { return p.revents != 0; });
    const bool is_due = each->deadline_ns().value_or(now_ns + 1) <= now_ns;
    if (is_ready || is_due) each->Turn(polls.front().revents, now_ns);
    if (!each->is_over()) {
      ++each;
      continue;
    }
    if (each->session() != nullptr) Lose(each->TakeSession(), now_ns);
    each = connections_.erase(each);
  }
}

void AgentServer::TakeSignals(int64_t now_ns) {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGCHLD) continue;  // several may have come as one
    if (!is_init_) {
      Leave(now_ns);
    } else {
      // The kernel sends SIGINT for Ctrl-Alt-Del.
      state_.shut_down = info.ssi_signo == SIGINT ? ShutDownHow::kReboot : ShutDownHow::kPowerOff;
    }
  }
  Reap(now_ns);
}

// A process is looked at before it is reaped: until then its id, and its group's, are nobody
// else's.
void AgentServer::Reap(int64_t now_ns) {
  for (;;) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const pid_t pid = info.si_pid;
    const auto lost = std::ranges::find_if(lost_, [pid](const auto& s) { return s->pid() == pid; });
    if (lost != lost_.end()) (*lost)->Kill(now_ns);
    int status = 0;
    waitpid(pid, &status, 0);
    if (lost != lost_.end()) {
      lost_.erase(lost);
      continue;
    }
    for (AgentConnection& connection : connections_) {
      ExecSession* const session = connection.session();
      if (session != nullptr && session->pid() == pid) session->Reaped(status, now_ns);
    }
  }
}

void AgentServer::KillLost(int64_t now_ns) {
  for (const auto& session : lost_) {
    if (session->kill_at_ns() <= now_ns) session->Kill(now_ns + kGraceNs);
  }
}

void AgentServer::Lose(std::unique_ptr<ExecSession> session, int64_t now_ns) {
  if (session->has_ended()) return;
  session->Lose(now_ns + kGraceNs);
  lost_.push_back(std::move(session));
}

void AgentServer::ShutDown(ShutDownHow how) {
  if (is_init_) ShutDownAsInit(how);
  if (!AskInitToShutDown(how)) Say("cannot run what shuts this guest down");
}

// The commands end as they do when their clients have gone.
void AgentServer::Leave(int64_t now_ns) {
  is_leaving_ = true;
  accept_at_ns_.reset();  // which would be due for ever
  for (AgentConnection& connection : connections_) {
    if (connection.session() != nullptr) Lose(connection.TakeSession(), now_ns);
  }
  connections_.clear();
}

}  // namespace ringside
