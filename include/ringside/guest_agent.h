// What a program asks the agent of a guest for: commands, files, the clock, random numbers, a clean
// end. The agent is ringside-agent and runs in the guest (docs/agent.md).
//
//   const ringside::GuestAgent agent("/run/vm.vsock");  // VsockConfig::path
//   const auto end = agent.Exec({.arguments = {"uname", "-r"}});
//   if (end.ok() && end->code == 0) Use(end->output);
//
// Threads: any, also at once, and in any process: each call has a connection of its own, and waits.
// Errors: NotFound, PermissionDenied and InvalidArgument are the caller's to mend, those that begin
// with "in the guest:" there; Unavailable: the machine is over, there is no agent, it is silent or
// slower than the patience, or it breaks the protocol; DeadlineExceeded: a limit is over. The guest
// is not trusted with anything: what it says is bounded, and errors are printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ringside/export.h"

namespace ringside {

class AgentClient;

struct GuestCommand {
  std::vector<std::string> arguments;          // the program, looked for in PATH, and its own
  std::vector<std::string> environment = {};   // NAME=VALUE; PATH and HOME are added
  std::string directory = {};                  // empty: the agent's
  std::optional<uint32_t> uid = {}, gid = {};  // unset: the agent's
  std::string input = {};                      // bytes of its standard input
  // After this it is ended, as if its terminal had gone. If not even its start was answered by then
  // the call ends with DeadlineExceeded.
  absl::Duration limit = absl::InfiniteDuration();
  // Bytes that are kept of its output, and of its errors. It is not held up by more, which is
  // dropped.
  size_t most_output = size_t{1} << 20;
};

struct GuestCommandEnd {
  enum class How { kExited, kKilled, kTimedOut } how = How::kExited;
  int code = 0;    // of one that exited
  int signal = 0;  // that killed it
  // As far as they were kept; of one that timed out what came before.
  std::string output, errors;
  bool was_cut = false;  // there was more of them
};

struct GuestAgentVersion {
  uint16_t protocol = 0;
  uint32_t capabilities = 0;  // bits of HELLO (docs/agent.md)
};

class RINGSIDE_EXPORT GuestAgent {
 public:
  static constexpr uint32_t kPort = 5005;

  // Says where it is, and connects to nothing yet. `patience`: for each of the agent's messages,
  // all of it.
  explicit GuestAgent(std::string vsock, uint32_t port = kPort,
                      absl::Duration patience = absl::Seconds(30))
      : vsock_(std::move(vsock)), port_(port), patience_(patience) {}

  // Whether it is there: it has answered.
  absl::StatusOr<GuestAgentVersion> Ping() const;
  // Runs a command to its end. NotFound: it is not there. A command that has ended has a result,
  // whatever its code.
  absl::StatusOr<GuestCommandEnd> Exec(const GuestCommand& command) const;
  // Copy a file, or with `directories` a tree, between this process's files and the guest's, where
  // the path is absolute; a directory at the target takes it under its own name. A file has its
  // name when all of it is there.
  //
  // A guest can send without end, whatever is asked for: `most_bytes` is what its files may have
  // together, where each entry of a directory counts as 4 KiB, too (OutOfRange: it sends more), and
  // `limit` how long all of it may take.
  absl::Status CopyIn(const std::string& from, const std::string& to, bool directories = false,
                      absl::Duration limit = absl::InfiniteDuration()) const;
  absl::Status CopyOut(const std::string& from, const std::string& to, bool directories = false,
                       absl::Duration limit = absl::InfiniteDuration(),
                       uint64_t most_bytes = UINT64_MAX) const;
  absl::Status SetClock(absl::Time now) const;
  // Gives the guest's generator random bytes of this host's, and has it seeded anew at once: for
  // guests that were copied.
  absl::Status RenewRandomness() const;
  // Has the guest end cleanly. The machine's end tells when it has (Machine::Wait).
  absl::Status ShutDown(bool reboot = false) const;

 private:
  RINGSIDE_HIDDEN absl::StatusOr<AgentClient> Connect(
      absl::Duration limit = absl::InfiniteDuration()) const;

  std::string vsock_;
  uint32_t port_;
  absl::Duration patience_;
};

}  // namespace ringside
