#include "file/aio_channel.h"

#include <array>
#include <cerrno>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/status.h"

namespace ringside {
namespace {

constexpr uint32_t kRingMagic = 0xa10a10a1;

// The C library has no functions for these.
long IoSetup(unsigned count, aio_context_t* context) {
  return syscall(SYS_io_setup, count, context);
}
long IoDestroy(aio_context_t context) {
  return syscall(SYS_io_destroy, context);
}
long IoSubmit(aio_context_t context, long count, iocb** controls) {
  return syscall(SYS_io_submit, context, count, controls);
}
long IoGetEvents(aio_context_t context, long count, io_event* events) {
  timespec none = {};
  return syscall(SYS_io_getevents, context, 0L, count, events, &none);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AioChannel>> AioChannel::Create(IoThread& io_thread,
                                                               FileTarget& target,
                                                               FileCounters& counters,
                                                               WorkerPool& workers) {
  RINGSIDE_RETURN_IF_ERROR(workers.Start());
  RINGSIDE_ASSIGN_OR_RETURN(EventFd wake, EventFd::Create());
  aio_context_t context = 0;
  if (IoSetup(kMaxInFlight, &context) != 0) {
    const char* remedy =
        errno == EAGAIN ? "raise 'sysctl fs.aio-max-nr', or use aio=threads" : "use aio=threads";
    return absl::FailedPreconditionError(
        ErrnoError(errno, "Linux AIO cannot be used (aio=native)", remedy).message());
  }
  std::unique_ptr<AioChannel> channel(
      new AioChannel(io_thread, target, counters, workers, std::move(wake), context));
  RINGSIDE_RETURN_IF_ERROR(io_thread.Attach(channel->completions_, Phase::kComplete));
  return channel;
}

AioChannel::AioChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters,
                       WorkerPool& workers, EventFd wake, aio_context_t context)
    : FileChannel(io_thread, target, counters),
      wake_(std::move(wake)),
      aio_(context),
      workers_(workers, io_thread, *this),
      completions_(*this, wake_.fd()) {
  auto* ring = reinterpret_cast<Ring*>(aio_);
  if (ring->magic == kRingMagic && ring->incompatible_features == 0) ring_ = ring;
}

AioChannel::~AioChannel() {
  io_thread().Detach(completions_);  // does nothing if it never was attached
  IoDestroy(aio_);
}

void AioChannel::Issue(FileOp& op) {
  const bool sync = op.step().kind == FileStep::Kind::kSync;
  if (op.step().kind == FileStep::Kind::kAllocate || (sync && !has_sync_)) {
    workers_.Do(op);
    return;
  }
  Prepare(static_cast<Op&>(op));
  waiting_.Push(op);
  io_thread().AtHandOver(submit_);
}

void AioChannel::Prepare(Op& op) {
  const FileStep& step = op.step();
  iocb& control = op.control;
  control = {};
  control.aio_data = reinterpret_cast<uint64_t>(&op);
  control.aio_fildes = static_cast<uint32_t>(target().fd.get());
  control.aio_flags = IOCB_FLAG_RESFD;
  control.aio_resfd = static_cast<uint32_t>(wake_.fd());
  if (step.kind == FileStep::Kind::kSync) {
    control.aio_lio_opcode = IOCB_CMD_FDSYNC;
    return;
  }
  const bool single = step.vector_count == 1;
  const bool read = step.kind == FileStep::Kind::kRead;
  control.aio_lio_opcode = single ? (read ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE)
                                  : (read ? IOCB_CMD_PREADV : IOCB_CMD_PWRITEV);
  control.aio_buf = reinterpret_cast<uint64_t>(single ? step.vectors->iov_base : step.vectors);
  control.aio_nbytes = single ? step.vectors->iov_len : step.vector_count;
  control.aio_offset = static_cast<int64_t>(step.offset);
  control.aio_rw_flags = static_cast<decltype(control.aio_rw_flags)>(step.flags);
}

void AioChannel::HandOverWaiting() {
  std::array<iocb*, kBatch> batch;
  while (!waiting_.empty() && in_flight_ < kMaxInFlight) {
    if (waiting_.front()->request().recalled()) {
      StepFailed(*waiting_.Pop(), -ECANCELED);
      continue;
    }
    long count = 0;
    for (FileOp* op = waiting_.front();
         op != nullptr && count < kBatch && in_flight_ + count < kMaxInFlight; op = op->next) {
      batch[static_cast<size_t>(count++)] = &static_cast<Op*>(op)->control;
    }
    counters().submit_calls.Add();
    const long taken = IoSubmit(aio_, count, batch.data());
    if (taken < 0 && !Refused(errno)) return;
    for (long i = 0; i < taken; ++i) waiting_.Pop();
    if (taken > 0) in_flight_ += static_cast<unsigned>(taken);
  }
}

// The kernel has not taken the first of those waiting. Whether to go on with the next.
bool AioChannel::Refused(int error) {
  if (error == EINTR) return true;
  if (error == EAGAIN) {
    // The next completion makes room; without any in flight it is the next turn's business.
    if (in_flight_ == 0) io_thread().AtHandOver(submit_);
    return false;
  }
  FileOp& op = *waiting_.Pop();
  if (error == EINVAL && op.step().kind == FileStep::Kind::kSync) {
    has_sync_ = false;  // before Linux 4.18, and on file systems without fsync
    workers_.Do(op);
  } else {
    StepFailed(op, -error);
  }
  return true;
}

// Relaxed: this thread alone writes it. Atomic, as io_destroy gives the place to a ring of another
// thread unseen by ThreadSanitizer, which knows munmap alone.
uint32_t AioChannel::Head() const {
  return std::atomic_ref(ring_->head).load(std::memory_order_relaxed);
}

bool AioChannel::HasCompletions() {
  if (ring_ == nullptr) return in_flight_ != 0;
  // Acquire: pairs with the kernel's barrier between writing an event and the tail.
  const uint32_t tail = std::atomic_ref(ring_->tail).load(std::memory_order_acquire);
  return tail != Head();
}

void AioChannel::Reap() {
  if (ring_ == nullptr) {
    ReapByCall();
  } else {
    const auto* events = reinterpret_cast<const io_event*>(
        reinterpret_cast<const std::byte*>(ring_) + ring_->header_length);
    const uint32_t size = ring_->size;
    const uint32_t tail = std::atomic_ref(ring_->tail).load(std::memory_order_acquire) % size;
    for (uint32_t head = Head() % size; head != tail;) {
      const io_event event = events[head];
      head = head + 1 == size ? 0 : head + 1;
      // Release: the kernel may write the place again once it has seen this.
      std::atomic_ref(ring_->head).store(head, std::memory_order_release);
      Completed(event);
    }
  }
  if (!waiting_.empty()) io_thread().AtHandOver(submit_);
}

void AioChannel::ReapByCall() {
  std::array<io_event, kBatch> events;
  const long count = IoGetEvents(aio_, kBatch, events.data());
  for (long i = 0; i < count; ++i) Completed(events[static_cast<size_t>(i)]);
}

void AioChannel::Completed(const io_event& event) {
  --in_flight_;
  FileOp& op = *reinterpret_cast<Op*>(event.data);
  if (event.res == -EINVAL && op.step().kind == FileStep::Kind::kSync && has_sync_) {
    has_sync_ = false;
    workers_.Do(op);
    return;
  }
  FileChannel::StepDone(op, event.res);
}

}  // namespace ringside
