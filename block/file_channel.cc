#include "block/file_channel.h"

namespace ringside {

void FileChannel::Begin(FileOp& op, BlockRequest& request) {
  const FileOp::Next next = op.Start(request, context_);
  if (next == FileOp::Next::kStep && inline_server_.Takes(op.step())) {
    to_serve_.Push(op);
    io_thread_.AtSubmit(serve_);
  } else {
    Proceed(op, next);
  }
}

// What is left of a request, or of the turn's measure, goes another way: no one waits for long.
void FileChannel::ServeInline() {
  uint64_t bytes = 0;
  while (bytes < kInlineBytesATurn) {
    FileOp* op = to_serve_.Pop();
    if (op == nullptr) return;
    bytes += op->step().length;
    const uint64_t moved = inline_server_.Perform(op->step());
    const FileOp::Next next =
        moved != 0 ? op->Advance(static_cast<int64_t>(moved)) : FileOp::Next::kStep;
    if (next == FileOp::Next::kDone) {
      counters().served_inline.Add();
      Finish(*op);
    } else {
      Proceed(*op, next);
    }
  }
  io_thread_.AtSubmit(serve_);
}

void FileChannel::Proceed(FileOp& op, FileOp::Next next) {
  switch (next) {
    case FileOp::Next::kStep:
      if (op.step().kind == FileStep::Kind::kAllocate) target().allocating.fetch_add(1);
      Issue(op);
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

void FileChannel::StepDone(FileOp& op, int64_t result) {
  if (op.step().kind == FileStep::Kind::kAllocate) target().allocating.fetch_sub(1);
  const FileOp::Next next = op.Advance(result);
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
