#include "benchmarks/signal_simulator/rivals.h"

#include <algorithm>
#include <array>

namespace ringside {
namespace {

// Counts what the guest was handed and has not replaced, as the product's policy does.
class RivalSignaller : public Signaller {
 public:
  explicit RivalSignaller(const SignallerSettings& settings) : settings_(settings) {}
  bool busy() const override { return at_hand_ > 0; }
  void Handed(uint32_t count, int64_t now_ns) override {
    at_hand_ += count;
    if (now_ns != SignalPolicy::kNoTime) progress_ns_ = now_ns;
  }
  void Took(uint32_t count, int64_t now_ns) override {
    at_hand_ -= std::min(count, at_hand_);
    progress_ns_ = now_ns;
  }

 protected:
  const SignallerSettings& settings() const { return settings_; }
  uint32_t at_hand() const { return at_hand_; }
  void Forget() { at_hand_ = 0; }
  bool IsSilent(int64_t now_ns) const { return now_ns - progress_ns_ >= settings_.silence_ns; }

 private:
  const SignallerSettings settings_;
  uint32_t at_hand_ = 0;
  int64_t progress_ns_ = 0;
};

class PricedSignaller final : public RivalSignaller {
 public:
  using RivalSignaller::RivalSignaller;

  SignalReason Decide(const QueueView& view) override {
    spent_ns_ = 0;
    last_ns_ = view.now_ns;
    return Look(view.now_ns, view);
  }
  SignalReason Look(int64_t /*since_ns*/, const QueueView& view) override {
    if (view.in_flight == 0 && !busy()) return SignalReason::kDry;
    const double under_way = view.in_flight + view.owed + at_hand();
    spent_ns_ += view.owed / under_way * static_cast<double>(view.now_ns - last_ns_);
    last_ns_ = view.now_ns;
    const bool enough = spent_ns_ >= static_cast<double>(settings().signal_cost_ns);
    return enough ? SignalReason::kAge : SignalReason::kHold;
  }

 private:
  double spent_ns_ = 0;
  int64_t last_ns_ = 0;
};

class BusySignaller : public RivalSignaller {
 public:
  using RivalSignaller::RivalSignaller;

  SignalReason Decide(const QueueView& view) override { return Look(view.now_ns, view); }
  SignalReason Look(int64_t /*since_ns*/, const QueueView& view) override {
    if (at_hand() <= kDry) return SignalReason::kDry;
    if (!IsSilent(view.now_ns)) return SignalReason::kHold;
    Forget();
    return SignalReason::kSilence;
  }

 private:
  // The next interrupt is on its way while the guest is busy with the last one.
  static constexpr uint32_t kDry = 1;
};

// Each rung is in use for an epoch. In seven of eight that is the best one, in the eighth a
// neighbour of it; to begin with each has two epochs.
class LadderSignaller final : public BusySignaller {
 public:
  explicit LadderSignaller(const SignallerSettings& settings)
      : BusySignaller(settings),
        caps_ns_({0, settings.signal_cost_ns, 3 * settings.signal_cost_ns, settings.silence_ns}) {}

  // It measures the guest's pace all the time.
  bool busy() const override { return true; }
  void Took(uint32_t count, int64_t now_ns) override {
    BusySignaller::Took(count, now_ns);
    const int64_t ns = now_ns - epoch_ns_;
    if (ns >= kEpochNs) EndEpoch(ns, now_ns);
    // What the rung before has left behind does not count.
    if (ns >= kEpochNs / 5) taken_ += count;
  }
  SignalReason Decide(const QueueView& view) override {
    if (caps_ns_[rung_] == 0) return SignalReason::kDry;
    return BusySignaller::Decide(view);
  }
  SignalReason Look(int64_t since_ns, const QueueView& view) override {
    if (view.now_ns - since_ns > caps_ns_[rung_]) return SignalReason::kAge;
    return BusySignaller::Look(since_ns, view);
  }

 private:
  static constexpr int64_t kEpochNs = 1'000'000;
  static constexpr double kWeight = 0.3;

  void EndEpoch(int64_t ns, int64_t now_ns) {
    const double pace = static_cast<double>(taken_) / (static_cast<double>(ns) - kEpochNs / 5.0);
    double& known = paces_[rung_];
    known = known == 0 ? pace : known + kWeight * (pace - known);
    taken_ = 0;
    epoch_ns_ = now_ns;
    ++epochs_;
    if (epochs_ < 2 * caps_ns_.size()) {
      rung_ = epochs_ % caps_ns_.size();
      return;
    }
    rung_ = std::ranges::max_element(paces_) - paces_.begin();
    if (epochs_ % 8 != 0) return;
    const bool up = rung_ == 0 || (epochs_ / 8 % 2 == 0 && rung_ + 1 < caps_ns_.size());
    rung_ = up ? rung_ + 1 : rung_ - 1;
  }

  const std::array<int64_t, 4> caps_ns_;
  std::array<double, 4> paces_{};
  size_t rung_ = 0;
  size_t epochs_ = 0;
  uint64_t taken_ = 0;
  int64_t epoch_ns_ = 0;
};

}  // namespace

std::unique_ptr<Signaller> MakePriced(const SignallerSettings& settings) {
  return std::make_unique<PricedSignaller>(settings);
}

std::unique_ptr<Signaller> MakeBusy(const SignallerSettings& settings) {
  return std::make_unique<BusySignaller>(settings);
}

std::unique_ptr<Signaller> MakeLadder(const SignallerSettings& settings) {
  return std::make_unique<LadderSignaller>(settings);
}

}  // namespace ringside
