// A serial port between a guest's driver (Read, Write) and a far end that the test plays.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "devices/serial.h"
#include "tests/support/registers.h"

namespace ringside::testing {

// Register names and bits as in the PC16550D data sheet, section 8.
inline constexpr uint64_t kRbr = 0, kThr = 0, kDll = 0, kIer = 1, kDlm = 1, kIir = 2, kFcr = 2,
                          kLcr = 3, kMcr = 4, kLsr = 5, kMsr = 6, kScr = 7;
inline constexpr uint8_t kIerReceive = 0x01, kIerTransmit = 0x02, kIerLineStatus = 0x04,
                         kIerModem = 0x08;
inline constexpr uint8_t kIirNone = 0x01, kIirTransmit = 0x02, kIirReceive = 0x04,
                         kIirLineStatus = 0x06, kIirFifos = 0xc0;
inline constexpr uint8_t kFcrEnable = 0x01, kFcrClearReceive = 0x02;
inline constexpr uint8_t kLcrDlab = 0x80;
inline constexpr uint8_t kMcrDtr = 0x01, kMcrRts = 0x02, kMcrOut1 = 0x04, kMcrOut2 = 0x08,
                         kMcrLoop = 0x10;
inline constexpr uint8_t kLsrData = 0x01, kLsrOverrun = 0x02, kLsrThre = 0x20, kLsrTemt = 0x40;
inline constexpr uint8_t kMsrCts = 0x10, kMsrDsr = 0x20, kMsrRi = 0x40, kMsrDcd = 0x80;

class FakePeer final : public SerialPeer {
 public:
  bool Send(std::byte data) override {
    sent += static_cast<char>(data);
    return room;
  }
  bool HasRoom() override { return room; }
  void InputDrained() override { ++drained; }

  std::string sent;
  bool room = true;  // what Send and HasRoom answer
  int drained = 0;
};

struct SerialPort {
  uint8_t Read(uint64_t offset) { return ReadAs<uint8_t>(serial, offset); }
  void Write(uint64_t offset, uint8_t value) { WriteAs<uint8_t>(serial, offset, value); }
  size_t Receive(std::string_view text) { return serial.Receive(Bytes(text)); }
  // Rises of the interrupt line since the last question.
  uint64_t Edges() { return interrupt.Clear(); }

  // As a driver does once it is ready for input.
  void Listen() { Write(kMcr, kMcrDtr | kMcrRts | kMcrOut2); }
  // Reads while the line status says there is something.
  std::string ReadAll() {
    std::string text;
    while ((Read(kLsr) & kLsrData) != 0) text += static_cast<char>(Read(kRbr));
    return text;
  }

  EventFd interrupt = *EventFd::Create();
  FakePeer peer;
  Serial serial{interrupt, peer};
};

}  // namespace ringside::testing
