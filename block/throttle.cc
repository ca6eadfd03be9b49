#include "block/throttle.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace ringside {
namespace {

constexpr double kTicksPerSecond = 1e9 * kThrottleTicksPerNs;
constexpr int64_t kMostDebt = int64_t{1} << 60;  // two years: sums with the clock do not overflow

struct NamedLimit {
  const char* name;
  ThrottleLimit ThrottleLimits::* limit;
  bool of_reads;
  bool of_others;
  bool counts_bytes;
};

constexpr std::array<NamedLimit, kThrottleLimits> kNamedLimits = {{
    {"iops-total", &ThrottleLimits::iops_total, true, true, false},
    {"iops-read", &ThrottleLimits::iops_read, true, false, false},
    {"iops-write", &ThrottleLimits::iops_write, false, true, false},
    {"bps-total", &ThrottleLimits::bps_total, true, true, true},
    {"bps-read", &ThrottleLimits::bps_read, true, false, true},
    {"bps-write", &ThrottleLimits::bps_write, false, true, true},
}};

double TicksPerUnit(uint64_t per_second) {
  return kTicksPerSecond / static_cast<double>(per_second);
}

// At the rate of its bursts for max_length, a disk gets ahead of its average by so much.
int64_t BurstTicks(const ThrottleLimit& limit) {
  if (limit.max == 0) return 0;
  const uint32_t seconds = std::max(limit.max_length, 1u);
  const double ahead = static_cast<double>(limit.max - limit.average) * seconds;
  return static_cast<int64_t>(std::min(ahead * TicksPerUnit(limit.average), 1e18));
}

ThrottleRate RateOf(const NamedLimit& limit, uint64_t per_second, uint64_t iops_size,
                    std::atomic<int64_t>& paid, int64_t burst) {
  const double ticks = TicksPerUnit(per_second);
  if (limit.counts_bytes) {
    return {
        .paid = &paid, .per_request = 0, .burst = burst, .per_byte = ticks, .counts_bytes = true};
  }
  return {.paid = &paid,
          .per_request = std::llround(ticks),
          .burst = burst,
          .per_byte = iops_size == 0 ? 0 : ticks / static_cast<double>(iops_size),
          .counts_bytes = iops_size != 0};
}

}  // namespace

absl::Status Throttle::Check(const std::string& name, const ThrottleLimits& limits) {
  for (const NamedLimit& each : kNamedLimits) {
    const ThrottleLimit& limit = limits.*each.limit;
    if (limit.max != 0 && limit.max <= limit.average) {
      return BadInput("%s: %s-max %d is not above %s %d: bursts are faster than the average", name,
                      each.name, limit.max, each.name, limit.average);
    }
    if (limit.max != 0 && limit.average == 0) {
      return BadInput("%s: %s-max %d has no average to burst from: give %s, too", name, each.name,
                      limit.max, each.name);
    }
    if (limit.max_length != 0 && limit.max == 0) {
      return BadInput("%s: %s-max-length %d is without a burst: give %s-max, too", name, each.name,
                      limit.max_length, each.name);
    }
  }
  return absl::OkStatus();
}

// With nothing to pay for from before: who raises a limit does not want to wait out old debts.
void Throttle::Set(const ThrottleLimits& limits) {
  const MutexLock lock(mutex_);
  limits_ = limits;
  for (std::atomic<int64_t>& paid : paid_) paid.store(0, std::memory_order_relaxed);
}

ThrottleLimits Throttle::limits() const {
  const MutexLock lock(mutex_);
  return limits_;
}

bool Throttle::any() const {
  const ThrottleLimits now = limits();
  return std::ranges::any_of(
      kNamedLimits, [&](const NamedLimit& each) { return (now.*each.limit).average != 0; });
}

void Throttle::AddTo(ThrottleRates& rates) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < kNamedLimits.size(); ++i) {
    const NamedLimit& each = kNamedLimits[i];
    const ThrottleLimit& limit = limits_.*each.limit;
    const auto add = [&, iops_size = limits_.iops_size](uint64_t per_second,
                                                        std::atomic<int64_t>& paid, int64_t burst) {
      if (per_second == 0) return;
      const ThrottleRate rate = RateOf(each, per_second, iops_size, paid, burst);
      if (each.of_reads) rates[0].push_back(rate);
      if (each.of_others) rates[1].push_back(rate);
    };
    add(limit.average, paid_[2 * i], BurstTicks(limit));
    add(limit.max, paid_[2 * i + 1], 0);
  }
}

ThrottleDebts Throttle::Debts(int64_t now_ns) const {
  ThrottleDebts debts;
  std::ranges::transform(paid_, debts.begin(), [&](const std::atomic<int64_t>& paid) {
    return std::max<int64_t>(paid.load(std::memory_order_relaxed) - now_ns * kThrottleTicksPerNs,
                             0);
  });
  return debts;
}

void Throttle::Owe(const ThrottleDebts& debts, int64_t now_ns) {
  for (size_t i = 0; i < debts.size(); ++i) {
    const int64_t debt = std::clamp<int64_t>(debts[i], 0, kMostDebt);
    if (debt > 0) paid_[i].store(now_ns * kThrottleTicksPerNs + debt, std::memory_order_relaxed);
  }
}

void ThrottleGroup::Set(const ThrottleLimits& limits) {
  throttle_.Set(limits);
  const MutexLock lock(mutex_);
  for (DiskThrottle* disk : disks_) disk->Changed();
}

DiskThrottle::DiskThrottle(ThrottleGroup* group) : group_(group) {
  if (group == nullptr) return;
  const MutexLock lock(group->mutex_);
  group->disks_.push_back(this);
  Changed();
}

DiskThrottle::~DiskThrottle() {
  if (group_ == nullptr) return;
  const MutexLock lock(group_->mutex_);
  std::erase(group_->disks_, this);
}

void DiskThrottle::Set(const ThrottleLimits& limits) {
  own_.Set(limits);
  Changed();
}

void DiskThrottle::Changed() {
  const MutexLock lock(mutex_);
  const bool any = own_.any() || (group_ != nullptr && group_->throttle_.any());
  if (++changes_ == 0) ++changes_;
  version_.store(any ? changes_ : 0, std::memory_order_release);
}

ThrottleRates DiskThrottle::rates() {
  ThrottleRates rates;
  own_.AddTo(rates);
  if (group_ != nullptr) group_->throttle_.AddTo(rates);
  return rates;
}

}  // namespace ringside
