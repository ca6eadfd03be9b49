#include "command/passt.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "command/resolvers.h"
#include "vmm/device_ids.h"

namespace ringside {
namespace {

constexpr int kItsSocket = 3;
constexpr char kResolver[] = "169.254.1.1";  // that of Podman's guests of passt, too
constexpr absl::Duration kPatience = absl::Seconds(1);

std::vector<std::string> Command(const NetConfig& config) {
  // By itself it leads the gateway's address to the host's loopback, where services trust whoever
  // asks: a guest has no business there, but with the resolver of names, where no other is known.
  std::vector<std::string> command = {
      "passt", "--foreground", "--quiet", "--fd", std::to_string(kItsSocket), "--no-map-gw"};
  const std::vector<std::string> resolvers =
      ResolversBehind("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf");
  for (const std::string& address : resolvers) command.insert(command.end(), {"--dns", address});
  // Beside --dns, Debian 12's would lead there to the loopback.
  if (resolvers.empty()) command.insert(command.end(), {"--dns-forward", kResolver});
  if (!config.tcp_ports.empty()) command.insert(command.end(), {"--tcp-ports", config.tcp_ports});
  if (!config.udp_ports.empty()) command.insert(command.end(), {"--udp-ports", config.udp_ports});
  return command;
}

// Its errno. The process has none of the command's signal mask and of its descriptors, whoever
// opened them, and is not the terminal's to interrupt.
int Spawn(const std::vector<std::string>& command, int socket, pid_t& pid) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& each : command) arguments.push_back(const_cast<char*>(each.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  const absl::Cleanup end = [&] {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  };
  posix_spawn_file_actions_adddup2(&actions, socket, kItsSocket);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_addclosefrom_np(&actions, kItsSocket + 1);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  return posix_spawnp(&pid, command.front().c_str(), &actions, &attributes, arguments.data(),
                      environ);
}

}  // namespace

bool Passt::IsInstalled() {
  const char* const path = getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  for (const absl::string_view directory : absl::StrSplit(path != nullptr ? path : "", ':')) {
    if (access(absl::StrCat(directory, "/passt").c_str(), X_OK) == 0) return true;
  }
  return false;
}

absl::StatusOr<std::vector<Passt>> Passt::StartFor(MachineConfig& config) {
  std::vector<Passt> started;
  for (size_t i = 0; i < config.networks.size(); ++i) {
    NetConfig& network = config.networks[i];
    if (!network.user || !network.socket.empty() || network.stream_fd >= 0) continue;
    absl::StatusOr<Passt> passt = Start(network);
    RINGSIDE_RETURN_IF_ERROR(
        Of(absl::StrFormat("network '%s'", NetworkId(network, i)), passt.status()));
    network.stream_fd = passt->fd_.get();
    started.push_back(*std::move(passt));
  }
  return started;
}

absl::StatusOr<Passt> Passt::Start(const NetConfig& config) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(errno, "cannot make a pair of sockets", "raise 'ulimit -n'");
  }
  UniqueFd own(ends[0]);
  const UniqueFd its(ends[1]);
  pid_t pid = -1;
  const int error = Spawn(Command(config), its.get(), pid);
  if (error == 0) {
    return Passt(std::move(own), pid,
                 absl::StrFormat("tcp='%s' and udp='%s'", config.tcp_ports, config.udp_ports));
  }
  return absl::FailedPreconditionError(
      ErrnoError(error, "cannot start 'passt'",
                 "install Debian's package 'passt', or give socket=PATH of one that runs, or tap=")
          .message());
}

// It says nothing when it is ready, but what it cannot do it finds out at once.
absl::Status Passt::CheckRuns() const {
  constexpr int kSettlesMs = 20;
  pollfd hang_up = {.fd = fd_.get(), .events = 0, .revents = 0};
  if (poll(&hang_up, 1, kSettlesMs) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "passt has ended at once, as it says above; mend %s, or give the host a network", ports_));
}

// Whether it is over within the limit. There is nothing to wait at but the process itself.
bool Passt::EndsSoon() const {
  const absl::Time deadline = absl::Now() + kPatience;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

Passt::~Passt() {
  if (pid_ < 0) return;
  fd_ = UniqueFd();
  for (const int signal : {SIGTERM, SIGKILL}) {
    if (EndsSoon()) return;
    kill(pid_, signal);
  }
  waitpid(pid_, nullptr, 0);
}

}  // namespace ringside
