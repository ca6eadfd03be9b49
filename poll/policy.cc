#include "poll/policy.h"

#include <algorithm>
#include <array>

namespace ringside {
namespace {

class ConstantPolicy final : public PollPolicy {
 public:
  explicit ConstantPolicy(int64_t spin_ns) : spin_ns_(spin_ns) {}
  int64_t SpinNs(Waiting) const override { return spin_ns_; }
  void Observe(Waiting, int64_t) override {}

 private:
  const int64_t spin_ns_;
};

// The rule that QEMU's AioContext and kvm.ko's halt polling share. A wait within the limit was
// caught, so the limit is right. One beyond all limits makes looking a waste. One between would
// have been caught by a longer limit.
class GrowShrinkPolicy final : public PollPolicy {
 public:
  explicit GrowShrinkPolicy(const PollConfig& config) : config_(config) {}

  int64_t SpinNs(Waiting what) const override { return limits_ns_[static_cast<size_t>(what)]; }

  void Observe(Waiting what, int64_t waited_ns) override {
    int64_t& limit_ns = limits_ns_[static_cast<size_t>(what)];
    if (waited_ns <= limit_ns) return;
    if (waited_ns > config_.max_ns) {
      limit_ns = config_.shrink == 0 ? 0 : limit_ns / config_.shrink;
    } else {
      const int64_t grown = limit_ns == 0 ? kFirstNs : limit_ns * config_.grow;
      limit_ns = std::min(grown, config_.max_ns);
    }
  }

 private:
  static constexpr int64_t kFirstNs = 4000;

  const PollConfig config_;
  std::array<int64_t, 2> limits_ns_ = {};  // by Waiting
};

}  // namespace

const char* PollKindName(PollKind kind) {
  switch (kind) {
    case PollKind::kNever:
      return "never";
    case PollKind::kAlways:
      return "always";
    case PollKind::kFixed:
      return "fixed";
    case PollKind::kGrowShrink:
      return "grow-shrink";
  }
  return "unknown";
}

std::unique_ptr<PollPolicy> PollPolicy::Create(const PollConfig& config) {
  switch (config.kind) {
    case PollKind::kNever:
      return nullptr;
    case PollKind::kAlways:
      return std::make_unique<ConstantPolicy>(kForever);
    case PollKind::kFixed:
      return std::make_unique<ConstantPolicy>(config.max_ns);
    case PollKind::kGrowShrink:
      return std::make_unique<GrowShrinkPolicy>(config);
  }
  return nullptr;
}

}  // namespace ringside
