// A connection to the agent of a guest, as a client has it: through the Unix socket that a
// machine's vsock device has on the host (docs/agent.md), and the hellos of both sides.
//
// Threads: one at a time. Ownership: it owns the socket. Errors: NotFound, PermissionDenied and
// InvalidArgument are the caller's to mend; Unavailable says that the agent has gone, has broken
// the protocol, or is silent.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/agent_message.h"
#include "base/unique_fd.h"

namespace ringside {

class AgentChannel {
 public:
  // Waits for the agent's hello. `limit` is for each wait of the channel.
  static absl::StatusOr<AgentChannel> Connect(const std::string& path, uint32_t port,
                                              absl::Duration limit);
  // The same on a stream socket that is connected to the agent.
  static absl::StatusOr<AgentChannel> Greet(UniqueFd socket, absl::Duration limit);

  int fd() const { return fd_.get(); }
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

 private:
  AgentChannel(UniqueFd fd, absl::Duration limit) : fd_(std::move(fd)), limit_(limit) {}

  absl::Status ExchangeHellos();
  absl::Status Wait(short events) const;

  UniqueFd fd_;
  absl::Duration limit_;
  HelloMessage hello_;
  std::string in_, out_;
  size_t taken_ = 0;  // bytes of in_
};

// What an ERROR says. Its text is the guest's: it is made printable.
absl::Status StatusOfError(const AgentFrame& frame);
absl::Status AgentBroke(std::string_view what);

}  // namespace ringside
