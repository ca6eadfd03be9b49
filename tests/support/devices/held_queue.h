// The interrupts of one queue on an I/O thread that may hold them, with its driver and its device
// played by the test, which decides what is taken, completed and handled when.
//
// Threads: On, Sleeps and what is said to be any thread's; all else within On.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "devices/queue_signal.h"
#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/poll/run_on.h"
#include "tests/support/wait.h"

namespace ringside::testing {

class HeldQueue {
 public:
  static constexpr uint16_t kDepth = 8;  // requests of a round
  static constexpr IoThreadTuning kHolds = {.poll = {.kind = PollKind::kAlways},
                                            .signalling = Signalling::kCost};

  explicit HeldQueue(const IoThreadTuning& tuning = kHolds, bool event_idx = true,
                     uint16_t size = 64)
      : options_{.size = size, .event_idx = event_idx},
        io_thread_(*IoThread::Start("test", IoThread::Waiter::kEpoll, tuning)) {
    line_.Connect(&call_);
    On([this] {
      io_thread_->RequestBegins();  // lest it sleep since there is nothing to poll for
      BeginAnew();
    });
  }
  ~HeldQueue() {
    On([this] { signal_->Drop(); });
    RunOn(*io_thread_, [this] { io_thread_->RequestEnds(); });
  }

  // Any thread.
  template <typename Function>
  void On(Function function) {
    RunOn(*on_, std::move(function));
  }
  // The one that serves the queue.
  IoThread& io_thread() { return *on_; }
  // Has another one serve it, as a device does; null: its own. The other one stays for longer than
  // this.
  void MoveTo(IoThread* other) {
    On([this] { signal_->Release(); });
    on_ = other != nullptr ? other : io_thread_.get();
    On([this] { signal_ = std::make_unique<QueueSignal>(Parts(), *signal_); });
  }
  const SignalStats& stats() const { return stats_; }
  uint64_t raised(SignalReason reason) const {
    return stats_.raised[static_cast<size_t>(reason)].Get();
  }
  // The newest `count`, oldest first.
  std::vector<SignalRecord> NewestSignals(size_t count) const {
    const std::vector<SignalRecord> all = records_.InOrder();
    return {all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end()};
  }
  // Whether the guest has been interrupted since this was last asked.
  bool Interrupted() {
    if (!WaitForFd(call_.fd(), POLLIN, absl::ZeroDuration())) return false;
    call_.Clear();
    return true;
  }
  bool WaitForInterrupt() { return WaitForFd(call_.fd(), POLLIN); }

  FakeDriver& driver() { return *driver_; }
  Virtqueue& queue() { return *queue_; }
  QueueSignal& signal() { return *signal_; }

  // A new driver, after a reset of the device.
  void Reset() {
    signal_->Drop();
    taken_.clear();
    if (trace_ != nullptr) trace_->Restart();
    BeginAnew();
  }
  // Requests that were taken and not completed.
  uint16_t in_flight() const { return static_cast<uint16_t>(taken_.size()); }
  // The guest makes so many requests, and the device takes them.
  void Ask(uint16_t count) {
    for (uint16_t i = 0; i < count; ++i) driver_->NewChain().AppendReadable(kData, 1).Add();
    driver_->Publish();
    for (DescriptorChain chain; queue_->Take({&chain, 1}) > 0;) {
      if (trace_ != nullptr) trace_->Seen();
      if (trace_ != nullptr) trace_->Taken(chain.head(), RequestKind::kRead, 1);
      taken_.push_back(std::move(chain));
    }
    signal_->Took(count);
  }
  // The device answers the oldest and shows that. Whether the driver wants to hear of it.
  bool Complete(uint16_t count) {
    for (; count > 0; --count) {
      if (trace_ != nullptr) trace_->Answered(taken_.front().head());
      queue_->Return(std::move(taken_.front()), 0);
      taken_.pop_front();
    }
    const bool wanted = queue_->Publish();
    if (trace_ != nullptr) trace_->Published();
    signal_->Shown(wanted, trace_.get());
    return wanted;
  }
  // The guest handles what there is, and asks for the next interrupt.
  void Handle() {
    while (driver_->TakeUsed()) {
    }
    driver_->EnableInterrupts();
  }
  // A guest that asks for kDepth requests, handles all but one of them, and needs a while to ask
  // anew. Whether the interrupt for the last one is held now.
  bool Round() {
    const uint64_t held = stats_.held.Get();
    Ask(static_cast<uint16_t>(driver_->free_descriptors() - (options_.size - kDepth)));
    Complete(static_cast<uint16_t>(taken_.size() - 1));
    if (stats_.held.Get() > held) signal_->Release();
    Handle();
    const uint64_t before = stats_.held.Get();
    Complete(1);
    return stats_.held.Get() > before;
  }
  // Rounds until an interrupt is held: what is held when is learned. The guest reacts so slowly
  // that it is not thought to be silent at once.
  [[nodiscard]] bool LearnToHold() {
    const int64_t end_ns = MonotonicNs() + 20'000'000'000;
    while (MonotonicNs() < end_ns) {
      if (Round()) {
        Interrupted();
        return true;
      }
      Handle();
      for (const int64_t go_on_ns = MonotonicNs() + kReactionNs; MonotonicNs() < go_on_ns;) {
      }
    }
    ADD_FAILURE() << "no interrupt is ever held";
    return false;
  }

  // From now on; records of before are gone.
  void Trace() {
    StopTrace();
    trace_ = std::make_unique<LatencyTrace>(options_.size, histograms_);
  }
  void StopTrace() {
    signal_->Release();
    trace_.reset();
  }
  std::vector<LatencyRecord> Records() const { return trace_->Records(); }

 private:
  static constexpr uint64_t kData = 0x80000;
  static constexpr int64_t kReactionNs = 1'500'000;

  QueueSignal::Parts Parts() { return {*queue_, line_, *on_, stats_, &records_}; }
  void BeginAnew() {
    driver_.emplace(*memory_, options_);
    queue_.emplace(*memory_, driver_->layout());
    signal_ = std::make_unique<QueueSignal>(Parts());
    driver_->EnableInterrupts();
  }

  const FakeDriver::Options options_;
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(kMiB);
  std::optional<FakeDriver> driver_;
  EventFd call_ = *EventFd::Create();
  std::atomic<uint8_t> isr_{0};
  InterruptLine line_{isr_, 1};
  SignalStats stats_;
  SignalRecords records_{kSignalRecords};
  LatencyHistograms histograms_;
  std::unique_ptr<LatencyTrace> trace_;
  std::deque<DescriptorChain> taken_;
  std::optional<Virtqueue> queue_;
  std::unique_ptr<QueueSignal> signal_;
  std::unique_ptr<IoThread> io_thread_;
  IoThread* on_ = io_thread_.get();
};

}  // namespace ringside::testing
