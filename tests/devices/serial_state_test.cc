// A serial port that is saved and made anew: what its guest sees, and what a state must not say.
#include <gtest/gtest.h>

#include "tests/support/devices/random_state.h"
#include "tests/support/devices/serial_port.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using namespace testing;

void ExpectRestored(SerialPort& port, const Serial::State& state) {
  ASSERT_EQ(port.serial.Restore(state), absl::OkStatus());
  EXPECT_EQ(port.serial.Save(), state);
}

TEST(SerialState, AllRegistersComeBack) {
  SerialPort before;
  before.Write(kFcr, kFcrEnable);
  before.Write(kLcr, kLcrDlab);
  before.Write(kDll, 0x0c);
  before.Write(kDlm, 0x34);
  before.Write(kLcr, 0x1b);
  before.Write(kScr, 0xa5);
  before.Write(kIer, kIerLineStatus | kIerModem);
  before.Write(kMcr, kMcrLoop | kMcrRts);
  for (int i = 0; i < 17; ++i) before.Write(kThr, static_cast<uint8_t>('a' + i));  // one too many

  SerialPort after;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.Read(kIir), kIirFifos | kIirLineStatus);
  EXPECT_EQ(after.Read(kLsr), kLsrData | kLsrOverrun | kLsrThre | kLsrTemt);
  EXPECT_EQ(after.Read(kLcr), 0x1b);
  EXPECT_EQ(after.Read(kScr), 0xa5);
  EXPECT_EQ(after.Read(kIer), kIerLineStatus | kIerModem);
  EXPECT_EQ(after.Read(kMcr), kMcrLoop | kMcrRts);
  EXPECT_EQ(after.Read(kMsr), kMsrCts);
  EXPECT_EQ(after.ReadAll(), "abcdefghijklmnop");
  after.Write(kLcr, kLcrDlab);
  EXPECT_EQ(after.Read(kDll), 0x0c);
  EXPECT_EQ(after.Read(kDlm), 0x34);
}

TEST(SerialState, AFifoThatWentAroundItsEndComesBackInOrder) {
  SerialPort before;
  before.Write(kFcr, kFcrEnable);
  before.Listen();
  before.Receive("0123456789abcdef");
  for (int i = 0; i < 10; ++i) before.Read(kRbr);
  before.Receive("ABCDEF");

  SerialPort after;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.ReadAll(), "abcdefABCDEF");
  EXPECT_EQ(after.Receive("0123456789abcdefg"), 16u);
  EXPECT_EQ(after.peer.drained, 0);
  EXPECT_EQ(after.ReadAll(), "0123456789abcdef");
  EXPECT_EQ(after.peer.drained, 1);  // which this peer waits for, and not the one before
}

TEST(SerialState, APendingTransmitInterruptIsRaised) {
  SerialPort before;
  before.Write(kIer, kIerTransmit);
  ASSERT_EQ(before.Edges(), 1u);

  SerialPort after;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.Edges(), 1u);
  EXPECT_EQ(after.Read(kIir), kIirTransmit);
  EXPECT_EQ(after.Read(kIir), kIirNone);  // acknowledged
  after.Write(kThr, 'x');
  EXPECT_EQ(after.Edges(), 1u);
}

TEST(SerialState, OneThatWasAcknowledgedIsNot) {
  SerialPort before;
  before.Write(kIer, kIerTransmit);
  before.Read(kIir);

  SerialPort after;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.Edges(), 0u);
  EXPECT_EQ(after.Read(kIir), kIirNone);
}

// Its driver sends nothing before it is told that it may.
TEST(SerialState, AGuestThatWaitsForTheTransmitterIsToldAtOnce) {
  SerialPort before;
  before.Write(kIer, kIerTransmit);
  before.peer.room = false;
  before.Write(kThr, 'x');
  before.Edges();
  ASSERT_EQ(before.Read(kLsr), 0);

  SerialPort after;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.Edges(), 1u);
  EXPECT_EQ(after.Read(kLsr), kLsrThre | kLsrTemt);
  EXPECT_EQ(after.Read(kIir), kIirTransmit);
}

TEST(SerialState, OrWhenThePeerHasRoom) {
  SerialPort before;
  before.Write(kIer, kIerTransmit);
  before.peer.room = false;
  before.Write(kThr, 'x');

  SerialPort after;
  after.peer.room = false;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.Edges(), 0u);
  EXPECT_EQ(after.Read(kLsr), 0);
  after.peer.room = true;
  after.serial.OutputDrained();
  EXPECT_EQ(after.Edges(), 1u);
  EXPECT_EQ(after.Read(kIir), kIirTransmit);
}

TEST(SerialState, ReceivedDataInterruptsAgain) {
  SerialPort before;
  before.Listen();
  before.Write(kIer, kIerReceive);
  before.Receive("a");

  SerialPort after;
  ExpectRestored(after, before.serial.Save());
  EXPECT_EQ(after.Edges(), 1u);
  EXPECT_EQ(after.Read(kIir), kIirReceive);
  EXPECT_EQ(after.Read(kRbr), 'a');
}

TEST(SerialState, WhatNoPortCanHoldIsRefused) {
  SerialPort port;
  port.Write(kScr, 1);
  const Serial::State before = port.serial.Save();
  const auto refused = [&port](const Serial::State& state, const char* what, const char* value) {
    EXPECT_THAT(port.serial.Restore(state), IsBadInput(what, value));
  };
  refused({.interrupt_enable = 0x10}, "interrupt enable", "0x10");
  refused({.fifo_control = 2}, "FIFO control", "0x2");
  refused({.modem_control = 0x20}, "modem control", "0x20");
  refused({.overrun = 2}, "overrun", "0x2");
  refused({.transmitter_interrupt = 0xff}, "transmitter interrupt", "0xff");
  refused({.input = {1, 2}}, "2 bytes", "has room for 1");
  refused({.fifo_control = 1, .input = std::vector<uint8_t>(17)}, "17 bytes", "has room for 16");
  EXPECT_EQ(port.serial.Save(), before);
  EXPECT_EQ(port.Edges(), 0u);
}

// What it takes it says again, and whatever its guest then does it still can be saved.
void TryRestore(const Serial::State& state, RandomState& random, int& taken) {
  static SerialPort fresh;  // one event for all
  Serial port(fresh.interrupt, fresh.peer);
  const Serial::State before = port.Save();
  if (!port.Restore(state).ok()) {
    ASSERT_EQ(port.Save(), before);
    return;
  }
  ++taken;
  ASSERT_EQ(port.Save(), state);
  for (int i = 0; i < 8; ++i) {
    if (random.Below(2) == 0) {
      WriteAs<uint8_t>(port, random.Below(Serial::kSize), random.Value<uint8_t>());
    } else {
      ReadAs<uint8_t>(port, random.Below(Serial::kSize));
    }
  }
  port.Receive(Bytes("0123456789abcdefgh"));
  ASSERT_EQ(Serial::Check(port.Save()), absl::OkStatus());
}

TEST(SerialState, AnyBytesAreTakenOrRefused) {
  RandomState random(1);
  int taken = 0;
  for (int round = 0; round < 20000; ++round) {
    Serial::State state;
    random.Fill(state, Serial::kFifoSize + 1);
    TryRestore(state, random, taken);
  }
  for (int round = 0; round < 20000; ++round) {
    Serial::State state = {
        .interrupt_enable = 3, .fifo_control = 1, .modem_control = 0x0b, .input = {'a', 'b'}};
    random.Mutate(state);
    TryRestore(state, random, taken);
  }
  EXPECT_GT(taken, 1000);
}

}  // namespace
}  // namespace ringside
