#include "file/uring_channel.h"

namespace ringside {

absl::StatusOr<std::unique_ptr<UringChannel>> UringChannel::Create(IoThread& io_thread,
                                                                   FileTarget& target,
                                                                   FileCounters& counters) {
  RINGSIDE_ASSIGN_OR_RETURN(const int file, io_thread.uring()->RegisterFile(target.fd.get()));
  return std::unique_ptr<UringChannel>(new UringChannel(io_thread, target, counters, file));
}

UringChannel::~UringChannel() {
  ring_.UnregisterFile(file_);
}

void UringChannel::SubmitToEngine(BlockRequest& request) {
  Start(ops_.Take([this](Op& op) { op.channel = this; }), request);
}

void UringChannel::Issue(FileOp& op) {
  // Behind those that wait already: nobody is overtaken for ever.
  if (waiting_.empty() && Push(static_cast<Op&>(op))) return;
  waiting_.Push(op);
  io_thread().AtHandOver(retry_);
}

void UringChannel::PushWaiting() {
  while (FileOp* op = waiting_.front()) {
    if (op->request().recalled()) {
      waiting_.Pop();
      StepFailed(*op, -ECANCELED);
    } else if (!Push(static_cast<Op&>(*op))) {
      io_thread().AtHandOver(retry_);  // for the next turn
      return;
    } else {
      waiting_.Pop();
    }
  }
}

bool UringChannel::Push(Op& op) {
  const FileStep& step = op.step();
  io_uring_sqe entry = {};
  const bool single = step.vector_count == 1;
  switch (step.kind) {
    case FileStep::Kind::kRead:
    case FileStep::Kind::kWrite: {
      const bool read = step.kind == FileStep::Kind::kRead;
      const uint8_t opcode = single ? (read ? IORING_OP_READ : IORING_OP_WRITE)
                                    : (read ? IORING_OP_READV : IORING_OP_WRITEV);
      const void* address = single ? step.vectors->iov_base : step.vectors;
      // Not more than 4 GiB less one: a segment's length.
      const auto length = single ? static_cast<unsigned>(step.vectors->iov_len) : step.vector_count;
      io_uring_prep_rw(opcode, &entry, file_, address, length, step.offset);
      entry.rw_flags = step.flags;
      break;
    }
    case FileStep::Kind::kSync:
      io_uring_prep_fsync(&entry, file_, IORING_FSYNC_DATASYNC);
      break;
    case FileStep::Kind::kAllocate:
      io_uring_prep_fallocate(&entry, file_, step.flags, static_cast<off_t>(step.offset),
                              static_cast<off_t>(step.length));
      break;
  }
  return ring_.Push(entry, op);
}

}  // namespace ringside
