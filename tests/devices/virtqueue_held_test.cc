// A driver's wish for an interrupt that is not raised at once (VIRTIO 1.2, section 2.7.7.2).
#include <gtest/gtest.h>

#include "tests/support/devices/fake_driver.h"
#include "tests/support/devices/guest_memory.h"

namespace ringside::testing {
namespace {

class VirtqueueHeldWish {
 public:
  // `index`: where both rings are.
  explicit VirtqueueHeldWish(uint16_t index, bool event_idx = true)
      : start_(index), driver_(*memory_, {.size = 8, .event_idx = event_idx}) {
    while (driver_.used_index() != index) Publish(1);
    queue_.Signalled();
    SetEvent(0);
  }

  bool Publish(uint16_t count) {
    for (uint16_t i = 0; i < count; ++i) driver_.NewChain().AppendReadable(0x80000, 1).Add();
    driver_.Publish();
    for (DescriptorChain chain; queue_.Take({&chain, 1}) > 0;) queue_.Return(std::move(chain), 0);
    const bool wanted = queue_.Publish();
    while (driver_.TakeUsed()) {
    }
    return wanted;
  }
  // As seen from where the index was at the beginning.
  void SetEvent(int distance) {
    driver_.ring().SetUsedEvent(static_cast<uint16_t>(start_ + distance));
  }
  bool IsWanted() const { return queue_.WantsInterrupt(); }
  void Tell() { queue_.Signalled(); }
  RawRing& ring() { return driver_.ring(); }

 private:
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(kMiB);
  const uint16_t start_;
  FakeDriver driver_;
  Virtqueue queue_{*memory_, driver_.layout()};
};

class VirtqueueHeldWishTest : public ::testing::TestWithParam<uint16_t> {
 protected:
  VirtqueueHeldWish wish_{GetParam()};
};

TEST_P(VirtqueueHeldWishTest, StaysOverLaterPublications) {
  EXPECT_TRUE(wish_.Publish(1));
  EXPECT_TRUE(wish_.IsWanted());
  EXPECT_TRUE(wish_.Publish(2)) << "nobody was told of what passed the event";
  EXPECT_TRUE(wish_.IsWanted());
}

TEST_P(VirtqueueHeldWishTest, IsDecidedAnewAgainstTheIndexAtTheLastSignal) {
  wish_.Publish(1);
  wish_.Publish(2);
  for (const int distance : {0, 1, 2}) {
    wish_.SetEvent(distance);
    EXPECT_TRUE(wish_.IsWanted()) << distance;
  }
  for (const int distance : {-1, 3, 4, 0x7fff, 0x8000, -0x7fff}) {
    wish_.SetEvent(distance);
    EXPECT_FALSE(wish_.IsWanted()) << distance;
  }
}

TEST_P(VirtqueueHeldWishTest, EndsWhenTheDriverIsTold) {
  wish_.Publish(1);
  wish_.Tell();
  EXPECT_FALSE(wish_.IsWanted());
  EXPECT_FALSE(wish_.Publish(2)) << "it was told of what passed the event";
  wish_.SetEvent(3);
  EXPECT_TRUE(wish_.Publish(1));
  EXPECT_TRUE(wish_.IsWanted());
}

TEST_P(VirtqueueHeldWishTest, EndsWithAPublicationThatIsNotWanted) {
  wish_.Publish(1);
  wish_.SetEvent(0x100);
  EXPECT_FALSE(wish_.Publish(2));
  wish_.SetEvent(0);
  EXPECT_FALSE(wish_.IsWanted()) << "that was decided";
}

// In some of them the index wraps within the wish.
INSTANTIATE_TEST_SUITE_P(, VirtqueueHeldWishTest,
                         ::testing::Values(0, 0x7ffe, 0xfffd, 0xfffe, 0xffff));

TEST(VirtqueueHeldWishFlagTest, FollowsTheFlagWithoutEventIdx) {
  VirtqueueHeldWish wish(0, /*event_idx=*/false);
  EXPECT_TRUE(wish.Publish(1));
  EXPECT_TRUE(wish.IsWanted());
  wish.ring().SetAvailableFlags(1);
  EXPECT_FALSE(wish.IsWanted());
  wish.ring().SetAvailableFlags(0);
  EXPECT_TRUE(wish.IsWanted());
}

}  // namespace
}  // namespace ringside::testing
