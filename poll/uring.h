// The io_uring of an I/O thread: disk operations, eventfds and the thread's sleep on one ring.
//
// Threads: everything on the thread that created it (IORING_SETUP_SINGLE_ISSUER); enters from any.
// Limits: IORING_REGISTER_RESTRICTIONS are on: only the operations in uring.cc's list.
// Spec: io_uring_setup(2), io_uring_enter(2), io_uring_register(2), Linux 6.1.
#pragma once

#include <cstdint>
#include <liburing.h>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/counter.h"

namespace ringside {

// What setting up a ring failed with, and its remedy: FailedPrecondition.
absl::Status UringSetUpError(int error);

// An operation in flight. Belongs to whoever pushed it and stays until Complete is called, which is
// once for every Push.
class UringOp {
 public:
  // `result` is the operation's: a count, or a negative errno.
  virtual void Complete(int32_t result) = 0;

 protected:
  ~UringOp() = default;
};

// Told of writes to an eventfd, not of each one.
class EventfdListener {
 public:
  virtual void Written() = 0;

 protected:
  ~EventfdListener() = default;
};

// Which writes to an eventfd matter. kAlways: all. kWhileWanted: of one that is written whether
// anybody sleeps or not, those while somebody wants to be woken. The ring reads it then.
enum class Watching { kAlways, kWhileWanted };

// kWithCommands: entries have room for a command of a driver's (IORING_OP_URING_CMD), for which all
// of a ring's are twice as large.
enum class UringEntries { kUsual, kWithCommands };

class Uring {
 public:
  // How many files can be registered, if the limit of open ones (RLIMIT_NOFILE) is not below it.
  static constexpr unsigned kUsualFiles = 1024;
  static constexpr unsigned kManyFiles = 16 << 10;  // the table has 16 bytes of each

  // FailedPrecondition where io_uring is forbidden or too old.
  static absl::StatusOr<std::unique_ptr<Uring>> Create(UringEntries entries = UringEntries::kUsual,
                                                       unsigned files = kUsualFiles);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // Queues an operation on a registered file (entry.fd is the index RegisterFile returned). It
  // starts with the next Enter. False if the ring takes no more right now: try again in a later
  // turn.
  bool Push(const io_uring_sqe& entry, UringOp& op);
  // The same for a driver's command, which is copied: `operation` is the driver's, and `file` one
  // that RegisterFile returned. Only if the ring takes_commands.
  static constexpr size_t kCommandSize = 80;
  bool PushCommand(int file, uint32_t operation, std::span<const std::byte> command, UringOp& op);
  bool takes_commands() const { return (ring_.flags & IORING_SETUP_SQE128) != 0; }

  absl::StatusOr<int> RegisterFile(int fd);
  void UnregisterFile(int index);
  // What was pushed for this file and has not been begun, or can be broken off, ends with
  // -ECANCELED.
  void CancelFile(int index);

  // From now on every write to the eventfd ends the sleep, and the listener, if any, is told in the
  // next Reap. It does not Watch. Unwatch before the eventfd is closed.
  void Watch(int eventfd, EventfdListener* listener = nullptr,
             Watching watching = Watching::kAlways);
  void Unwatch(int eventfd);
  // Of a watch of kWhileWanted, as it is at first: whether writes end the sleep. Wanted again it
  // forgets those before: whoever wants it looks once more at what they told of before it sleeps.
  // The kernel gets to know with the call that sleeps.
  void Want(int eventfd, bool wanted);
  // With the next call, although it may not sleep: writes are to be told to listeners too.
  void WantNow() { watches_changed_ |= wishes_changed_; }

  // A look at memory: whether Reap would find something.
  bool HasCompletions() const { return io_uring_cq_ready(&ring_) != 0 || KernelHoldsCompletions(); }
  // Runs what has completed, and says whether an operation has. No system call, unless the kernel
  // holds completions back.
  bool Reap() { return HasCompletions() && ReapAll(); }
  static constexpr int64_t kForever = INT64_MAX;
  // Passes what is queued to the kernel, and sleeps until something has completed or, ns, the time
  // is over. One system call, and none if nothing is queued and the time is 0.
  void Enter(int64_t sleep_ns = 0) {
    if (sleep_ns != 0 || watches_changed_ || io_uring_sq_ready(&ring_) != 0) EnterKernel(sleep_ns);
  }

  // io_uring_enter calls.
  uint64_t enters() const { return enters_.Get(); }

 private:
  // A poll of one eventfd, multishot if that is always watched. It stays in its place until the
  // kernel has let go of it.
  struct Watched {
    int fd = -1;  // -1: free, or closing
    EventfdListener* listener = nullptr;
    Watching watching = Watching::kAlways;
    bool wanted = true;
    bool must_arm = false;
    bool must_cancel = false;
    bool armed = false;  // the kernel will complete it once more
  };

  Uring() = default;
  absl::Status SetUp(UringEntries entries, unsigned files);
  absl::Status Restrict();
  // Deferred, or overflown.
  bool KernelHoldsCompletions() const {
    const unsigned flags = IO_URING_READ_ONCE(*ring_.sq.kflags);
    return (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
  }
  bool ReapAll();
  void EnterKernel(int64_t sleep_ns);
  io_uring_sqe* NextEntry();
  void Rearm(Watched& watched);
  // Whether that was all that is needed.
  bool PushWatches(bool sleeps);
  void CompleteWatch(size_t slot, int32_t result, uint32_t flags);

  io_uring ring_ = {};
  bool set_up_ = false;
  std::vector<int> free_files_;
  std::vector<Watched> watched_;
  bool watches_changed_ = false;
  bool wishes_changed_ = false;  // so that the next sleep needs another poll
  Counter enters_;
};

}  // namespace ringside
