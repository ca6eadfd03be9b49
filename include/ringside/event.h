// What happens to a machine, told to its embedder as it happens: MachineConfig::events.
#pragma once

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "ringside/export.h"

namespace ringside {

enum class EventKind {
  kStarted,       // Machine::Start: the vCPUs are about to run
  kConsoleSpoke,  // the guest has sent its first byte to the console
  kPaused,        // the machine is still
  kResumed,       // a machine that was still goes on
  kDiskError,     // a request of `device` failed and was answered; `detail`: which, and why
  // One failed and is kept (DiskConfig::rerror, werror): the machine pauses, if it has not already,
  // and Machine::Resume tries it again; `detail`: which, and why.
  kDiskStopped,
  kNeedsReset,     // `device` is stopped until its driver resets it; `detail`: why
  kPanicked,       // the guest's kernel says that it has crashed; the machine runs on
  kAgentUp,        // the guest's agent answers, with VsockConfig::watch_agent (docs/agent.md)
  kAgentLost,      // it does not any more
  kPowerOffAsked,  // the power button was pressed: Machine::PressPowerButton, Machine::ShutDown
  kEnded,          // the machine is over, and this is the last; `detail`: how, see below
};

struct MachineEvent {
  EventKind kind = EventKind::kStarted;
  // From 1, one more with each event. A gap tells of events that were lost, since the sink had not
  // taken those before them.
  int64_t sequence = 0;
  // When it happened, by the clock on the wall and by CLOCK_MONOTONIC; of several, the first.
  absl::Time time = {};
  int64_t monotonic_ns = 0;
  std::string device = {};  // its id, "disk0", where the event is about one; else empty
  // One line, or empty. Of kEnded "power-off", "reset", "stopped", "crash" or "failure", as
  // EndKind, and for the latter two ": " and MachineEnd::detail.
  std::string detail = {};
  // How many there were of the kind, the device and the request, this one included: what a guest
  // can bring about as often as it likes is told at once, and then once per second at most.
  uint64_t count = 1;
};

// Threads: called on one thread of the machine (that of its console), one event at a time, in the
// order of their sequence. Neither the guest nor its disks wait for it, but while it runs the
// console's bytes, the callbacks of BeginPause and the events behind it do, and so does
// Machine::Wait for the last one: it must not block for long. It may call Stop, Resume, BeginPause,
// PressPowerButton and ShutDown of the machine, and nothing that waits.
// Of a machine that Machine::Create has returned kEnded is the last call, before Machine::Wait or
// the machine's destructor returns, whether it was started or not.
// Ownership: the sink is the embedder's and outlives the machine.
class RINGSIDE_EXPORT EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void Happened(const MachineEvent& event) = 0;
};

}  // namespace ringside
