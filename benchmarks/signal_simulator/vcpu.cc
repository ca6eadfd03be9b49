#include "benchmarks/signal_simulator/vcpu.h"

#include <algorithm>
#include <utility>

namespace ringside {

void Vcpu::Wake(GuestThread& thread) {
  if (!std::exchange(thread.blocked_, false)) return;
  ready_.push_back(&thread);
  if (!stepping_) Dispatch();
}

// The first of the most urgent ones runs, unless who runs is as urgent.
void Vcpu::Dispatch() {
  const auto best = std::ranges::max_element(ready_, {}, &GuestThread::priority_);
  if (best == ready_.end()) return;
  GuestThread* const next = *best;
  if (current_ != nullptr && next->priority_ <= current_->priority_) return;
  ready_.erase(best);
  if (current_ != nullptr) Preempt();
  current_ = next;
  Run();
}

void Vcpu::Preempt() {
  const int64_t ran_ns = events_.now_ns() - began_ns_;
  busy_ns_ += ran_ns;
  current_->left_ns_ -= ran_ns;
  ready_.push_front(current_);
}

void Vcpu::Run() {
  if (current_->left_ns_ == 0) {
    stepping_ = true;
    const int64_t ns = current_->Step();
    stepping_ = false;
    if (ns == GuestThread::kBlocks) {
      std::exchange(current_, nullptr)->blocked_ = true;
      return Dispatch();
    }
    current_->left_ns_ = ns;
  }
  began_ns_ = events_.now_ns();
  events_.After(current_->left_ns_, [this, run = ++runs_] {
    if (run == runs_) StepEnds();
  });
}

void Vcpu::StepEnds() {
  busy_ns_ += std::exchange(current_->left_ns_, 0);
  Run();
}

}  // namespace ringside
