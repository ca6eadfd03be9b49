// The passt of a network without rights on the host: a process of the command's, connected with
// the machine by a pair of sockets. It ends by itself when the machine's end is closed, and so also
// when the command is killed.
//
// Threads: one at a time.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/statusor.h"
#include "base/fd.h"
#include "ringside/config.h"

namespace ringside {

class Passt {
 public:
  // Whether there is one to start.
  static bool IsInstalled();
  // For each user network that has none, and sets its stream_fd. FailedPrecondition: passt is not
  // installed.
  static absl::StatusOr<std::vector<Passt>> StartFor(MachineConfig& config);

  // FailedPrecondition: it has ended, or does within some milliseconds, as it could not do what it
  // was asked for; its own words are on standard error.
  absl::Status CheckRuns() const;

  // Once the machine is gone. Waits for the process, and ends it if it does not end by itself.
  ~Passt();
  Passt(Passt&& other) noexcept
      : fd_(std::move(other.fd_)),
        pid_(std::exchange(other.pid_, -1)),
        ports_(std::move(other.ports_)) {}
  Passt& operator=(Passt&&) = delete;

 private:
  Passt(UniqueFd fd, pid_t pid, std::string ports)
      : fd_(std::move(fd)), pid_(pid), ports_(std::move(ports)) {}
  static absl::StatusOr<Passt> Start(const NetConfig& config);
  bool EndsSoon() const;

  UniqueFd fd_;  // the machine's end
  pid_t pid_;
  std::string ports_;  // that it was asked for, for messages
};

}  // namespace ringside
