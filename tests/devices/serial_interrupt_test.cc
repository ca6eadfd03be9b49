// When the serial port interrupts: PC16550D data sheet, table III, seen through an interrupt
// controller that counts rises of the line.
#include <gtest/gtest.h>

#include "tests/support/devices/serial_port.h"

namespace ringside {
namespace {

using namespace testing;

class SerialInterrupt : public ::testing::Test, public SerialPort {
 protected:
  void SetUp() override {
    Write(kFcr, kFcrEnable);
    Listen();
  }
  uint8_t Id() { return Read(kIir) & 0x0f; }
};

TEST_F(SerialInterrupt, NothingInterruptsWhatEnabledNothing) {
  Receive("abc");
  Write(kThr, 'x');
  serial.OutputDrained();
  EXPECT_EQ(Edges(), 0u);
  EXPECT_EQ(Id(), kIirNone);
}

TEST_F(SerialInterrupt, ReceivedDataRaisesTheLineOnceHoweverMuchComes) {
  Write(kIer, kIerReceive);
  EXPECT_EQ(Edges(), 0u);
  Receive("a");
  EXPECT_EQ(Edges(), 1u);
  Receive("bc");
  EXPECT_EQ(Edges(), 0u);
  EXPECT_EQ(Id(), kIirReceive);
  EXPECT_EQ(Id(), kIirReceive);  // reading the identification does not acknowledge it
}

TEST_F(SerialInterrupt, ReceivedDataStaysUntilTheFifoIsEmptyAndThenRisesAnew) {
  Write(kIer, kIerReceive);
  Receive("ab");
  EXPECT_EQ(Edges(), 1u);
  Read(kRbr);
  EXPECT_EQ(Id(), kIirReceive);
  Read(kRbr);
  EXPECT_EQ(Id(), kIirNone);
  EXPECT_EQ(Edges(), 0u);
  Receive("c");
  EXPECT_EQ(Edges(), 1u);
}

TEST_F(SerialInterrupt, EnablingItWhileDataWaitsRaisesTheLine) {
  Receive("a");
  EXPECT_EQ(Edges(), 0u);
  Write(kIer, kIerReceive);
  EXPECT_EQ(Edges(), 1u);
}

TEST_F(SerialInterrupt, DisablingTheCauseLowersTheLine) {
  Write(kIer, kIerReceive);
  Receive("a");
  EXPECT_EQ(Edges(), 1u);
  Write(kIer, 0);
  EXPECT_EQ(Id(), kIirNone);
  Write(kIer, kIerReceive);
  EXPECT_EQ(Edges(), 1u);
}

TEST_F(SerialInterrupt, ClearingTheFifoLowersTheLine) {
  Write(kIer, kIerReceive);
  Receive("a");
  EXPECT_EQ(Edges(), 1u);
  Write(kFcr, kFcrEnable | kFcrClearReceive);
  EXPECT_EQ(Id(), kIirNone);
  Receive("b");
  EXPECT_EQ(Edges(), 1u);
}

// Drivers start to send by enabling it, and Linux takes the chip for broken if nothing comes.
TEST_F(SerialInterrupt, EnablingTheTransmitterInterruptWhileItIsEmptyRaisesTheLine) {
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Edges(), 1u);
  EXPECT_EQ(Id(), kIirTransmit);
  Write(kIer, 0);
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Edges(), 1u);
  EXPECT_EQ(Id(), kIirTransmit);
}

TEST_F(SerialInterrupt, EnablingAnotherCauseIsNoNewTransmitterInterrupt) {
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Id(), kIirTransmit);
  Edges();
  Write(kIer, kIerTransmit | kIerReceive);
  EXPECT_EQ(Edges(), 0u);
  EXPECT_EQ(Id(), kIirNone);
}

TEST_F(SerialInterrupt, ReadingTheIdentificationAcknowledgesTransmitterEmpty) {
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Id(), kIirTransmit);
  EXPECT_EQ(Id(), kIirNone);
}

TEST_F(SerialInterrupt, EachByteSentLeadsToAnotherTransmitterInterrupt) {
  Write(kIer, kIerTransmit);
  Edges();
  for (const char c : {'a', 'b', 'c'}) {
    EXPECT_EQ(Id(), kIirTransmit);
    Write(kThr, static_cast<uint8_t>(c));
    EXPECT_EQ(Edges(), 1u);
  }
}

// Table III: it is reset by reading the identification or by writing a byte. A handler that only
// writes has to get its next edge.
TEST_F(SerialInterrupt, SendingAcknowledgesTransmitterEmptyToo) {
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Edges(), 1u);
  Write(kThr, 'a');
  EXPECT_EQ(Edges(), 1u);
  Write(kThr, 'b');
  EXPECT_EQ(Edges(), 1u);
}

TEST_F(SerialInterrupt, OtherCausesComeBeforeTransmitterEmptyAndDoNotLoseIt) {
  Write(kIer, kIerTransmit | kIerReceive);
  Receive("a");
  EXPECT_EQ(Id(), kIirReceive);
  EXPECT_EQ(Id(), kIirReceive);  // so the transmitter's was not acknowledged
  Read(kRbr);
  EXPECT_EQ(Id(), kIirTransmit);
  EXPECT_EQ(Id(), kIirNone);
}

TEST_F(SerialInterrupt, LineStatusComesFirstAndIsAcknowledgedByReadingIt) {
  Write(kIer, kIerLineStatus | kIerReceive | kIerTransmit);
  Write(kMcr, kMcrLoop);
  for (int i = 0; i < 17; ++i) Write(kThr, 'x');
  EXPECT_EQ(Id(), kIirLineStatus);
  EXPECT_EQ(Id(), kIirLineStatus);
  EXPECT_NE(Read(kLsr) & kLsrOverrun, 0);
  EXPECT_EQ(Id(), kIirReceive);
  EXPECT_EQ(ReadAll().size(), 16u);
  EXPECT_EQ(Id(), kIirTransmit);
  EXPECT_EQ(Id(), kIirNone);
}

TEST_F(SerialInterrupt, AnOverrunRaisesTheLineByItself) {
  Write(kMcr, kMcrLoop);
  for (int i = 0; i < 16; ++i) Write(kThr, 'x');
  Write(kIer, kIerLineStatus);
  EXPECT_EQ(Edges(), 0u);
  Write(kThr, 'x');
  EXPECT_EQ(Edges(), 1u);
  Read(kLsr);
  EXPECT_EQ(Id(), kIirNone);
}

TEST_F(SerialInterrupt, LoopbackInterruptsLikeTheLine) {
  Write(kMcr, kMcrLoop);
  Write(kIer, kIerReceive);
  Write(kThr, 'x');
  EXPECT_EQ(Edges(), 1u);
  EXPECT_EQ(Id(), kIirReceive);
}

class SerialBusyTransmitter : public SerialInterrupt {
 protected:
  void SetUp() override {
    SerialInterrupt::SetUp();
    Write(kIer, kIerTransmit);
    Read(kIir);
    peer.room = false;
    Write(kThr, 'x');
    Edges();
  }
  void Drain() {
    peer.room = true;
    serial.OutputDrained();
  }
};

TEST_F(SerialBusyTransmitter, ShowsInTheLineStatusUntilThePeerHasDrained) {
  EXPECT_EQ(Read(kLsr) & (kLsrThre | kLsrTemt), 0);
  Drain();
  EXPECT_EQ(Read(kLsr) & (kLsrThre | kLsrTemt), kLsrThre | kLsrTemt);
}

TEST_F(SerialBusyTransmitter, InterruptsNotBeforeThePeerHasDrainedAndThenOnce) {
  EXPECT_EQ(Id(), kIirNone);
  Drain();
  EXPECT_EQ(Edges(), 1u);
  EXPECT_EQ(Id(), kIirTransmit);
  EXPECT_EQ(Id(), kIirNone);
  EXPECT_EQ(Edges(), 0u);
}

TEST_F(SerialBusyTransmitter, EnablingTheInterruptMeanwhileRaisesNothing) {
  Write(kIer, 0);
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Edges(), 0u);
  EXPECT_EQ(Id(), kIirNone);
  Drain();
  EXPECT_EQ(Edges(), 1u);
}

TEST_F(SerialBusyTransmitter, DrainedWhileDisabledItInterruptsOnceEnabled) {
  Write(kIer, 0);
  Drain();
  EXPECT_EQ(Edges(), 0u);
  Write(kIer, kIerTransmit);
  EXPECT_EQ(Edges(), 1u);
  EXPECT_EQ(Id(), kIirTransmit);
}

// The peer found room, but before its call came the guest had sent the rest of its burst.
TEST_F(SerialBusyTransmitter, ACallThatComesTooLateFreesNothing) {
  serial.OutputDrained();
  EXPECT_EQ(Read(kLsr) & kLsrThre, 0);
  EXPECT_EQ(Edges(), 0u);
  Drain();
  EXPECT_EQ(Edges(), 1u);
  EXPECT_EQ(Id(), kIirTransmit);
  serial.OutputDrained();  // twice is no second interrupt
  EXPECT_EQ(Edges(), 0u);
  EXPECT_EQ(Id(), kIirNone);
}

// A driver fills the whole FIFO on one sight of an empty transmitter: the rest of its burst
// arrives.
TEST_F(SerialBusyTransmitter, PassesOnTheRestOfABurst) {
  Write(kThr, 'y');
  Write(kThr, 'z');
  EXPECT_EQ(peer.sent, "xyz");
  EXPECT_EQ(Read(kLsr) & kLsrThre, 0);
}

}  // namespace
}  // namespace ringside
