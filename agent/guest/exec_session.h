// A command that a client runs: its input and output as messages, its end.
//
// It reads no more of the command's output than its connection can send, so a client that reads
// nothing makes its own command wait and nothing else. What a client has sent ahead of a command
// that reads nothing is kept, up to a window: signals behind it still arrive.
//
// Threads: the agent's only one.
#pragma once

#include <cstdint>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "agent/guest/child.h"

namespace ringside {

class ExecSession {
 public:
  explicit ExecSession(GuestChild child, bool has_terminal)
      : child_(std::move(child)), has_terminal_(has_terminal) {}

  pid_t pid() const { return child_.pid; }

  // False if the client has broken the rules.
  bool TakeStdin(std::string_view data);
  bool EndStdin();
  bool Signal(uint32_t number) const;
  void Resize(TerminalSize size) const;

  // Adds to `polls` what Turn is for.
  void AddPolls(std::vector<pollfd>& polls, bool may_read) const;
  // Appends messages to `out` while it holds less than `limit` bytes; EXIT at last.
  void Turn(std::string& out, size_t limit, int64_t now_ns);
  bool is_over() const { return is_over_; }
  // When Turn has something to do without a descriptor that says so.
  std::optional<int64_t> deadline_ns() const;

  bool has_ended() const { return status_.has_value(); }
  // The process has ended, and its id may soon be another's.
  void Reaped(int wait_status, int64_t now_ns);
  // The client has gone: SIGHUP now, and SIGKILL when `kill_at_ns` has come. Nothing of the command
  // is read any more.
  void Lose(int64_t kill_at_ns);
  // Of one that was lost: kills what is left of its group. Before the process is reaped, so that
  // the id is still its own. `again_at_ns`: when that is to be tried again, should the process not
  // have ended.
  void Kill(int64_t again_at_ns);
  int64_t kill_at_ns() const { return kill_at_ns_; }

 private:
  void WriteStdin();
  void ReadOutput(UniqueFd& fd, AgentType type, std::string& out, int64_t now_ns);
  bool MayStillSpeak(int64_t now_ns) const;
  bool OwesWindow() const;  // STDIN_TAKEN is to be sent

  GuestChild child_;
  const bool has_terminal_;
  std::string stdin_;              // that the command has not taken yet
  size_t allowed_ = kStdinWindow;  // bytes that the client may still send
  size_t taken_ = 0;               // by the command, of which the client was not told yet
  bool stdin_ends_ = false;
  std::optional<int> status_;  // of wait, once it has ended
  int64_t ended_ns_ = 0;
  size_t budget_ = 0;  // bytes that are still read after its end
  int64_t kill_at_ns_ = 0;
  bool is_over_ = false;
};

}  // namespace ringside
