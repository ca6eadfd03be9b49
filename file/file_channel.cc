#include "file/file_channel.h"

#include <cerrno>
#include <utility>

namespace ringside {

FileChannel::FileChannel(IoThread& io_thread, FileTarget& target, FileCounters& counters)
    : io_thread_(io_thread),
      // With O_DIRECT the device does, but for a file system that has none.
      copies_(!target.direct || target.inline_io == InlineIo::kMemory),
      most_a_turn_(copies_ ? kCopiedATurn : kDirectATurn),
      context_{.target = target,
               .counters = counters,
               .bulk_bytes = copies_ ? InlineServer::kMostBytes : kDirectPart,
               .most_a_part = copies_ ? kCopiedPart : kDirectPart},
      inline_server_(target, counters) {}

void FileChannel::Submit(BlockRequest& request) {
  if (!inline_server_.Takes(request)) return SubmitToEngine(request);
  to_serve_.Push(request);
  io_thread_.AtHandOver(serve_);
}

void FileChannel::ServeInline() {
  uint64_t served = 0;
  while (served < kInlineBytesATurn) {
    BlockRequest* request = to_serve_.Pop();
    if (request == nullptr) return;
    const uint64_t bytes = request->recalled() ? 0 : inline_server_.Serve(*request);
    served += bytes;
    if (bytes != 0) {
      request->done(*request);
    } else {
      SubmitToEngine(*request);
    }
  }
  if (!to_serve_.empty()) io_thread_.AtHandOver(serve_);
}

void FileChannel::Proceed(FileOp& op, FileOp::Next next) {
  if (next != FileOp::Next::kDone && op.request().recalled()) next = op.GiveUp();
  switch (next) {
    case FileOp::Next::kStep:
      Step(op);
      break;
    case FileOp::Next::kWait:
      want_bounce_.Push(op);
      break;
    case FileOp::Next::kDone:
      finished_.Push(op);
      io_thread_.AtPublish(completer_);
      break;
  }
}

void FileChannel::Step(FileOp& op) {
  switch (op.step().kind) {
    case FileStep::Kind::kRead:
    case FileStep::Kind::kWrite:
      return Transfer(op);
    case FileStep::Kind::kAllocate:
      return Allocate(op);
    case FileStep::Kind::kSync:
      return Sync(op);
  }
}

void FileChannel::Transfer(FileOp& op) {
  if (op.bulk()) {
    parts_.Push(op);
  } else if (held_.empty() && begun_.Take(turn(), op.step().length, most_a_turn_)) {
    return Begin(op);
  } else {
    held_.Push(op);  // nobody is overtaken for ever
  }
  // Not from within BeginHeld: it asks for another turn itself, unless nothing is left by then.
  if (!begins_held_) io_thread_.AtHandOver(begin_held_);
}

bool FileChannel::Begun::Take(uint64_t now, uint64_t length, uint64_t most) {
  if (turn != now) {
    turn = now;
    bytes = 0;
  }
  if (bytes != 0 && bytes + length > most) return false;
  bytes += length;
  return true;
}

void FileChannel::Begin(FileOp& op) {
  if (op.request().recalled()) return Proceed(op, op.GiveUp());
  op.Load();
  Issue(op);
}

void FileChannel::BeginHeld() {
  begins_held_ = true;
  while (FileOp* op = held_.front()) {
    if (!begun_.Take(turn(), op->step().length, most_a_turn_)) break;
    held_.Pop();
    Begin(*op);
  }
  if (copies_ && !parts_.empty()) {
    const RequestOwner* owner = parts_.front()->request().owner;
    const bool shared = io_thread_.IsShared(owner != nullptr ? owner->source : nullptr);
    context_.most_a_part = shared ? kSharedPart : kCopiedPart;
  }
  while (FileOp* op = parts_.front()) {
    if (!begun_parts_.Take(turn(), op->step().length, context_.most_a_part)) break;
    parts_.Pop();
    BeginPart(*op);
  }
  begins_held_ = false;
  if (!held_.empty() || !parts_.empty()) io_thread_.AtHandOver(begin_held_);
}

void FileChannel::BeginPart(FileOp& op) {
  if (op.request().recalled()) return Proceed(op, op.GiveUp());
  op.Load();
  const int64_t result = inline_server_.Perform(op.step());
  if (result == InlineServer::kNotHere) {
    Issue(op);
  } else {
    StepDone(op, result);
  }
}

void FileChannel::Allocate(FileOp& op) {
  if (allocating_) return want_allocation_.Push(op);
  allocating_ = true;
  target().allocating.fetch_add(1, std::memory_order_relaxed);
  Issue(op);
}

void FileChannel::AllocationDone() {
  target().allocating.fetch_sub(1, std::memory_order_relaxed);
  allocating_ = false;
  while (!allocating_) {
    FileOp* next = want_allocation_.Pop();
    if (next == nullptr) return;
    Proceed(*next, FileOp::Next::kStep);
  }
}

void FileChannel::Sync(FileOp& op) {
  if (syncing_) return want_sync_.Push(op);
  syncing_ = true;
  Issue(op);
}

// Of one that was issued. A request whose sync was given up with another's asks anew.
void FileChannel::SyncDone(int64_t result) {
  FileOp* shared = shares_sync_.TakeAll();
  syncing_ = false;
  while (FileOp* next = want_sync_.Pop()) {
    const FileOp::Next step = next->request().recalled() ? next->GiveUp() : next->Sync();
    if (step != FileOp::Next::kStep) {
      Proceed(*next, step);
      continue;
    }
    want_sync_.TakeEach([this](FileOp& op) { shares_sync_.Push(op); });
    Sync(*next);
    break;
  }
  while (shared != nullptr) {
    FileOp& op = *std::exchange(shared, shared->next);
    Proceed(op, result == -ECANCELED ? op.Sync() : op.Advance(result));
  }
}

void FileChannel::StepDone(FileOp& op, int64_t result) {
  const FileStep::Kind kind = op.step().kind;
  // What it tells of the file, such as that a flush has failed, is known before others go on. A
  // step that was given up tells nothing.
  const FileOp::Next next = result == -ECANCELED ? op.GiveUp() : op.Advance(result);
  // Others come first: this one may have more of it to do.
  if (kind == FileStep::Kind::kAllocate) AllocationDone();
  if (kind == FileStep::Kind::kSync) SyncDone(result);
  if (next == FileOp::Next::kDone) {
    Finish(op);
  } else {
    Proceed(op, next);
  }
}

void FileChannel::StepFailed(FileOp& op, int64_t result) {
  op.step_result = result;
  failed_.Push(op);
  io_thread_.AtPublish(completer_);
}

void FileChannel::Finish(FileOp& op) {
  BlockRequest& request = op.request();
  request.result = op.result();
  const bool bounced = op.Release();
  Recycle(op);
  if (bounced) {
    // One buffer is free, so one goes on.
    if (FileOp* waiting = want_bounce_.Pop()) Proceed(*waiting, waiting->Resume());
  }
  request.done(request);
}

void FileChannel::RunLater() {
  // Both before anything is called: what comes now is for the next run, which is queued for it.
  FileOp* failed = failed_.TakeAll();
  FileOp* finished = finished_.TakeAll();
  while (failed != nullptr) {
    FileOp* next = failed->next;
    StepDone(*failed, failed->step_result);
    failed = next;
  }
  while (finished != nullptr) {
    FileOp* next = finished->next;
    Finish(*finished);
    finished = next;
  }
}

}  // namespace ringside
