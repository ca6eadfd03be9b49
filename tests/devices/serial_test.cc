// Registers of the serial port; see the other two files for interrupts and for flow control.
#include "devices/serial.h"

#include <gtest/gtest.h>

#include "tests/support/devices/serial_port.h"

namespace ringside {
namespace {

using namespace testing;

class SerialRegisters : public ::testing::Test, public SerialPort {};

TEST_F(SerialRegisters, AreAsTheDataSheetHasThemAfterReset) {
  EXPECT_EQ(Read(kIer), 0);
  EXPECT_EQ(Read(kIir), kIirNone);
  EXPECT_EQ(Read(kLcr), 0);
  EXPECT_EQ(Read(kMcr), 0);
  EXPECT_EQ(Read(kLsr), kLsrThre | kLsrTemt);
  EXPECT_EQ(Read(kMsr), kMsrCts | kMsrDsr | kMsrDcd);  // somebody is at the other end
  EXPECT_EQ(Edges(), 0u);
}

TEST_F(SerialRegisters, ReadBackTheBitsThatExist) {
  const struct {
    uint64_t offset;
    uint8_t bits;
  } kTable[] = {{kIer, 0x0f}, {kLcr, 0xff}, {kMcr, 0x1f}, {kScr, 0xff}};
  for (const auto& row : kTable) {
    for (const uint8_t value : {0xff, 0x55, 0xaa, 0x00}) {
      Write(row.offset, value);
      EXPECT_EQ(Read(row.offset), value & row.bits) << "register " << row.offset;
    }
  }
}

TEST_F(SerialRegisters, StatusIsReadOnly) {
  const uint8_t line = Read(kLsr);
  const uint8_t modem = Read(kMsr);
  for (const uint8_t value : {0x00, 0xff}) {
    Write(kLsr, value);
    Write(kMsr, value);
    EXPECT_EQ(Read(kLsr), line);
    EXPECT_EQ(Read(kMsr), modem);
  }
}

TEST_F(SerialRegisters, ScratchIsNothingElse) {
  Write(kScr, 0xa5);
  for (uint64_t offset = 0; offset < kScr; ++offset) EXPECT_NE(Read(offset), 0xa5) << offset;
  EXPECT_EQ(Read(kScr), 0xa5);
}

TEST_F(SerialRegisters, DivisorLatchTakesThePlaceOfDataAndInterruptEnable) {
  Write(kIer, kIerLineStatus);
  Listen();
  Receive("x");
  Write(kLcr, kLcrDlab | 0x03);
  Write(kDll, 0x34);
  Write(kDlm, 0x12);
  EXPECT_EQ(Read(kDll), 0x34);
  EXPECT_EQ(Read(kDlm), 0x12);
  EXPECT_EQ(peer.sent, "");
  Write(kLcr, 0x03);
  EXPECT_EQ(Read(kIer), kIerLineStatus);
  EXPECT_EQ(Read(kRbr), 'x');  // not consumed by reading the divisor
  Write(kLcr, kLcrDlab);
  EXPECT_EQ(Read(kDll), 0x34);
  EXPECT_EQ(Read(kDlm), 0x12);
}

TEST_F(SerialRegisters, OtherRegistersDoNotMindTheDivisorLatch) {
  Write(kLcr, kLcrDlab);
  Write(kMcr, 0x0b);
  Write(kScr, 0x77);
  Write(kFcr, kFcrEnable);
  EXPECT_EQ(Read(kMcr), 0x0b);
  EXPECT_EQ(Read(kScr), 0x77);
  EXPECT_EQ(Read(kIir), kIirNone | kIirFifos);
  EXPECT_EQ(Read(kLsr), kLsrThre | kLsrTemt);
}

TEST_F(SerialRegisters, WhatIsWrittenToTheDataRegisterIsSentInOrder) {
  for (const char c : {'a', '\0', '\xff', 'b'}) Write(kThr, static_cast<uint8_t>(c));
  EXPECT_EQ(peer.sent, std::string("a\0\xff"
                                   "b",
                                   4));
}

TEST_F(SerialRegisters, DataReadyLastsUntilTheLastByteIsRead) {
  Write(kFcr, kFcrEnable);
  Listen();
  ASSERT_EQ(Receive("ab"), 2u);
  EXPECT_EQ(Read(kLsr) & kLsrData, kLsrData);
  EXPECT_EQ(Read(kRbr), 'a');
  EXPECT_EQ(Read(kLsr) & kLsrData, kLsrData);
  EXPECT_EQ(Read(kRbr), 'b');
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
}

TEST_F(SerialRegisters, AnEmptyReceiverReadsZeroAndStaysEmpty) {
  EXPECT_EQ(Read(kRbr), 0);
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
  Listen();
  EXPECT_EQ(Receive("a"), 1u);
  EXPECT_EQ(Read(kRbr), 'a');
}

TEST_F(SerialRegisters, WithoutFifosOneByteIsHeldWithThemSixteen) {
  Listen();
  EXPECT_EQ(Receive("abc"), 1u);
  EXPECT_EQ(ReadAll(), "a");
  Write(kFcr, kFcrEnable);
  EXPECT_EQ(Receive("0123456789abcdefg"), 16u);
  EXPECT_EQ(ReadAll(), "0123456789abcdef");
}

TEST_F(SerialRegisters, TheFifoKeepsItsOrderRoundItsEnd) {
  Write(kFcr, kFcrEnable);
  Listen();
  std::string in, out;
  for (char c = 'a'; c <= 'z'; ++c) {
    const std::string three(3, c);
    ASSERT_EQ(Receive(three), 3u);
    in += three;
    if (c == 'a') continue;  // stays three ahead
    for (int i = 0; i < 3; ++i) out += static_cast<char>(Read(kRbr));
  }
  EXPECT_EQ(out + ReadAll(), in);
}

TEST_F(SerialRegisters, FifosShowInTheInterruptIdentification) {
  EXPECT_EQ(Read(kIir) & kIirFifos, 0);
  Write(kFcr, kFcrEnable);
  EXPECT_EQ(Read(kIir) & kIirFifos, kIirFifos);
  Write(kFcr, 0);
  EXPECT_EQ(Read(kIir) & kIirFifos, 0);
}

TEST_F(SerialRegisters, SwitchingTheFifosOnOrOffClearsThem) {
  Listen();
  Receive("a");
  Write(kFcr, kFcrEnable);
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
  Receive("bc");
  Write(kFcr, 0);
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
}

TEST_F(SerialRegisters, TheReceiveFifoIsClearedOnRequestOnly) {
  Write(kFcr, kFcrEnable);
  Listen();
  Receive("ab");
  Write(kFcr, kFcrEnable | 0xc0);  // another trigger level
  Write(kFcr, kFcrEnable | 0x04);  // the transmitter's
  EXPECT_EQ(Read(kRbr), 'a');
  Write(kFcr, kFcrEnable | kFcrClearReceive);
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
  EXPECT_EQ(Receive("c"), 1u);
  EXPECT_EQ(Read(kRbr), 'c');
}

TEST_F(SerialRegisters, FifoControlBitsMeanNothingWithoutTheEnableBit) {
  Listen();
  Receive("a");
  Write(kFcr, kFcrClearReceive);
  EXPECT_EQ(ReadAll(), "a");
}

TEST_F(SerialRegisters, AWiderAccessIsOneOfEachRegisterInTurn) {
  Write(kFcr, kFcrEnable);
  WriteAs<uint32_t>(serial, kLcr, 0x00000b03);  // line control, modem control, two read-only ones
  EXPECT_EQ(Read(kLcr), 0x03);
  EXPECT_EQ(Read(kMcr), 0x0b);
  Receive("z");
  EXPECT_EQ(ReadAs<uint16_t>(serial, kMcr), 0x610b);  // and the line status above it
  EXPECT_EQ(ReadAs<uint64_t>(serial, 0), 0x00b0'600b'03c1'007aULL);
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
  WriteAs<uint16_t>(serial, kThr, uint16_t{kIerReceive << 8 | 'q'});
  EXPECT_EQ(peer.sent, "q");
  EXPECT_EQ(Read(kIer), kIerReceive);
}

class SerialLoopback : public SerialRegisters {
 protected:
  SerialLoopback() { Write(kMcr, kMcrLoop); }
};

TEST_F(SerialLoopback, ConnectsTheModemOutputsToItsInputs) {
  const struct {
    uint8_t output, input;
  } kTable[] = {{0, 0},
                {kMcrDtr, kMsrDsr},
                {kMcrRts, kMsrCts},
                {kMcrOut1, kMsrRi},
                {kMcrOut2, kMsrDcd},
                {kMcrOut2 | kMcrRts, kMsrDcd | kMsrCts}};
  for (const auto& row : kTable) {
    Write(kMcr, kMcrLoop | row.output);
    EXPECT_EQ(Read(kMsr) & 0xf0, row.input);
  }
  Write(kMcr, 0);
  EXPECT_EQ(Read(kMsr), kMsrCts | kMsrDsr | kMsrDcd);
}

TEST_F(SerialLoopback, WhatIsSentIsReceivedAndGoesNowhereElse) {
  Write(kFcr, kFcrEnable);
  for (const char c : {'a', 'b', 'c'}) Write(kThr, static_cast<uint8_t>(c));
  EXPECT_EQ(ReadAll(), "abc");
  EXPECT_EQ(peer.sent, "");
  EXPECT_EQ(Read(kLsr), kLsrThre | kLsrTemt);
  Write(kMcr, 0);
  Write(kThr, 'd');
  EXPECT_EQ(peer.sent, "d");
}

TEST_F(SerialLoopback, AFullFifoKeepsItsBytesAndReportsTheOverrunOnce) {
  Write(kFcr, kFcrEnable);
  for (char c = 'a'; c < 'a' + 16; ++c) Write(kThr, static_cast<uint8_t>(c));
  EXPECT_EQ(Read(kLsr) & kLsrOverrun, 0);
  Write(kThr, '!');
  EXPECT_EQ(Read(kLsr) & kLsrOverrun, kLsrOverrun);
  EXPECT_EQ(Read(kLsr) & kLsrOverrun, 0);
  EXPECT_EQ(ReadAll(), "abcdefghijklmnop");
}

// The steps of Linux's 8250_port.c, autoconfig() and autoconfig_16550a(): anything but these
// answers and the console is taken for an older or a stranger chip, or for none.
TEST_F(SerialRegisters, LinuxFindsA16550A) {
  Write(kIer, 0);
  const uint8_t ier_off = Read(kIer) & 0x0f;
  Write(kIer, 0x0f);
  const uint8_t ier_on = Read(kIer) & 0x0f;
  Write(kIer, 0);
  EXPECT_EQ(ier_off, 0x00);
  EXPECT_EQ(ier_on, 0x0f);

  const uint8_t mcr = Read(kMcr);
  Write(kMcr, kMcrLoop | kMcrOut2 | kMcrRts);
  EXPECT_EQ(Read(kMsr) & 0xf0, kMsrDcd | kMsrCts);
  Write(kMcr, mcr);

  Write(kLcr, 0xbf);  // enhanced features of later chips, where FIFO control is on this one
  Write(kFcr, 0);
  Write(kLcr, 0);
  Write(kFcr, kFcrEnable);
  EXPECT_EQ(Read(kIir) >> 6, 3) << "no working FIFOs: a 16450 or 16550";

  for (const uint8_t lcr : {0x80, 0xbf}) {
    Write(kLcr, lcr);
    EXPECT_NE(Read(2), 0) << "taken for a chip with an enhanced feature register";
  }
  Write(kLcr, 0);
  const uint8_t loop_off = Read(kMcr);
  Write(kLcr, 0xe0);
  const uint8_t bank_off = Read(2);
  ASSERT_EQ((bank_off ^ loop_off) & kMcrLoop, 0);
  Write(kLcr, 0);
  Write(kMcr, loop_off ^ kMcrLoop);
  Write(kLcr, 0xe0);
  EXPECT_EQ((Read(2) ^ loop_off) & kMcrLoop, 0) << "taken for a National Semiconductor SuperIO";
  Write(kLcr, 0);
  Write(kMcr, loop_off);

  Write(kFcr, kFcrEnable);
  const uint8_t fifo = Read(kIir) >> 5;
  Write(kFcr, kFcrEnable | 0x20);
  Write(kLcr, 0x80);
  Write(kFcr, kFcrEnable | 0x20);
  EXPECT_EQ(fifo, 6);
  EXPECT_EQ(Read(kIir) >> 5, 6) << "taken for a 16750";
  Write(kLcr, 0);
  Write(kIer, 0x40);
  EXPECT_EQ(Read(kIer), 0) << "taken for an XScale port";
}

}  // namespace
}  // namespace ringside
