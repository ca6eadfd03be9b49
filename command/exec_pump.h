// Carries what a command in a guest reads and writes, and the signals that are for it, between its
// connection and this process's descriptors.
//
// Threads: the main thread, which it keeps until the command has ended. The descriptors may be
// anybody's, so they stay blocking: no more is written than poll says there is room for.
#pragma once

#include <array>
#include <optional>
#include <poll.h>
#include <string>

#include "agent/exec_client.h"
#include "base/fd.h"

namespace ringside {

class ExecPump {
 public:
  // Without `with_input` the command's input stays open and empty, or has ended: that is the
  // caller's to say. From here on SIGINT, SIGTERM, SIGHUP and SIGWINCH are the command's.
  ExecPump(ExecClient client, bool with_input);

  // Returns the exit code; 128 + n if a signal ended the command, or this process has to end by it:
  // SIGQUIT, or SIGPIPE if nobody reads its output any more.
  absl::StatusOr<int> Run();

 private:
  // Of `fds`.
  enum Place { kAgent, kInput, kSignals, kOutput, kErrors, kPlaces };
  using Fds = std::array<pollfd, kPlaces>;

  void Fill(Fds& fds) const;
  absl::Status TakeEvents();
  void ReadInput();
  std::optional<int> TakeSignals();
  bool WriteSome(int fd, std::string& pending);
  bool has_pending() const { return !output_.empty() || !errors_.empty(); }

  ExecClient client_;
  bool with_input_;
  UniqueFd signals_;
  std::string output_, errors_;  // to be written
  std::optional<int> exit_code_;
};

// Of the terminal that is there; false if none is.
bool ReadTerminalSize(TerminalSize& size);

}  // namespace ringside
