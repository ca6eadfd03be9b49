// What a program on the host can ask the agent of a guest for, but for commands (exec_client.h).
//
// Threads: one at a time, but for Cancel; each call waits for its answer. Errors are those of
// AgentChannel, and what the guest says. After an error of Put or Get the connection is of no use
// any more.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "agent/agent_channel.h"
#include "agent/tree_reader.h"

namespace ringside {

class AgentClient {
 public:
  static absl::StatusOr<AgentClient> Connect(const std::string& path, uint32_t port,
                                             const AgentTime& time = {});
  explicit AgentClient(AgentChannel channel) : channel_(std::move(channel)) {}

  const HelloMessage& hello() const { return channel_.hello(); }
  absl::Status Ping();
  absl::Status SetClock(absl::Time now);
  // At most 512 bytes. They should be random, and the host's secret.
  absl::Status AddEntropy(std::string_view bytes);
  // The guest has been told; when it ends is the machine's to say.
  absl::Status ShutDown(ShutDownHow how);

  // How much was copied of the file under way, and of how many bytes it was.
  using Progress = std::function<void(uint64_t done, uint64_t size)>;
  // Puts what is read from `tree` at this absolute path of the guest; if a directory is there, into
  // that.
  absl::Status Put(TreeReader& tree, std::string_view path, const Progress& progress);
  // Hands each message of the tree at this absolute path of the guest to `take`: ENTRY, DATA,
  // FILE_END, LEAVE, TREE_END (docs/agent.md), for a TreeWriter for example. The guest is not
  // trusted with their order.
  absl::Status Get(std::string_view path, bool with_directories,
                   const std::function<absl::Status(const AgentFrame&)>& take);
  // As AgentChannel's.
  void Cancel() const { channel_.Cancel(); }

 private:
  absl::Status Ask();

  AgentChannel channel_;
};

absl::Status StatusOfFault(const AgentFault& fault);

}  // namespace ringside
