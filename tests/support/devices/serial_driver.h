// A guest's driver of a serial port that sends and receives by interrupt, as Linux does, so it
// hangs (and its wait ends with false) if an interrupt gets lost.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "devices/serial.h"
#include "tests/support/devices/serial_port.h"
#include "tests/support/wait.h"

namespace ringside::testing {

class SerialDriver {
 public:
  SerialDriver(Serial& serial, const EventFd& interrupt) : serial_(serial), interrupt_(interrupt) {
    Write(kFcr, kFcrEnable);
  }

  uint8_t Read(uint64_t offset) { return ReadAs<uint8_t>(serial_, offset); }
  void Write(uint64_t offset, uint8_t value) { WriteAs<uint8_t>(serial_, offset, value); }
  void Listen() { Write(kMcr, kMcrDtr | kMcrRts | kMcrOut2); }
  bool TransmitterEmpty() { return (Read(kLsr) & kLsrThre) != 0; }

  // Sends until the far end takes no more, then returns what was left.
  std::string_view SendUntilBusy(std::string_view text) {
    while (!text.empty() && TransmitterEmpty()) SendBurst(text);
    return text;
  }

  // Sends all of it; false if the transmitter stayed busy for too long.
  bool Send(std::string_view text) {
    Write(kIer, kIerTransmit);
    while (true) {
      text = SendUntilBusy(text);
      if (text.empty()) break;
      do {
        if (!WaitForInterrupt()) return false;
      } while ((Read(kIir) & 0x0f) != kIirTransmit);
    }
    Write(kIer, 0);
    return true;
  }

  // Receives `count` bytes, or what came before nothing came for too long.
  std::string Receive(size_t count) {
    std::string text;
    Write(kIer, kIerReceive);
    while (text.size() < count) {
      while (text.size() < count && (Read(kLsr) & kLsrData) != 0) {
        text += static_cast<char>(Read(kRbr));
      }
      if (text.size() < count && !WaitForInterrupt()) break;
    }
    Write(kIer, 0);
    return text;
  }

 private:
  void SendBurst(std::string_view& text) {
    const size_t burst = std::min(text.size(), Serial::kFifoSize);
    for (const char c : text.substr(0, burst)) Write(kThr, static_cast<uint8_t>(c));
    text.remove_prefix(burst);
  }
  bool WaitForInterrupt() {
    if (!WaitForFd(interrupt_.fd(), POLLIN)) return false;
    interrupt_.Clear();
    return true;
  }

  Serial& serial_;
  const EventFd& interrupt_;
};

}  // namespace ringside::testing
