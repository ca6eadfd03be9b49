// vhost-net and the queues that it serves, with a kernel of the test's own (fake_vhost.h): who
// hears that a ring is broken, and where rings begin and end. What only a real one can show is in
// the lab (lab_net).
#include "net/vhost_net.h"

#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <thread>

#include "tests/support/devices/virtio_net_fixture.h"
#include "tests/support/forbid.h"
#include "tests/support/net/fake_vhost.h"

namespace ringside {
namespace {

using testing::FakeVhost;
using ::testing::HasSubstr;
using testing::LetTurn;
using testing::SpinUntil;

constexpr int kTap = 1000;  // nobody looks at it

class VhostNetTest : public ::testing::Test {
 protected:
  absl::Status Start(uint16_t next = 0) {
    return vhost_->Start(VhostNet::kReceive, {.size = 64, .next = next, .kick = &kick_}, {});
  }

  const EventFd kick_ = *EventFd::Create();
  const std::unique_ptr<VhostNet> vhost_ = *VhostNet::Open(kTap);
};

TEST_F(VhostNetTest, ABrokenRingIsToldOnceAndNotToTheNextDriver) {
  ASSERT_TRUE(Start().ok());
  EXPECT_FALSE(vhost_->TakeBroken(VhostNet::kReceive));
  FakeVhost::Get().Break(VhostNet::kReceive);
  EXPECT_TRUE(vhost_->TakeBroken(VhostNet::kReceive));
  EXPECT_FALSE(vhost_->TakeBroken(VhostNet::kReceive));
  FakeVhost::Get().Break(VhostNet::kReceive);
  vhost_->Stop(VhostNet::kReceive);
  ASSERT_TRUE(Start().ok());
  EXPECT_FALSE(vhost_->TakeBroken(VhostNet::kReceive));
}

TEST_F(VhostNetTest, ARingGoesOnWhereItWasAndIsLetGoOf) {
  ASSERT_TRUE(Start(17).ok());
  EXPECT_EQ(FakeVhost::Get().ring(0).backend, kTap);
  EXPECT_EQ(kick_.Clear(), 1u) << "for what is there already";
  EXPECT_EQ(vhost_->Stop(VhostNet::kReceive), 17);
  EXPECT_EQ(FakeVhost::Get().ring(0).backend, -1);
  EXPECT_EQ(FakeVhost::Get().ring(0).kick, -1);
  EXPECT_FALSE(vhost_->started(VhostNet::kReceive));
}

TEST_F(VhostNetTest, APulledCableTakesTheTapFromTheRings) {
  vhost_->SetCarrier(false);
  ASSERT_TRUE(Start().ok());
  EXPECT_EQ(FakeVhost::Get().ring(0).backend, -1);
  vhost_->SetCarrier(true);
  EXPECT_EQ(FakeVhost::Get().ring(0).backend, kTap);
  vhost_->SetCarrier(false);
  EXPECT_EQ(FakeVhost::Get().ring(0).backend, -1);
  vhost_->Stop(VhostNet::kReceive);
}

TEST_F(VhostNetTest, WorksWhereNetlinkIsForbidden) {
  EXPECT_GE(vhost_->changes_fd(), 0);
  std::thread([] {
    testing::Forbid(SYS_socket, EAFNOSUPPORT);
    const auto vhost = VhostNet::Open(kTap);
    ASSERT_TRUE(vhost.ok()) << vhost.status();
    EXPECT_EQ((*vhost)->changes_fd(), -1);
  }).join();
}

class VhostQueueTest : public testing::VirtioNetTest {
 protected:
  void MakeWithVhost() {
    Make();
    network_->vhost_ = *VhostNet::Open(network_->channel(0).receive_fd());
  }
};

TEST_P(VhostQueueTest, ABrokenRingStaysSoUntilTheNextDriver) {
  MakeWithVhost();
  Start();
  ASSERT_TRUE(SpinUntil([] { return FakeVhost::Get().ring(1).backend >= 0; }));
  FakeVhost::Get().Break(VhostNet::kTransmit);
  ASSERT_TRUE(SpinUntil([&] { return !events_.reasons().empty(); }));
  EXPECT_THAT(events_.reasons().front(), HasSubstr("vhost-net"));
  EXPECT_EQ(FakeVhost::Get().ring(1).backend, -1);
  // Neither a rest nor a move begins it anew.
  Pause();
  device_->Resume();
  Move(1, 1);
  LetTurn(*threads_[1]);
  EXPECT_EQ(FakeVhost::Get().ring(1).backend, -1);
  EXPECT_EQ(events_.reasons().size(), 1u);
  Reset();
  Start();
  ASSERT_TRUE(SpinUntil([] { return FakeVhost::Get().ring(1).backend >= 0; }));
  EXPECT_EQ(events_.reasons().size(), 1u);
}

TEST_P(VhostQueueTest, ARingThatBreaksWithItsTapTakesTheLinkDown) {
  MakeWithVhost();
  Start();
  ASSERT_TRUE(SpinUntil([] { return FakeVhost::Get().ring(1).backend >= 0; }));
  network_->Close();
  FakeVhost::Get().Break(VhostNet::kTransmit);
  ASSERT_TRUE(SpinUntil([&] { return link_.lost(); }));
  EXPECT_TRUE(events_.reasons().empty());
}

RINGSIDE_WITH_BOTH_WAITERS(VhostQueueTest);

}  // namespace
}  // namespace ringside
