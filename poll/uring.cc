#include "poll/uring.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include "base/status.h"

namespace ringside {
namespace {

constexpr unsigned kSubmissions = 256;
// Room for every request of a few full queues; the kernel keeps what does not fit.
constexpr unsigned kCompletions = 4096;
// Of the kernel's threads for what cannot be done without waiting, where many machines have it.
constexpr unsigned kManyWorkers = 256;

// user_data: the address of a UringOp; or, odd, twice a place in watched_ plus one; or 0 for what
// nobody waits for.
constexpr uint64_t kNobody = 0;
constexpr uint64_t WatchData(size_t slot) {
  return uint64_t{slot} << 1 | 1;
}

constexpr std::array<uint8_t, 8> kAllowedOperations = {
    IORING_OP_READ,  IORING_OP_WRITE,     IORING_OP_READV,    IORING_OP_WRITEV,
    IORING_OP_FSYNC, IORING_OP_FALLOCATE, IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL};

}  // namespace

absl::Status UringSetUpError(int error) {
  const char* remedy = error == ENOMEM ? "raise 'ulimit -l'"
                                       : "it needs Linux 6.1, 'sysctl kernel.io_uring_disabled' of "
                                         "0 and a container that allows it";
  return absl::FailedPreconditionError(
      ErrnoError(error, "io_uring cannot be used", remedy).message());
}

absl::StatusOr<std::unique_ptr<Uring>> Uring::Create(UringEntries entries, unsigned files) {
  std::unique_ptr<Uring> uring(new Uring);
  RINGSIDE_RETURN_IF_ERROR(uring->SetUp(entries, files));
  return uring;
}

absl::Status Uring::SetUp(UringEntries entries, unsigned files) {
  io_uring_params params = {};
  // TASKRUN_FLAG shows in memory that completions wait to be processed. SUBMIT_ALL: an entry that
  // is refused holds up none of those behind it. Disabled until the restrictions are on.
  params.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL |
                 IORING_SETUP_CQSIZE | IORING_SETUP_R_DISABLED;
  // DEFER_TASKRUN: completions are processed when this thread asks, in batches. COOP_TASKRUN: also
  // whenever it is in the kernel, as for the interrupt of an NVMe queue of its own processor; none
  // is sent for it to another one.
  params.flags |= entries == UringEntries::kWithCommands
                      ? IORING_SETUP_SQE128 | IORING_SETUP_CQE32 | IORING_SETUP_COOP_TASKRUN
                      : IORING_SETUP_DEFER_TASKRUN;
  params.cq_entries = kCompletions;
  if (const int error = io_uring_queue_init_params(kSubmissions, &ring_, &params); error < 0) {
    return UringSetUpError(-error);
  }
  set_up_ = true;

  rlimit open_files = {};
  getrlimit(RLIMIT_NOFILE, &open_files);
  const auto count = static_cast<unsigned>(std::min<rlim_t>(files, open_files.rlim_cur));
  if (const int error = io_uring_register_files_sparse(&ring_, count); error < 0) {
    return UringSetUpError(-error);
  }
  for (int index = static_cast<int>(count) - 1; index >= 0; --index) free_files_.push_back(index);
  if (files > kUsualFiles) {
    // By default four for each processor: what waits for the storage of some would hold up others.
    std::array<unsigned, 2> workers = {kManyWorkers, 0};  // bounded ones; 0: as they are
    io_uring_register_iowq_max_workers(&ring_, workers.data());
  }
  io_uring_register_ring_fd(&ring_);  // saves a reference count a call; not everywhere
  return Restrict();
}

absl::Status Uring::Restrict() {
  std::array<io_uring_restriction, kAllowedOperations.size() + 5> rules = {};
  size_t count = 0;
  for (const uint8_t operation : kAllowedOperations) {
    rules[count].opcode = IORING_RESTRICTION_SQE_OP;
    rules[count++].sqe_op = operation;
  }
  if (takes_commands()) {
    rules[count].opcode = IORING_RESTRICTION_SQE_OP;
    rules[count++].sqe_op = IORING_OP_URING_CMD;
  }
  for (const uint8_t operation :
       {IORING_REGISTER_FILES_UPDATE, IORING_UNREGISTER_RING_FDS, IORING_REGISTER_ENABLE_RINGS}) {
    rules[count].opcode = IORING_RESTRICTION_REGISTER_OP;
    rules[count++].register_op = operation;
  }
  rules[count].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
  rules[count++].sqe_flags = IOSQE_FIXED_FILE;
  int error = io_uring_register_restrictions(&ring_, rules.data(), static_cast<unsigned>(count));
  if (error == 0) error = io_uring_enable_rings(&ring_);
  return error < 0 ? UringSetUpError(-error) : absl::OkStatus();
}

Uring::~Uring() {
  if (set_up_) io_uring_queue_exit(&ring_);
}

io_uring_sqe* Uring::NextEntry() {
  if (io_uring_sqe* entry = io_uring_get_sqe(&ring_)) return entry;
  enters_.Add();
  io_uring_submit(&ring_);
  return io_uring_get_sqe(&ring_);
}

bool Uring::Push(const io_uring_sqe& entry, UringOp& op) {
  io_uring_sqe* next = NextEntry();
  if (next == nullptr) return false;
  *next = entry;
  next->flags |= IOSQE_FIXED_FILE;
  next->user_data = reinterpret_cast<uint64_t>(&op);
  return true;
}

bool Uring::PushCommand(int file, uint32_t operation, std::span<const std::byte> command,
                        UringOp& op) {
  io_uring_sqe* next = NextEntry();
  if (next == nullptr) return false;
  io_uring_prep_rw(IORING_OP_URING_CMD, next, file, nullptr, 0, operation);  // cmd_op is in off
  next->flags = IOSQE_FIXED_FILE;
  next->user_data = reinterpret_cast<uint64_t>(&op);
  std::memcpy(next->cmd, command.data(), std::min(command.size(), kCommandSize));
  return true;
}

absl::StatusOr<int> Uring::RegisterFile(int fd) {
  if (free_files_.empty()) {
    return absl::ResourceExhaustedError("too many files on one I/O thread; raise 'ulimit -n'");
  }
  const int index = free_files_.back();
  if (const int count =
          io_uring_register_files_update(&ring_, static_cast<unsigned>(index), &fd, 1);
      count < 0) {
    return ErrnoError(-count, "cannot register a file with io_uring");
  }
  free_files_.pop_back();
  return index;
}

void Uring::UnregisterFile(int index) {
  int none = -1;
  io_uring_register_files_update(&ring_, static_cast<unsigned>(index), &none, 1);
  free_files_.push_back(index);
}

void Uring::CancelFile(int index) {
  io_uring_sqe* entry = NextEntry();
  if (entry == nullptr) return;  // it ends by itself, later
  io_uring_prep_cancel_fd(entry, index, IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_FD_FIXED);
  entry->user_data = kNobody;
}

// By its plain descriptor: until Linux 6.13 a registered file that an operation holds, as a watch
// does for good, keeps every file that is unregistered later from being released.
void Uring::Watch(int eventfd, EventfdListener* listener, Watching watching) {
  const auto free = std::ranges::find_if(
      watched_, [](const Watched& watched) { return watched.fd < 0 && !watched.armed; });
  Watched& watched = free != watched_.end() ? *free : watched_.emplace_back();
  watched = {.fd = eventfd, .listener = listener, .watching = watching, .must_arm = true};
  watches_changed_ = true;
}

void Uring::Unwatch(int eventfd) {
  const auto found = std::ranges::find(watched_, eventfd, &Watched::fd);
  if (found == watched_.end()) return;
  found->fd = -1;
  found->listener = nullptr;
  found->must_arm = false;
  found->must_cancel = found->armed;
  watches_changed_ = true;
}

void Uring::Want(int eventfd, bool wanted) {
  const auto found = std::ranges::find(watched_, eventfd, &Watched::fd);
  if (found == watched_.end() || found->wanted == wanted) return;
  found->wanted = wanted;
  if (wanted) {
    // One that is still armed from before has seen no write.
    if (!found->armed) Rearm(*found);
  } else {
    found->must_arm = false;  // one that is armed already costs one completion more at worst
  }
}

// A poll that comes while a count is left would end at once. The read is before its caller's look
// at what the writes tell of, and pairs with them by the eventfd's lock: what was written before
// the read shows in that look, and what is written after it ends the poll.
void Uring::Rearm(Watched& watched) {
  if (watched.watching == Watching::kWhileWanted) {
    eventfd_t count = 0;
    eventfd_read(watched.fd, &count);
  }
  watched.must_arm = true;
  (watched.watching == Watching::kWhileWanted ? wishes_changed_ : watches_changed_) = true;
}

[[gnu::noinline]] bool Uring::PushWatches(bool sleeps) {
  if (!watches_changed_ && !(sleeps && wishes_changed_)) return true;
  for (size_t slot = 0; slot < watched_.size(); ++slot) {
    Watched& watched = watched_[slot];
    if (!watched.must_arm && !watched.must_cancel) continue;
    io_uring_sqe* entry = NextEntry();
    if (entry == nullptr) return false;  // the rest with the next submission
    if (watched.must_arm) {
      if (watched.watching == Watching::kAlways) {
        io_uring_prep_poll_multishot(entry, watched.fd, POLLIN);
      } else {
        io_uring_prep_poll_add(entry, watched.fd, POLLIN);
      }
      entry->user_data = WatchData(slot);
      watched.armed = true;
    } else {
      // Not POLL_REMOVE: it gives up on a poll whose next completion is on its way.
      io_uring_prep_cancel64(entry, WatchData(slot), 0);
      entry->user_data = kNobody;
    }
    watched.must_arm = watched.must_cancel = false;
  }
  watches_changed_ = wishes_changed_ = false;
  return true;
}

void Uring::CompleteWatch(size_t slot, int32_t result, uint32_t flags) {
  Watched& watched = watched_[slot];
  if (watched.listener != nullptr) watched.listener->Written();
  if ((flags & IORING_CQE_F_MORE) != 0) return;
  // The kernel has ended the poll, as it may at any time, and as it does a single one: the next
  // write would go unseen. Errors are for good, such as that of a descriptor that is none.
  watched.armed = false;
  watched.must_cancel = false;
  if (watched.fd >= 0 && result >= 0 && watched.wanted) Rearm(watched);
}

bool Uring::ReapAll() {
  if (KernelHoldsCompletions()) {
    enters_.Add();
    io_uring_get_events(&ring_);
  }
  // As many as there are now: what their handlers start is for the next turn.
  bool operation_completed = false;
  for (unsigned left = io_uring_cq_ready(&ring_); left > 0; --left) {
    io_uring_cqe* next = nullptr;
    if (io_uring_peek_cqe(&ring_, &next) != 0) break;
    const uint64_t data = next->user_data;
    const int32_t result = next->res;
    const uint32_t flags = next->flags;
    io_uring_cqe_seen(&ring_, next);  // first: the handler may push, and need its place
    if (data == kNobody) continue;
    if ((data & 1) != 0) {
      CompleteWatch(data >> 1, result, flags);
    } else {
      reinterpret_cast<UringOp*>(data)->Complete(result);
      operation_completed = true;
    }
  }
  return operation_completed;
}

void Uring::EnterKernel(int64_t sleep_ns) {
  // A write to one that is not armed would wake nobody.
  if ((watches_changed_ || wishes_changed_) && !PushWatches(sleep_ns != 0)) sleep_ns = 0;
  if (sleep_ns == 0 && io_uring_sq_ready(&ring_) == 0) return;
  enters_.Add();
  if (sleep_ns == 0) {
    io_uring_submit(&ring_);
  } else if (sleep_ns == kForever) {
    io_uring_submit_and_wait(&ring_, 1);
  } else {
    __kernel_timespec timeout = {.tv_sec = sleep_ns / 1'000'000'000,
                                 .tv_nsec = sleep_ns % 1'000'000'000};
    io_uring_cqe* first = nullptr;
    io_uring_submit_and_wait_timeout(&ring_, &first, 1, &timeout, nullptr);
  }
}

}  // namespace ringside
