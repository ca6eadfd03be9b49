// A vsock connection without sockets and queues: credit to the byte in both directions, what is
// said when, and how it ends.
#include "devices/vsock_connection.h"

#include <gtest/gtest.h>
#include <vector>

namespace ringside {
namespace {

using Outcome = VsockConnection::Outcome;
constexpr uint32_t kRoom = VsockConnection::kRoom;

VsockHeader FromGuest(VsockOp op, uint32_t length = 0, uint32_t flags = 0) {
  return {.length = length, .op = op, .flags = flags, .buf_alloc = 256 << 10};
}

// One that both sides have agreed to, with nothing to say.
VsockConnection Open() {
  VsockConnection connection = VsockConnection::AskedByGuest(FromGuest(VsockOp::kRequest));
  EXPECT_EQ(connection.TakeControl().op, VsockOp::kResponse);
  return connection;
}

TEST(VsockCreditTest, TheGuestHasWhatIsFreeToTheByte) {
  VsockReceiveCredit credit(100);
  EXPECT_FALSE(credit.Receive(101));
  EXPECT_TRUE(credit.Receive(100));
  EXPECT_FALSE(credit.Receive(1));
  credit.Forward(10);
  EXPECT_FALSE(credit.Receive(11));
  EXPECT_TRUE(credit.Receive(10));
}

TEST(VsockCreditTest, CountersWrap) {
  VsockReceiveCredit receive(1U << 30);
  VsockSendCredit send;
  uint32_t forwarded = 0;
  send.Heard(1U << 30, 0);
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(receive.Receive(1U << 30));
    ASSERT_FALSE(receive.Receive(1));
    receive.Forward(1U << 30);
    ASSERT_EQ(receive.Tell(), static_cast<uint32_t>((i + 1) * (uint64_t{1} << 30)));
    ASSERT_EQ(send.available(), 1U << 30);
    send.Sent(1U << 30);
    ASSERT_EQ(send.available(), 0U);
    send.Heard(1U << 30, forwarded += 1U << 30);
  }
}

TEST(VsockCreditTest, AnUpdateIsDueAtHalfTheRoom) {
  VsockReceiveCredit credit(800);
  ASSERT_TRUE(credit.Receive(400));
  credit.Forward(400);
  EXPECT_FALSE(credit.IsUpdateDue());  // the guest sees half
  ASSERT_TRUE(credit.Receive(1));
  EXPECT_TRUE(credit.IsUpdateDue());
  EXPECT_EQ(credit.Tell(), 400U);
  EXPECT_FALSE(credit.IsUpdateDue());
  ASSERT_TRUE(credit.Receive(799));
  credit.Forward(99);
  EXPECT_FALSE(credit.IsUpdateDue());  // a small piece
  credit.Forward(1);
  EXPECT_TRUE(credit.IsUpdateDue());
}

TEST(VsockCreditTest, PacketsUnderWayAreLimited) {
  VsockSendCredit credit;
  credit.Heard(4 * VsockSendCredit::kLeastShare, 0);
  for (int i = 0; i < 4; ++i) {
    ASSERT_GT(credit.available(), 0U);
    EXPECT_EQ(credit.IsHalfWay(), i == 2);
    credit.Sent(1);
  }
  EXPECT_EQ(credit.available(), 0U);
  credit.Heard(4 * VsockSendCredit::kLeastShare, 1);
  EXPECT_EQ(credit.available(), 4 * VsockSendCredit::kLeastShare - 3);
  credit.Sent(1);
  EXPECT_EQ(credit.available(), 0U);
  credit.Heard(4 * VsockSendCredit::kLeastShare, 5);
  EXPECT_EQ(credit.available(), 4 * VsockSendCredit::kLeastShare);
}

TEST(VsockCreditTest, AGuestThatLiesStopsItself) {
  VsockSendCredit credit;
  credit.Heard(10000, 0);
  credit.Sent(6000);
  EXPECT_EQ(credit.available(), 4000U);
  credit.Heard(6000, 0);  // shrinks to what is under way, and below
  EXPECT_EQ(credit.available(), 0U);
  credit.Heard(10, 0);
  EXPECT_EQ(credit.available(), 0U);
  credit.Heard(10000, 6001);  // has taken more than it was sent
  EXPECT_EQ(credit.available(), 0U);
  credit.Heard(10000, 6000);
  EXPECT_EQ(credit.available(), 10000U);
}

TEST(VsockConnectionTest, TheHostAsks) {
  VsockConnection connection = VsockConnection::AskedByHost({.host = 7, .guest = 9});
  EXPECT_FALSE(connection.is_known());
  EXPECT_EQ(connection.MaySend(), 0U);
  const VsockHeader request = connection.TakeControl();
  EXPECT_EQ(request.op, VsockOp::kRequest);
  EXPECT_EQ(request.src_cid, kVsockHostCid);
  EXPECT_EQ(request.src_port, 7U);
  EXPECT_EQ(request.dst_port, 9U);
  EXPECT_EQ(request.buf_alloc, kRoom);
  EXPECT_FALSE(connection.HasControl());
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kResponse)), Outcome::kOpened);
  EXPECT_EQ(connection.MaySend(), 256U << 10);
}

TEST(VsockConnectionTest, NothingElseComesBeforeTheAnswer) {
  for (const VsockOp op : {VsockOp::kData, VsockOp::kShutdown, VsockOp::kCreditRequest,
                           VsockOp::kCreditUpdate, VsockOp::kRequest, VsockOp{0}, VsockOp{99}}) {
    VsockConnection connection = VsockConnection::AskedByHost({});
    EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kResponse)),
              Outcome::kBroken);  // not asked yet
    (void)connection.TakeControl();
    EXPECT_EQ(connection.Receive(FromGuest(op)), Outcome::kBroken) << static_cast<int>(op);
  }
}

TEST(VsockConnectionTest, AnOpenOneIsNotOpenedAgain) {
  VsockConnection connection = Open();
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kRequest)), Outcome::kBroken);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kResponse)), Outcome::kBroken);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp{8})), Outcome::kBroken);
}

TEST(VsockConnectionTest, DataBeyondTheCreditBreaksIt) {
  VsockConnection connection = Open();
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kData, kRoom)), Outcome::kData);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kData, 0)), Outcome::kData);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kData, 1)), Outcome::kBroken);
}

TEST(VsockConnectionTest, TellsOfCreditAtHalfAndWhenAsked) {
  VsockConnection connection = Open();
  (void)connection.Receive(FromGuest(VsockOp::kData, kRoom / 2));
  connection.Forward(kRoom / 2);
  EXPECT_FALSE(connection.HasControl());
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kCreditRequest)), Outcome::kNothing);
  const VsockHeader answer = connection.TakeControl();
  EXPECT_EQ(answer.op, VsockOp::kCreditUpdate);
  EXPECT_EQ(answer.fwd_cnt, kRoom / 2);
  (void)connection.Receive(FromGuest(VsockOp::kData, kRoom / 2 + 1));
  connection.Forward(kRoom / 2 + 1);
  EXPECT_EQ(connection.TakeControl().fwd_cnt, kRoom + 1);
  // Data on its way to the guest tells, too.
  (void)connection.Receive(FromGuest(VsockOp::kData, kRoom / 2 + 1));
  connection.Forward(kRoom / 2 + 1);
  EXPECT_TRUE(connection.HasControl());
  EXPECT_EQ(connection.Send(1).fwd_cnt, kRoom + kRoom / 2 + 2);
  EXPECT_FALSE(connection.HasControl());
}

TEST(VsockConnectionTest, AsksForCreditOnce) {
  VsockConnection connection = Open();
  (void)connection.Send(256 << 10);
  EXPECT_EQ(connection.MaySend(), 0U);
  EXPECT_TRUE(connection.WaitsForCredit());
  EXPECT_EQ(connection.TakeControl().op, VsockOp::kCreditRequest);
  EXPECT_FALSE(connection.WaitsForCredit());
  (void)connection.Receive(FromGuest(VsockOp::kCreditUpdate));  // it has read nothing
  EXPECT_FALSE(connection.WaitsForCredit());
  connection.AskAgain();
  EXPECT_TRUE(connection.WaitsForCredit());
}

TEST(VsockConnectionTest, HalvesEnd) {
  VsockConnection connection = Open();
  connection.HostSendsNoMore();
  VsockHeader header = connection.TakeControl();
  EXPECT_EQ(header.op, VsockOp::kShutdown);
  EXPECT_EQ(header.flags, kVsockNoSend);
  EXPECT_EQ(connection.MaySend(), 0U);
  EXPECT_FALSE(connection.is_ending());
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kData, 5)), Outcome::kData);
  connection.HostReceivesNoMore();
  EXPECT_EQ(connection.TakeControl().flags, kVsockNeither);
  EXPECT_TRUE(connection.is_ending());
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kReset)), Outcome::kReset);
}

TEST(VsockConnectionTest, TheGuestsHalvesEnd) {
  VsockConnection connection = Open();
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kShutdown, 0, kVsockNoSend)), Outcome::kEnded);
  EXPECT_FALSE(connection.HasControl());
  EXPECT_GT(connection.MaySend(), 0U);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kData, 1)), Outcome::kBroken);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kShutdown, 0, 0)), Outcome::kEnded);
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kShutdown, 0, kVsockNoReceive)),
            Outcome::kFinished);
}

TEST(VsockConnectionTest, WhereNobodySendsItEnds) {
  VsockConnection connection = Open();
  (void)connection.Receive(FromGuest(VsockOp::kShutdown, 0, kVsockNoSend));
  connection.HostSendsNoMore();
  EXPECT_EQ(connection.TakeControl().flags, kVsockNeither);
  EXPECT_TRUE(connection.is_ending());

  connection = Open();
  connection.HostSendsNoMore();
  (void)connection.TakeControl();
  (void)connection.Receive(FromGuest(VsockOp::kShutdown, 0, kVsockNoSend));
  EXPECT_EQ(connection.TakeControl().flags, kVsockNeither);
}

TEST(VsockConnectionTest, AGuestThatReceivesNothingIsSentNothing) {
  VsockConnection connection = Open();
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kShutdown, 0, kVsockNoReceive)), Outcome::kEnded);
  EXPECT_EQ(connection.MaySend(), 0U);
  EXPECT_FALSE(connection.guest_receives());
  EXPECT_EQ(connection.Receive(FromGuest(VsockOp::kData, 1)), Outcome::kData);
}

}  // namespace
}  // namespace ringside
