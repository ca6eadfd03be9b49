// Benchmarks on an I/O thread.
#pragma once

#include <memory>
#include <string>

#include "base/sync.h"
#include "benchmarks/support/measure.h"
#include "poll/io_thread.h"
#include "tests/support/poll/run_on.h"

namespace ringside::benchmarks {

using testing::RunOn;

// A thread as disks have it. Null where io_uring cannot be had, and the benchmark fails: figures of
// what it would fall back to would be others.
inline std::unique_ptr<IoThread> StartIoThread(benchmark::State& state,
                                               PollKind poll = PollKind::kNever) {
  auto io_thread = IoThread::Start("benchmark", IoThread::Waiter::kUring, {.poll = {.kind = poll}});
  if (io_thread.ok()) return *std::move(io_thread);
  state.SkipWithError(std::string(io_thread.status().message()).c_str());
  return nullptr;
}

// Keeps the thread turning without a sleep, one call a turn, for as long as there are calls.
class Turns final : public Hook {
 public:
  Turns(IoThread& io_thread, Calls& calls) : io_thread_(io_thread), calls_(calls) {}

  void RunAll() {
    RunOn(io_thread_, [this] { io_thread_.AtPublish(*this); });
    done_.Wait();
  }

 private:
  void Run() override {
    if (calls_.More()) {
      io_thread_.AtPublish(*this);
    } else {
      done_.Notify();
    }
  }

  IoThread& io_thread_;
  Calls& calls_;
  Event done_;
};

}  // namespace ringside::benchmarks
