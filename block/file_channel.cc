#include "block/file_channel.h"

namespace ringside {

void FileChannel::Submit(BlockRequest& request) {
  if (!inline_server_.Takes(request)) return SubmitToEngine(request);
  to_serve_.Push(request);
  io_thread_.AtSubmit(serve_);
}

void FileChannel::ServeInline() {
  uint64_t served = 0;
  while (served < kInlineBytesATurn) {
    BlockRequest* request = to_serve_.Pop();
    if (request == nullptr) return;
    const uint64_t bytes = inline_server_.Serve(*request);
    served += bytes;
    if (bytes != 0) {
      request->done(*request);
    } else {
      SubmitToEngine(*request);
    }
  }
  if (!to_serve_.empty()) io_thread_.AtSubmit(serve_);
}

void FileChannel::Proceed(FileOp& op, FileOp::Next next) {
  switch (next) {
    case FileOp::Next::kStep:
      if (op.step().kind == FileStep::Kind::kAllocate) {
        target().allocating.fetch_add(1, std::memory_order_relaxed);
      }
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
  if (op.step().kind == FileStep::Kind::kAllocate) {
    target().allocating.fetch_sub(1, std::memory_order_relaxed);
  }
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
