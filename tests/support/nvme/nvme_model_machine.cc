#include "tests/support/nvme/nvme_model_machine.h"

#include <algorithm>
#include <chrono>

#include "base/thread.h"

namespace ringside::testing {
namespace {

// Turns without anything to do before the thread looks less often: some 50 us.
constexpr uint32_t kBusyTurns = 1000;
constexpr uint32_t kYieldTurns = kBusyTurns + 100;
constexpr uint32_t kMostSleepUs = 50;

}  // namespace

NvmeModelMachine::NvmeModelMachine(const NvmeModelConfig& config)
    : controller_(config), busy_(config.busy) {
  thread_ = StartThread("nvme-model", [this] { Loop(); }).value();
}

NvmeModelMachine::~NvmeModelMachine() {
  stop_ = true;
  thread_.join();
}

void NvmeModelMachine::Acquire() {
  ++waiting_;
  mutex_.lock();
  --waiting_;
}

void NvmeModelMachine::Loop() {
  uint32_t idle_turns = 0;
  std::unique_lock lock(mutex_);
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool idle = !controller_.Turn() && !busy_;
    idle_turns = idle ? idle_turns + 1 : 0;
    if (controller_.IsWaitingForTime()) idle_turns = std::min(idle_turns, kYieldTurns - 1);
    if (idle_turns == kBusyTurns && !controller_.FallAsleep()) idle_turns = 0;
    if (idle_turns < kBusyTurns && waiting_.load(std::memory_order_relaxed) == 0) continue;
    lock.unlock();
    Rest(idle_turns);
    lock.lock();
  }
}

void NvmeModelMachine::Rest(uint32_t idle_turns) {
  while (waiting_ > 0) std::this_thread::yield();
  if (idle_turns < kBusyTurns) return;
  if (idle_turns < kYieldTurns) {
    std::this_thread::yield();
  } else {
    const uint32_t sleep_us = std::min(idle_turns - kYieldTurns + 1, kMostSleepUs);
    std::this_thread::sleep_for(std::chrono::microseconds(sleep_us));
  }
}

}  // namespace ringside::testing
