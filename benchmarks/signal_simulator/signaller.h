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

// What an I/O thread sees of a queue. Indices modulo 2^16.
struct QueueView {
  uint16_t used_event = 0;
  uint16_t shown = 0;
  uint16_t taken = 0;
  int64_t now_ns = 0;
  uint16_t in_flight() const { return static_cast<uint16_t>(taken - shown); }
};

class Signaller {
 public:
  virtual ~Signaller() = default;
  // `count` requests were taken.
  virtual void Took(size_t count, const QueueView& view) = 0;
  // The guest wants an interrupt.
  virtual SignalReason Decide(const QueueView& view) = 0;
  virtual void Raised(const QueueView& view) = 0;
  virtual void Consumed(const QueueView& view) = 0;
  // One is held.
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

// `next`: where the rings begin.
std::unique_ptr<Signaller> MakeSignaller(SignallerKind kind, const SignallerSettings& settings,
                                         uint16_t next);

}  // namespace ringside
