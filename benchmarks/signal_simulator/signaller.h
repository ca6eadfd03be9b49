// When an interrupt is raised: the product's policy and those it is compared with, all asked in the
// way in which devices/queue_worker.h asks the product's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/signal_policy.h"

namespace ringside {

// What a queue's signals stand at.
struct QueueView {
  uint32_t in_flight = 0;  // requests that were taken and not answered
  uint32_t owed = 0;       // answers that were shown, and that the guest was not told of
  int64_t now_ns = 0;
};

class Signaller {
 public:
  virtual ~Signaller() = default;
  // As SignalPolicy.
  virtual bool busy() const = 0;
  virtual void Handed(uint32_t count, int64_t now_ns) = 0;
  virtual void Took(uint32_t count, int64_t now_ns) = 0;
  virtual void Forget() {}
  // A request into or from `buffer` is shown next: whether that is not to wait.
  virtual bool IsAwaited(uint64_t /*buffer*/) { return false; }
  virtual SignalReason Decide(const QueueView& view) = 0;
  virtual SignalReason Look(int64_t since_ns, const QueueView& view) = 0;
};

enum class SignallerKind : uint8_t { kEarly, kBatched, kPriced, kBusy, kLadder, kCost };
inline constexpr SignallerKind kAllSignallers[] = {SignallerKind::kEarly,  SignallerKind::kBatched,
                                                   SignallerKind::kPriced, SignallerKind::kBusy,
                                                   SignallerKind::kLadder, SignallerKind::kCost};
const char* SignallerName(SignallerKind kind);

// What the comparisons take for granted, and the product's policy does not.
struct SignallerSettings {
  int64_t signal_cost_ns = 5'000;  // of an interrupt: K
  int64_t silence_ns = 30'000;     // after which a guest is taken for idle: S
};

std::unique_ptr<Signaller> MakeSignaller(SignallerKind kind, const SignallerSettings& settings);

}  // namespace ringside
