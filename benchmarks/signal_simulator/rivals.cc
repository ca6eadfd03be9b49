#include "benchmarks/signal_simulator/rivals.h"

#include <algorithm>
#include <array>

namespace ringside {
namespace {

// What a guest was told of and has not replaced, as a policy sees it.
class AtHand {
 public:
  explicit AtHand(uint16_t next) : told_(next) {}

  void Told(uint16_t index, int64_t now_ns) {
    const auto more = static_cast<int16_t>(index - told_);
    if (more <= 0) return;
    told_ = index;
    count_ += static_cast<uint32_t>(more);
    progress_ns_ = now_ns;
  }
  void Replaced(size_t count, int64_t now_ns) {
    count_ -= std::min(static_cast<uint32_t>(count), count_);
    progress_ns_ = now_ns;
  }
  void Clear() { count_ = 0; }
  uint32_t count() const { return count_; }
  int64_t silence_ns(int64_t now_ns) const { return now_ns - progress_ns_; }

 private:
  uint16_t told_;
  uint32_t count_ = 0;
  int64_t progress_ns_ = 0;
};

class RivalSignaller : public Signaller {
 public:
  RivalSignaller(const SignallerSettings& settings, uint16_t next)
      : settings_(settings), at_hand_(next) {}
  void Took(size_t count, const QueueView& view) override { at_hand_.Replaced(count, view.now_ns); }
  void Raised(const QueueView& view) override { at_hand_.Told(view.shown, view.now_ns); }
  void Consumed(const QueueView& view) override { at_hand_.Told(view.shown, view.now_ns); }

 protected:
  const SignallerSettings& settings() const { return settings_; }
  AtHand& at_hand() { return at_hand_; }

 private:
  const SignallerSettings settings_;
  AtHand at_hand_;
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
    at_hand().Told(view.used_event, view.now_ns);
    if (view.in_flight() == 0 && at_hand().count() == 0) return SignalReason::kRunsDry;
    const double held = static_cast<uint16_t>(view.shown - view.used_event);
    const double under_way = view.in_flight() + held + at_hand().count();
    spent_ns_ += held / under_way * static_cast<double>(view.now_ns - last_ns_);
    last_ns_ = view.now_ns;
    return spent_ns_ >= static_cast<double>(settings().signal_cost_ns) ? SignalReason::kAge
                                                                       : SignalReason::kHold;
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
    at_hand().Told(view.used_event, view.now_ns);
    if (at_hand().count() <= kDry) return SignalReason::kRunsDry;
    if (at_hand().silence_ns(view.now_ns) < settings().silence_ns) return SignalReason::kHold;
    at_hand().Clear();
    return SignalReason::kSilence;
  }

 private:
  static constexpr uint32_t kDry = 1;
};

// Each rung is in use for an epoch. In seven of eight that is the best one, in the eighth a
// neighbour of it; to begin with each has two epochs.
class LadderSignaller final : public BusySignaller {
 public:
  LadderSignaller(const SignallerSettings& settings, uint16_t next)
      : BusySignaller(settings, next),
        caps_ns_({0, settings.signal_cost_ns, 3 * settings.signal_cost_ns, settings.silence_ns}) {}

  void Took(size_t count, const QueueView& view) override {
    BusySignaller::Took(count, view);
    const int64_t ns = view.now_ns - epoch_ns_;
    if (ns >= kEpochNs) EndEpoch(ns, view.now_ns);
    // What the rung before has left behind does not count.
    if (ns >= kEpochNs / 5) taken_ += count;
  }
  SignalReason Decide(const QueueView& view) override {
    if (caps_ns_[rung_] == 0) return SignalReason::kFaster;
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
  size_t taken_ = 0;
  int64_t epoch_ns_ = 0;
};

}  // namespace

std::unique_ptr<Signaller> MakePriced(const SignallerSettings& settings, uint16_t next) {
  return std::make_unique<PricedSignaller>(settings, next);
}

std::unique_ptr<Signaller> MakeBusy(const SignallerSettings& settings, uint16_t next) {
  return std::make_unique<BusySignaller>(settings, next);
}

std::unique_ptr<Signaller> MakeLadder(const SignallerSettings& settings, uint16_t next) {
  return std::make_unique<LadderSignaller>(settings, next);
}

}  // namespace ringside
