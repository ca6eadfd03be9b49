// Port 0x61 of a PC without an interval timer. With one, KVM has this port.
//
// Bits 7 and 6 say why the last NMI came (a bus error); Linux reads them at an NMI that nobody else
// claims, and all-ones, as a port has that is not there, reads as such errors. Bit 5 is the output
// of the timer's counter 2: it is set, as it is when the counter has run out, since a guest that
// calibrates by it waits for that, many without a limit.
//
// Threads: any; there is no state.
// Spec: Intel I/O Controller Hub 10 Family Datasheet, section 13.7.1 (NMI_SC).
#pragma once

#include <algorithm>

#include "devices/bus.h"

namespace ringside {

class NmiStatusPort final : public IoHandler {
 public:
  static constexpr uint64_t kSize = 1;
  static constexpr std::byte kTimerCounter2Out{1 << 5};

  void Read(uint64_t, std::span<std::byte> data) override {
    std::ranges::fill(data, kTimerCounter2Out);
  }
  void Write(uint64_t, std::span<const std::byte>) override {}
};

}  // namespace ringside
