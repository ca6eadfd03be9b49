// Whether the agent of a guest (docs/agent.md) can be reached: keeps a connection to it through the
// machine's own vsock, and tells when it has answered and when it is gone. A connection that ends
// is made anew before the agent is called gone: an agent whose places are all taken closes those
// that are idle.
//
// In a machine that goes on from a file it has the agent renew the guest's random numbers first, as
// other machines may go on from the same file, and a kernel without a driver for VMGENID does not
// learn of that. Where nobody wants to be told it is there for that alone, and ends once it is
// done; for ten seconds it asks again where nobody takes its connection, and one that is taken it
// keeps until it is answered or ends.
//
// It costs nothing while the agent is there, and while the vsock has no driver or the machine
// rests: the connection waits in the socket's backlog. Otherwise it asks again, first after 10 ms
// and then ever less often, once a second in the end; so a guest whose agent comes and goes all the
// time is told of about once a second.
//
// Threads: made, begun and ended on any but the I/O thread, on which `told` is called: it must not
// block. Ownership: the I/O thread outlives it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/log.h"
#include "poll/io_thread.h"

namespace ringside {

class AgentWatch {
 public:
  static constexpr int64_t kFirstDelayNs = 10'000'000;
  static constexpr int64_t kLastDelayNs = 1'000'000'000;
  static constexpr int64_t kSteadyNs = 1'000'000'000;  // an answer for so long makes delays short

  static constexpr int64_t kRenewalLimitNs = 10'000'000'000;

  struct Config {
    std::string path;                   // of the vsock's socket
    std::function<void(bool up)> told;  // null: nobody wants to know
    bool renews = false;                // the guest is a copy
    Logger log = Logger();
  };
  AgentWatch(Config config, IoThread& io_thread)
      : config_(std::move(config)), io_thread_(io_thread), to_renew_(config_.renews) {}
  // Nothing is told from then on.
  ~AgentWatch();
  AgentWatch(const AgentWatch&) = delete;
  AgentWatch& operator=(const AgentWatch&) = delete;

  // Once; after that it does nothing.
  void Begin();

 private:
  class Connection final : public FdWatch {
   public:
    Connection(UniqueFd fd, AgentWatch& watch)
        : FdWatch(fd.get(), EPOLLIN), fd_(std::move(fd)), watch_(watch) {}
    int fd() const { return fd_.get(); }
    void Ready() override { watch_.Read(); }

   private:
    const UniqueFd fd_;
    AgentWatch& watch_;
  };

  // All on the I/O thread.
  void Connect();
  UniqueFd Ask() const;
  void Expired(int64_t /*now_ns*/) { Connect(); }
  void Read();
  bool ReadSome();
  enum class Said { kPart, kAll, kWrong };
  Said Parse();
  Said ParseAnswers(std::string_view answers);
  bool is_wanted() const;
  void Answered();
  void Tell(bool up);
  void Gone();
  void Drop();

  const Config config_;
  IoThread& io_thread_;

  int64_t begun_ns_ = 0;
  bool to_renew_;  // with the next question
  std::optional<Connection> connection_;
  std::string said_;         // by the agent, on this connection
  std::string refusal_;      // of what was to be renewed; empty: none
  int64_t answered_ns_ = 0;  // 0: not on this connection
  bool is_over_ = false;     // it is being destroyed
  bool is_up_ = false;       // as was told
  int64_t delay_ns_ = kFirstDelayNs;
  TimerTo<AgentWatch, &AgentWatch::Expired> again_{*this};
  TaskTo<AgentWatch, &AgentWatch::Connect> connect_{*this};
  TaskTo<AgentWatch, &AgentWatch::Gone> gone_{*this};
};

}  // namespace ringside
