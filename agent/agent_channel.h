// A connection to the agent of a guest, as a client has it: through the Unix socket that a
// machine's vsock device has on the host (docs/agent.md), and the hellos of both sides.
//
// Threads: one at a time, but for Cancel. Ownership: it owns the socket. Errors: NotFound,
// PermissionDenied and InvalidArgument are the caller's to mend; Unavailable says that the agent
// has gone, has broken the protocol, or has tried the patience; DeadlineExceeded: the limit is
// over.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_message.h"
#include "base/sync.h"
#include "base/unique_fd.h"

namespace ringside {

// What time an agent has. It is not trusted to be done: whoever sends a byte now and then is
// neither silent nor of any use.
struct AgentTime {
  // For one message, all of it; and for taking what it is sent at once.
  absl::Duration patience = absl::Seconds(30);
  // For everything, from Connect on.
  absl::Duration limit = absl::InfiniteDuration();
};

class AgentChannel {
 public:
  // Waits for the agent's hello.
  static absl::StatusOr<AgentChannel> Connect(const std::string& path, uint32_t port,
                                              const AgentTime& time);
  // The same on a stream socket that is connected to the agent.
  static absl::StatusOr<AgentChannel> Greet(UniqueFd socket, const AgentTime& time);

  int fd() const { return fd_.get(); }
  // When the limit is over.
  Deadline deadline() const { return deadline_; }
  const HelloMessage& hello() const { return hello_; }

  // Frames that are to be sent, for Encode and AppendFrame.
  std::string& out() { return out_; }
  bool has_out() const { return !out_.empty(); }
  // What the socket takes of them, without waiting; all of them, waiting.
  absl::Status Flush();
  absl::Status FlushAll();

  // Reads what is there, without waiting.
  absl::Status Fill();
  // The next frame of what was read; nothing if none is whole. It points into the channel, until
  // the next call of anything but out().
  absl::StatusOr<std::optional<AgentFrame>> Next();
  // The same, waiting for it.
  absl::StatusOr<AgentFrame> Receive();
  // Waits for DONE; an ERROR is the status.
  absl::Status ReceiveDone();
  // Ends the connection, for whoever waits for it, too: Unavailable. From any thread while the
  // channel is there.
  void Cancel() const;

 private:
  AgentChannel(UniqueFd fd, const AgentTime& time, Deadline deadline)
      : fd_(std::move(fd)), time_(time), deadline_(deadline) {}

  static absl::StatusOr<AgentChannel> Greet(AgentChannel channel);
  absl::Status ExchangeHellos();
  absl::Status Wait(short events, Deadline patient_until) const;

  UniqueFd fd_;
  AgentTime time_;
  Deadline deadline_;
  HelloMessage hello_;
  std::string in_, out_;
  size_t taken_ = 0;  // bytes of in_
};

// What an ERROR says. Its text is the guest's: it is made printable.
absl::Status StatusOfError(const AgentFrame& frame);
absl::Status AgentBroke(std::string_view what);

}  // namespace ringside
