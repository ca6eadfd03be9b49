// Flow control of the serial port's receiver: what was typed too early waits outside, and the peer
// is called exactly when it can go on.
#include <gtest/gtest.h>

#include "tests/support/devices/serial_port.h"

namespace ringside {
namespace {

using namespace testing;

class SerialFlow : public ::testing::Test, public SerialPort {};

TEST_F(SerialFlow, NothingIsTakenBeforeTheGuestListens) {
  EXPECT_EQ(Receive("abc"), 0u);
  EXPECT_EQ(Read(kLsr) & kLsrData, 0);
  Write(kMcr, kMcrDtr | kMcrOut1 | kMcrOut2);
  Write(kIer, kIerTransmit | kIerLineStatus | kIerModem);
  EXPECT_EQ(Receive("abc"), 0u);
  EXPECT_EQ(peer.drained, 0);
}

TEST_F(SerialFlow, RequestToSendOpensTheLine) {
  EXPECT_EQ(Receive("abc"), 0u);
  Write(kMcr, kMcrRts);
  EXPECT_EQ(peer.drained, 1);
  EXPECT_EQ(Receive("abc"), 1u);
  EXPECT_EQ(Read(kRbr), 'a');
}

TEST_F(SerialFlow, TheReceiveInterruptOpensTheLine) {
  EXPECT_EQ(Receive("abc"), 0u);
  Write(kIer, kIerReceive);
  EXPECT_EQ(peer.drained, 1);
  EXPECT_EQ(Receive("abc"), 1u);
  EXPECT_EQ(Read(kRbr), 'a');
}

TEST_F(SerialFlow, OpeningItInBothWaysCallsOnce) {
  Receive("abc");
  Write(kMcr, kMcrRts);
  Write(kIer, kIerReceive);
  EXPECT_EQ(peer.drained, 1);
}

TEST_F(SerialFlow, LoopbackClosesTheLine) {
  Listen();
  Write(kMcr, kMcrRts | kMcrLoop);
  EXPECT_EQ(Receive("abc"), 0u);
  Write(kIer, kIerReceive);
  EXPECT_EQ(peer.drained, 0);
  Write(kMcr, kMcrRts);
  EXPECT_EQ(peer.drained, 1);
}

TEST_F(SerialFlow, DroppingRequestToSendClosesTheLineAgain) {
  Write(kFcr, kFcrEnable);
  Listen();
  EXPECT_EQ(Receive("a"), 1u);
  Write(kMcr, 0);
  EXPECT_EQ(Receive("b"), 0u);
  EXPECT_EQ(ReadAll(), "a");  // what had arrived stays
  EXPECT_EQ(peer.drained, 0);
  Listen();
  EXPECT_EQ(peer.drained, 1);
}

TEST_F(SerialFlow, WhoeverWasNotRefusedIsNotCalled) {
  Listen();
  EXPECT_EQ(Receive("a"), 1u);
  Read(kRbr);
  EXPECT_EQ(Receive(""), 0u);
  Write(kIer, kIerReceive);
  Write(kFcr, kFcrEnable | kFcrClearReceive);
  EXPECT_EQ(peer.drained, 0);
}

TEST_F(SerialFlow, ThePeerIsCalledWhenTheFifoHasBecomeEmpty) {
  Write(kFcr, kFcrEnable);
  Listen();
  EXPECT_EQ(Receive("0123456789abcdef+"), 16u);
  for (int i = 0; i < 15; ++i) {
    Read(kRbr);
    ASSERT_EQ(peer.drained, 0) << "a call a byte";
  }
  Read(kRbr);
  EXPECT_EQ(peer.drained, 1);
  Read(kRbr);
  EXPECT_EQ(peer.drained, 1);  // once a refusal
}

TEST_F(SerialFlow, ThePeerIsCalledWhenTheFifoIsCleared) {
  Write(kFcr, kFcrEnable);
  Listen();
  Receive("0123456789abcdef+");
  Write(kFcr, kFcrEnable | kFcrClearReceive);
  EXPECT_EQ(peer.drained, 1);
  Receive("0123456789abcdef+");
  Write(kFcr, 0);
  EXPECT_EQ(peer.drained, 2);
}

TEST_F(SerialFlow, ClearingTheFifoWhileTheLineIsClosedCallsNobody) {
  Receive("abc");
  Write(kFcr, kFcrEnable | kFcrClearReceive);
  EXPECT_EQ(peer.drained, 0);
  Listen();
  EXPECT_EQ(peer.drained, 1);
}

TEST_F(SerialFlow, ReadingTheDivisorOrAnEmptyReceiverCallsNobody) {
  Receive("abc");
  Read(kRbr);
  EXPECT_EQ(peer.drained, 0);
  Listen();
  Receive("abc");
  EXPECT_EQ(peer.drained, 1);
  Write(kLcr, kLcrDlab);
  Read(kDll);
  EXPECT_EQ(peer.drained, 1);
}

// A peer that follows the rules loses nothing, whatever the pace of the guest.
TEST_F(SerialFlow, AllInputArrivesInOrder) {
  Write(kFcr, kFcrEnable);
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>('a' + i % 26);
  std::string_view rest = text;
  rest.remove_prefix(Receive(rest));
  Listen();
  std::string got;
  for (int calls = 0; got.size() < text.size() && calls < 1000; ++calls) {
    if (peer.drained > 0) {
      peer.drained = 0;
      rest.remove_prefix(Receive(rest));
    }
    for (int i = 0; i < 5 && (Read(kLsr) & kLsrData) != 0; ++i) {
      got += static_cast<char>(Read(kRbr));
    }
  }
  EXPECT_EQ(got, text);
}

}  // namespace
}  // namespace ringside
