// An I/O thread that turns, and one that is woken.
//
//   micro_benchmark --benchmark_filter='^turn|post_to_itself|idle_sources|kick_to_run'
//
// turn: with nothing to do but to turn again. post_to_itself: a turn with a task, which posts
// itself for the next one. idle_sources: a turn that looks at so many sources that have no work;
// `instructions_a_source` is what each adds. kick_to_run: an operation is one kick of a thread that
// sleeps; the time is from the kick to the source's Run, the instructions are those of the thread
// for all of it: waking, running, looking around and going to sleep again.
#include <atomic>
#include <benchmark/benchmark.h>
#include <deque>
#include <thread>

#include "base/clock.h"
#include "benchmarks/support/turns.h"

namespace ringside::benchmarks {
namespace {

EventFd MakeEvent() {
  return *EventFd::Create();
}

// Looks at a ring that nobody fills.
class IdleSource final : public Source {
 public:
  IdleSource() : IdleSource(MakeEvent()) {}
  bool HasWork() override { return index_.load(std::memory_order_relaxed) != next_; }
  void Run() override {}
  void EnableNotify() override { notify_.store(true, std::memory_order_relaxed); }
  void DisableNotify() override { notify_.store(false, std::memory_order_relaxed); }

 private:
  explicit IdleSource(EventFd wake) : Source(wake.fd()), wake_(std::move(wake)) {}

  const EventFd wake_;
  std::atomic<uint16_t> index_{0};
  std::atomic<bool> notify_{true};
  uint16_t next_ = 0;
};

// So many of them, attached while it lives.
class IdleSources {
 public:
  IdleSources(IoThread& io_thread, int64_t count)
      : io_thread_(io_thread), sources_(static_cast<size_t>(count)) {
    RunOn(io_thread_, [this] {
      for (IdleSource& source : sources_) ok_ &= io_thread_.Attach(source, Phase::kTake).ok();
    });
  }
  ~IdleSources() {
    RunOn(io_thread_, [this] {
      for (IdleSource& source : sources_) io_thread_.Detach(source);
    });
  }
  bool ok() const { return ok_; }

 private:
  IoThread& io_thread_;
  std::deque<IdleSource> sources_;  // they do not move
  bool ok_ = true;
};

void ReportASource(benchmark::State& state, const Cost& with, const Cost& without) {
  const Cost source = (with - without) / static_cast<double>(state.range(0));
  if (source.instructions) state.counters["instructions_a_source"] = *source.instructions;
}

void Turn(benchmark::State& state) {
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  Measure(state, [&](Calls& calls) { Turns(*io_thread, calls).RunAll(); });
}

void IdleSourcesTurn(benchmark::State& state) {
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  const auto turn = [&](Calls& calls) { Turns(*io_thread, calls).RunAll(); };
  const Cost without = CostOf(turn);
  const IdleSources idle(*io_thread, state.range(0));
  Require(state, idle.ok(), "a source cannot be attached");
  ReportASource(state, Measure(state, turn), without);
}

void PostToItself(benchmark::State& state) {
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  Measure(state, [&](Calls& calls) {
    Event done;
    Task* self = nullptr;
    TaskOf task([&] {
      if (calls.More()) {
        io_thread->Post(*self);
      } else {
        done.Notify();
      }
    });
    self = &task;
    io_thread->Post(task);
    done.Wait();
  });
}

// A source that somebody else kicks, each time when its thread sleeps.
class KickedSource final : public Source {
 public:
  KickedSource(IoThread& io_thread, benchmark::State& state)
      : KickedSource(io_thread, state, MakeEvent()) {}
  ~KickedSource() override {
    RunOn(io_thread_, [this] { io_thread_.Detach(*this); });
  }

  bool ok() const { return ok_; }
  // One kick for each call, and a first one, with which the measuring begins.
  void KickAll(Calls& calls) {
    calls_ = &calls;
    begun_ = false;
    more_ = true;
    for (bool more = true; more; more = more_) {
      const uint64_t sleeps = io_thread_.stats().sleeps.Get();
      kicked_at_ns_ = MonotonicNs();
      kicks_.fetch_add(1, std::memory_order_seq_cst);  // as a driver's index, before its kick
      wake_.Signal();
      while (runs_ != kicks_ || io_thread_.stats().sleeps.Get() == sleeps) {
        std::this_thread::yield();
      }
      // It is about to sleep: the way into the kernel is what is left.
      const int64_t asleep_ns = MonotonicNs() + 20'000;
      while (MonotonicNs() < asleep_ns) continue;
    }
  }

  bool HasWork() override { return kicks_.load(std::memory_order_relaxed) != runs_; }
  void Run() override {
    if (begun_ && calls_->timed()) {
      state_.SetIterationTime(static_cast<double>(MonotonicNs() - kicked_at_ns_) / 1e9);
    }
    begun_ = true;
    more_ = calls_->More();
    runs_.store(runs_ + 1, std::memory_order_release);
  }
  void EnableNotify() override {}
  void DisableNotify() override {}

 private:
  KickedSource(IoThread& io_thread, benchmark::State& state, EventFd wake)
      : Source(wake.fd()), io_thread_(io_thread), state_(state), wake_(std::move(wake)) {
    RunOn(io_thread_, [this] { ok_ = io_thread_.Attach(*this, Phase::kTake).ok(); });
  }

  IoThread& io_thread_;
  benchmark::State& state_;
  const EventFd wake_;
  bool ok_ = false;
  // Written by the kicker before each kick, then by the thread until it has run.
  Calls* calls_ = nullptr;
  bool begun_ = false;
  bool more_ = false;
  int64_t kicked_at_ns_ = 0;
  std::atomic<uint64_t> kicks_{0};
  std::atomic<uint64_t> runs_{0};
};

void KickToRun(benchmark::State& state) {
  const auto io_thread = StartIoThread(state);
  if (io_thread == nullptr) return;
  KickedSource source(*io_thread, state);
  const auto kick = [&](Calls& calls) { source.KickAll(calls); };
  const Cost without = CostOf(kick);
  const IdleSources idle(*io_thread, state.range(0));
  Require(state, source.ok() && idle.ok(), "a source cannot be attached");
  const uint64_t sleeps = io_thread->stats().sleeps.Get();
  const Cost with = Measure(state, kick);
  if (state.range(0) > 0) ReportASource(state, with, without);
  Require(state,
          static_cast<int64_t>(io_thread->stats().sleeps.Get() - sleeps) >=
              static_cast<int64_t>(state.iterations()),
          "the thread did not sleep");
}

BENCHMARK(Turn)->Name("turn");
BENCHMARK(PostToItself)->Name("post_to_itself");
BENCHMARK(IdleSourcesTurn)->Name("idle_sources")->ArgName("sources")->Arg(1)->Arg(10)->Arg(100);
BENCHMARK(KickToRun)
    ->Name("kick_to_run")
    ->ArgName("idle_sources")
    ->Arg(0)
    ->Arg(10)
    ->Arg(100)
    ->UseManualTime();

}  // namespace
}  // namespace ringside::benchmarks
