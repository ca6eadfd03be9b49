// Holds an I/O thread still, so that work piles up for it.
#pragma once

#include "base/sync.h"
#include "poll/io_thread.h"

namespace ringside::testing {

// Holds an I/O thread at the end of a turn, when what the turn has answered is shown: the next one
// begins with what was posted meanwhile.
class HeldThread {
 public:
  explicit HeldThread(IoThread& io_thread) : io_thread_(io_thread) {
    io_thread.RunAndWait([this] { io_thread_.BeforeHandOver(before_publish_); });
    holds_.Wait();
  }
  ~HeldThread() {
    go_on_.Notify();
    io_thread_.RunAndWait([] {});  // Hold has returned
  }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;

 private:
  void BeforePublish() { io_thread_.AtPublish(publish_); }
  void Hold() {
    holds_.Notify();
    go_on_.Wait();
  }

  IoThread& io_thread_;
  Event holds_, go_on_;
  HookTo<HeldThread, &HeldThread::BeforePublish> before_publish_{*this};
  HookTo<HeldThread, &HeldThread::Hold> publish_{*this};
};

}  // namespace ringside::testing
