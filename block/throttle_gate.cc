#include "block/throttle_gate.h"

#include <algorithm>
#include <utility>

namespace ringside {

namespace {

// Apart, as what follows are for most the longer paths.
[[gnu::noinline]] int64_t CostOf(const ThrottleRate& rate, uint64_t bytes) {
  const double of_bytes = static_cast<double>(static_cast<int64_t>(bytes)) * rate.per_byte;
  return std::max(rate.per_request, static_cast<int64_t>(std::min(of_bytes + 0.5, 1e18)));
}

}  // namespace

bool ThrottleGate::Admit(BlockOp op, uint64_t bytes) {
  if (waits_) [[unlikely]]
    return MayGoNow(op, bytes);
  // It is charged even if it has to wait: its place is kept.
  Ticks fits = from_;
  for (const ThrottleRate& rate : rates_[op == BlockOp::kRead ? 0 : 1]) {
    const Ticks cost = rate.counts_bytes ? CostOf(rate, bytes) : rate.per_request;
    Ticks paid = rate.paid->load(std::memory_order_relaxed);
    while (!rate.paid->compare_exchange_weak(
        paid, std::min(std::max(paid, from_), kFarTicks) + cost, std::memory_order_relaxed)) {
    }
    fits = std::max(fits, paid - rate.burst);
  }
  fits_ = fits;
  if (fits > now_) [[unlikely]]
    return BeginToWait(op, bytes);
  return true;
}

// What waits is charged anew, to the new limits, if they are new.
void ThrottleGate::Refresh(uint32_t version) {
  version_ = version;
  rates_ = throttle_.rates();
  waits_ = std::exchange(interrupted_version_, 0) == version;
  since_ = now_;
  fits_ = std::max(fits_, now_);
}

void ThrottleGate::Interrupt(int64_t now_ns) {
  if (!waits_ || interrupted_version_ != 0) return;
  const int64_t waited_ns = now_ns - since_ / kThrottleTicksPerNs;
  stats_.waited_ns.Add(static_cast<uint64_t>(std::max<int64_t>(waited_ns, 0)));
  interrupted_version_ = std::exchange(version_, 0);
}

[[gnu::noinline]] bool ThrottleGate::MayGoNow(BlockOp op, uint64_t bytes) {
  if (now_ < fits_) return false;
  waits_ = false;
  stats_.waited_ns.Add(static_cast<uint64_t>((now_ - since_) / kThrottleTicksPerNs));
  // What the ring has behind it is taken to have come with it.
  from_ = std::max(fits_, now_ - kLateTicks);
  // A guest may have written another request in its place.
  return (op == charged_op_ && bytes == charged_bytes_) || Admit(op, bytes);
}

[[gnu::noinline]] bool ThrottleGate::BeginToWait(BlockOp op, uint64_t bytes) {
  waits_ = true;
  charged_op_ = op;
  charged_bytes_ = bytes;
  since_ = now_;
  stats_.waited.Add();
  return false;
}

// Rounded up, so that it fits then.
int64_t ThrottleGate::ask_again_ns() const {
  const int64_t fits_ns = (fits_ + kThrottleTicksPerNs - 1) / kThrottleTicksPerNs;
  return std::min(fits_ns, now_ / kThrottleTicksPerNs + kLookNs);
}

}  // namespace ringside
