#include "faults/fault_state.h"

#include <algorithm>

namespace ringside {

FaultState::FaultState(FaultScript script, int64_t now_ns, std::string name, const BlockInfo& info,
                       Logger logger)
    : plan_(std::move(script), now_ns),
      name_(std::move(name)),
      logger_(logger),
      sector_(std::max<uint32_t>(info.logical_block, 512)),
      follows_(plan_.has_cut()),
      writes_(follows_ ? std::make_unique<UnflushedWrites>(sector_) : nullptr) {}

bool FaultState::Begins() {
  const MutexLock lock(mutex_);
  if (off_) return false;
  ++changing_;
  return true;
}

void FaultState::Ends() {
  const MutexLock lock(mutex_);
  --changing_;
}

FaultState::Write* FaultState::Add(const BlockRequest& request) {
  const MutexLock lock(mutex_);
  return writes_->Add(request.offset, TotalLength(request.segments));
}

void FaultState::Done(Write& write, bool durable) {
  const MutexLock lock(mutex_);
  writes_->Done(write, durable);
}

void FaultState::FlushedByItself() {
  const MutexLock lock(mutex_);
  writes_->FlushedByItself();
}

uint64_t FaultState::FlushBegins() {
  const MutexLock lock(mutex_);
  return writes_->now();
}

bool FaultState::Flushed(uint64_t begun_at) {
  const MutexLock lock(mutex_);
  if (off_) return false;
  writes_->Flushed(begun_at);
  return true;
}

bool FaultState::CutPower() {
  const MutexLock lock(mutex_);
  return !std::exchange(off_, true);
}

bool FaultState::is_off() const {
  const MutexLock lock(mutex_);
  return off_;
}

bool FaultState::is_quiet() const {
  const MutexLock lock(mutex_);
  return changing_ == 0;
}

CutReport FaultState::Lose(uint64_t random) {
  const MutexLock lock(mutex_);
  return writes_->Cut(random);
}

}  // namespace ringside
