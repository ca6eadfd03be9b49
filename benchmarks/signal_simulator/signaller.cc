#include "benchmarks/signal_simulator/signaller.h"

#include "benchmarks/signal_simulator/rivals.h"

namespace ringside {
namespace {

class EarlySignaller final : public Signaller {
 public:
  void Took(size_t /*count*/, const QueueView& /*view*/) override {}
  SignalReason Decide(const QueueView& /*view*/) override { return SignalReason::kUrgent; }
  void Raised(const QueueView& /*view*/) override {}
  void Consumed(const QueueView& /*view*/) override {}
  SignalReason Look(int64_t /*since_ns*/, const QueueView& /*view*/) override {
    return SignalReason::kUrgent;
  }
};

// The product's.
class CostSignaller final : public Signaller {
 public:
  explicit CostSignaller(uint16_t next) : policy_(next) {}
  void Took(size_t count, const QueueView& view) override {
    if (policy_.timed()) policy_.Took(count, view.now_ns);
  }
  SignalReason Decide(const QueueView& view) override {
    return policy_.Decide(view.used_event, view.now_ns);
  }
  void Raised(const QueueView& view) override { policy_.Raised(view.shown, view.now_ns); }
  void Consumed(const QueueView& view) override { policy_.Consumed(view.shown, view.now_ns); }
  SignalReason Look(int64_t since_ns, const QueueView& view) override {
    return policy_.Look(view.used_event, since_ns, view.now_ns);
  }

 private:
  SignalPolicy policy_;
};

}  // namespace

const char* SignallerName(SignallerKind kind) {
  switch (kind) {
    case SignallerKind::kEarly:
      return "early";
    case SignallerKind::kBatched:
      return "batched";
    case SignallerKind::kPriced:
      return "priced";
    case SignallerKind::kBusy:
      return "busy";
    case SignallerKind::kLadder:
      return "ladder";
    case SignallerKind::kCost:
      return "cost";
  }
  return "?";
}

std::unique_ptr<Signaller> MakeSignaller(SignallerKind kind, const SignallerSettings& settings,
                                         uint16_t next) {
  switch (kind) {
    case SignallerKind::kEarly:
    case SignallerKind::kBatched:  // differs in the thread's turn only
      return std::make_unique<EarlySignaller>();
    case SignallerKind::kPriced:
      return MakePriced(settings, next);
    case SignallerKind::kBusy:
      return MakeBusy(settings, next);
    case SignallerKind::kLadder:
      return MakeLadder(settings, next);
    case SignallerKind::kCost:
      return std::make_unique<CostSignaller>(next);
  }
  return nullptr;
}

}  // namespace ringside
