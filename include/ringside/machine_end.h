// How a machine's life ended.
#pragma once

#include <string>

namespace ringside {

enum class EndKind {
  kPowerOff,  // the guest powered off
  kReset,     // the guest asked for a reboot
  kStopped,   // Machine::Stop
  kCrash,     // triple fault, or KVM could not go on with this guest
  kFailure,   // the host failed: KVM_RUN, threads
};

struct MachineEnd {
  EndKind kind;
  std::string detail;  // one line for crashes and failures, else empty
};

}  // namespace ringside
