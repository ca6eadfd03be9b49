// ringside-agent: what runs in a guest. docs/agent.md has its use and its protocol.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/agent_fault.h"
#include "agent/guest/agent_options.h"
#include "agent/guest/agent_server.h"
#include "agent/guest/guest_init.h"
#include "agent/guest/guest_system.h"

namespace ringside {
namespace {

constexpr int kBacklog = 128;

UniqueFd ListenOnVsock(uint32_t port) {
  UniqueFd fd(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;  // the kernel has no vsock
  sockaddr_vm address = {};
  address.svm_family = AF_VSOCK;
  address.svm_port = port;
  address.svm_cid = VMADDR_CID_ANY;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return {};
  }
  return fd;
}

UniqueFd ListenOnUnix(std::string_view path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return {};
  }
  path.copy(address.sun_path, path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fd;
  umask(077);  // who connects runs commands as this user
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return {};
  }
  return fd;
}

UniqueFd BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that may not be as long is its client's error alone
  return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Connections and trees take descriptors. Returns what the limit was.
rlimit RaiseFiles() {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit raised = before;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

// With the agent's own input and output: a guest's console, if it is PID 1.
int StartBeside(char* const* command) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  pid_t pid;
  const int error = posix_spawnp(&pid, command[0], nullptr, &attributes, command, environ);
  posix_spawnattr_destroy(&attributes);
  return error;
}

int AgentMain(int argc, char* const* argv) {
  AgentOptions options;
  if (const std::string wrong = ParseAgentOptions(argc, argv, options); !wrong.empty()) {
    Say(wrong);
    return 2;
  }
  if (options.shows_help) {
    return write(STDOUT_FILENO, kAgentHelp, strlen(kAgentHelp)) < 0 ? 1 : 0;
  }
  const bool is_init = getpid() == 1;
  if (is_init) MountBasics();
  const bool is_unix = options.unix_path != nullptr;
  UniqueFd listener = is_unix ? ListenOnUnix(options.unix_path) : ListenOnVsock(options.port);
  if (!listener.valid()) {
    const std::string port = std::to_string(options.port);
    Say(is_unix ? AgentFault::Of(errno, "cannot listen on", options.unix_path).text
                : AgentFault::Of(errno, "cannot listen on vsock port", port).text);
    // A kernel without PID 1 panics; one without this can still run its command.
    if (!is_init) return 1;
  }
  UniqueFd signals = BlockSignals();
  AgentServer server(std::move(listener), std::move(signals), is_unix, is_init, RaiseFiles());
  if (options.command != nullptr) {
    if (const int error = StartBeside(options.command); error != 0) {
      Say(AgentFault::Of(error, "cannot run", options.command[0]).text);
      if (!is_init) return 1;
    }
  }
  return server.Run();
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  return ringside::AgentMain(argc, argv);
}
