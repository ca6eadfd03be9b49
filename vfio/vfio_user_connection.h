// A connection to a vfio-user server: commands with their answers, and a thread that reads what
// comes and passes on what the server asks by itself.
//
// Nobody waits for a server that reads slowly, and nobody holds a lock while he waits for its
// answer. What the socket has no room for is left to the thread, which sends it when there is room
// and reads nothing more until then, so that of answers to the server's own commands there is one
// at a time. The time-out of a command counts from its call: waiting for its turn, sending it and
// the answer are all in it.
//
// Threads: any; but Call, which waits, not the connection's own. Handler's functions are called on
// the connection's thread, one at a time, and wait for nobody who calls. Ownership: the handler and
// the event outlive the connection; its end waits for its thread, so its last owner is never that
// thread. Errors: Unavailable when the connection is broken, for all calls from then on; what the
// server answers as an error is that error, and the connection goes on. It breaks when the server
// closes it, sends what is no answer, leaves a command unanswered for the time-out, or does not
// take an answer to its own within it. Spec: as vfio_user_protocol.h, "Client/server
// interactions".
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "base/sync.h"
#include "vfio/vfio_user_message.h"

namespace ringside {

class VfioUserConnection {
 public:
  using Answer = absl::StatusOr<VfioUserMessage>;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  class Handler {
   public:
    virtual ~Handler() = default;
    // A command of the server's: the payload of the answer, or an error.
    virtual absl::StatusOr<VfioUserPayload> Serve(const VfioUserMessage& command) = 0;
    // The event was signalled, the time is there that this returned last (MonotonicNs, or
    // kNever), or the connection has just begun.
    virtual int64_t Woken(VfioUserConnection& connection) = 0;
    // The connection is broken; the thread's last word.
    virtual void Gone(VfioUserConnection& connection, const absl::Status& why) = 0;
  };

  // `wake`: wakes the thread for Handler::Woken. Errors name the socket.
  static absl::StatusOr<std::shared_ptr<VfioUserConnection>> Connect(const std::string& path,
                                                                     absl::Duration timeout,
                                                                     Handler& handler,
                                                                     const EventFd& wake);
  ~VfioUserConnection();

  // Waits for the answer, whose command is the same. `fds`: no more than the server takes.
  Answer Call(VfioUserCommand command, std::span<const std::byte> payload,
              std::span<const int> fds = {});
  // Does not wait; `done` is called on the thread, or at once if the connection is broken.
  void Start(VfioUserCommand command, std::span<const std::byte> payload, std::span<const int> fds,
             std::function<void(Answer)> done);
  // The first reason counts.
  void Break(absl::Status why);
  // It breaks then (MonotonicNs), however soon each answer comes, unless another time is set
  // before.
  void EndBy(int64_t end_ns);
  // For good: it breaks then (MonotonicNs) if anything is under way, or else with the next command.
  void Hurry(int64_t end_ns);
  // Why it is broken. When Handler::Gone is called it is, already.
  absl::Status status();

 private:
  struct Pending {
    VfioUserCommand command;
    std::function<void(Answer)> done;
    int64_t deadline_ns;  // that the thread looks after, or none
  };

  VfioUserConnection(absl::Duration timeout, UniqueFd socket, Handler& handler, const EventFd& wake)
      : timeout_ns_(absl::ToInt64Nanoseconds(timeout)),
        socket_(std::move(socket)),
        handler_(handler),
        wake_(wake) {}

  void Submit(VfioUserCommand command, std::span<const std::byte> payload, std::span<const int> fds,
              Pending pending);
  // To what is to be sent; the command's id.
  absl::StatusOr<uint16_t> Add(VfioUserCommand command, std::span<const std::byte> payload,
                               std::span<const int> fds, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of all but calls, which look after theirs.
  int64_t Deadline() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Why it breaks when that has passed.
  absl::Status Overdue(int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status NotAnswered() const;
  void Run();
  // These tell whether the connection holds.
  bool BreakIfOver();
  bool SendMore();
  bool Read();
  bool TakeMessage(VfioUserMessage message);
  bool TakeCommand(const VfioUserMessage& command);
  bool HasUnsent();

  const int64_t timeout_ns_;
  const UniqueFd socket_;
  Handler& handler_;
  const EventFd& wake_;
  std::thread thread_;
  VfioUserReader reader_;  // the thread's
  std::atomic<bool> stop_ = false;

  Mutex mutex_;                                        // held by nobody who waits
  int64_t end_ns_ ABSL_GUARDED_BY(mutex_) = kNever;    // EndBy
  int64_t hurry_ns_ ABSL_GUARDED_BY(mutex_) = kNever;  // Hurry
  VfioUserWriter writer_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  uint16_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint16_t, Pending> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ringside
