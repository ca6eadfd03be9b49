// How long an I/O thread keeps looking at its rings before it goes to sleep. Pure logic: no clock,
// no thread, so that a recorded trace of waits can drive it.
//
// A wait lasts from the moment there was nothing left to do to the next event. Neither time spent
// working is in it, nor, if the thread slept, what it took to wake it: that would make every short
// wait look long where waking is slow, and nobody would ever begin to look.
//
// Threads: the I/O thread's own.
#pragma once

#include <cstdint>
#include <memory>

namespace ringside {

enum class PollKind {
  kNever,       // sleeps at once
  kAlways,      // never sleeps
  kFixed,       // looks for `max_ns`
  kGrowShrink,  // looks for as long as has paid lately, up to `max_ns`
};
const char* PollKindName(PollKind kind);

struct PollConfig {
  PollKind kind = PollKind::kNever;
  int64_t max_ns = 32'000;
  // Of kGrowShrink: factors by which the limit changes. A shrink of 0 goes back to nothing: one
  // late wait then loses all that was learned, which is why QEMU 11.1 left it for 2.
  uint32_t grow = 2;
  uint32_t shrink = 2;
};

// What is waited for. With requests in flight it is a completion most of the time, else a new
// request: two very different waits that alternate at depth 1, so each is learned by itself.
enum class Waiting { kIdle, kInFlight };

class PollPolicy {
 public:
  static constexpr int64_t kForever = INT64_MAX;

  virtual ~PollPolicy() = default;
  // How long to look before sleeping, in this wait.
  virtual int64_t SpinNs(Waiting what) const = 0;
  // A wait is over: how long it was.
  virtual void Observe(Waiting what, int64_t waited_ns) = 0;

  // Null for kNever.
  static std::unique_ptr<PollPolicy> Create(const PollConfig& config);
};

}  // namespace ringside
