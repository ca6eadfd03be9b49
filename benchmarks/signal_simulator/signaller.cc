#include "benchmarks/signal_simulator/signaller.h"

#include "benchmarks/signal_simulator/rivals.h"

namespace ringside {
namespace {

class EarlySignaller final : public Signaller {
 public:
  bool busy() const override { return false; }
  void Handed(uint32_t /*count*/, int64_t /*now_ns*/) override {}
  void Took(uint32_t /*count*/, int64_t /*now_ns*/) override {}
  SignalReason Decide(const QueueView& /*view*/) override { return SignalReason::kDry; }
  SignalReason Look(int64_t /*since_ns*/, const QueueView& /*view*/) override {
    return SignalReason::kDry;
  }
};

// The product's.
class CostSignaller final : public Signaller {
 public:
  bool busy() const override { return policy_.busy(); }
  void Handed(uint32_t count, int64_t now_ns) override { policy_.Handed(count, now_ns); }
  void Took(uint32_t count, int64_t now_ns) override {
    policy_.Took(count, policy_.wants_time() ? now_ns : SignalPolicy::kNoTime);
  }
  void Forget() override { policy_.Forget(); }
  bool IsAwaited(uint64_t buffer) override { return policy_.holds() && policy_.IsAwaited(buffer); }
  SignalReason Decide(const QueueView& view) override {
    return policy_.Decide(view.in_flight, view.owed, view.now_ns);
  }
  SignalReason Look(int64_t since_ns, const QueueView& view) override {
    return policy_.Look(view.in_flight + view.owed, since_ns, view.now_ns);
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

std::unique_ptr<Signaller> MakeSignaller(SignallerKind kind, const SignallerSettings& settings) {
  switch (kind) {
    case SignallerKind::kEarly:
    case SignallerKind::kBatched:  // differs in the thread's turn only
      return std::make_unique<EarlySignaller>();
    case SignallerKind::kPriced:
      return MakePriced(settings);
    case SignallerKind::kBusy:
      return MakeBusy(settings);
    case SignallerKind::kLadder:
      return MakeLadder(settings);
    case SignallerKind::kCost:
      return std::make_unique<CostSignaller>();
  }
  return nullptr;
}

}  // namespace ringside
