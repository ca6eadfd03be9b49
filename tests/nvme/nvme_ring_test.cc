#include "nvme/nvme_ring.h"

#include <gmock/gmock.h>
#include <vector>

namespace ringside {
namespace {

constexpr uint16_t kEntries = 4;

// The memory of a ring, and the controller's side of it.
class NvmeRingTest : public ::testing::Test {
 protected:
  NvmeRing Ring(bool shadows = false) {
    NvmeRing ring({.submissions = submissions_,
                   .completions = completions_,
                   .entries = kEntries,
                   .submission_doorbell = {&registers_[0], shadows ? &shadows_[0] : nullptr,
                                           shadows ? &events_[0] : nullptr},
                   .completion_doorbell = {&registers_[1], shadows ? &shadows_[1] : nullptr,
                                           shadows ? &events_[1] : nullptr}});
    ring.Restart();
    return ring;
  }

  void Answer(uint16_t index, bool phase) {
    completions_[index].id = static_cast<uint16_t>(100 + index);
    completions_[index].status = phase ? 1 : 0;
  }

  nvme::Command submissions_[kEntries] = {};
  nvme::Completion completions_[kEntries] = {};
  uint32_t registers_[2] = {};
  uint32_t shadows_[2] = {};
  uint32_t events_[2] = {};
};

TEST_F(NvmeRingTest, ABatchWritesTheDoorbellOnce) {
  NvmeRing ring = Ring();
  ring.Push({.id = 1});
  ring.Push({.id = 2});
  EXPECT_EQ(registers_[0], 0);
  EXPECT_TRUE(ring.RingDoorbell());
  EXPECT_EQ(registers_[0], 2);
  EXPECT_EQ(submissions_[1].id, 2);
}

// What QEMU's b002acacc1 mends: real controllers take the same value again for an error and stop.
TEST_F(NvmeRingTest, ADoorbellIsNeverWrittenTheSameValueAgain) {
  NvmeRing ring = Ring();
  EXPECT_FALSE(ring.RingDoorbell());
  EXPECT_FALSE(ring.Acknowledge());
  ring.Push({});
  EXPECT_TRUE(ring.RingDoorbell());
  registers_[0] = 0xffff;
  EXPECT_FALSE(ring.RingDoorbell());
  EXPECT_EQ(registers_[0], 0xffff);
  Answer(0, true);
  nvme::CompletionEnd end;
  EXPECT_TRUE(ring.Pop(end));
  EXPECT_TRUE(ring.Acknowledge());
  registers_[1] = 0xffff;
  EXPECT_FALSE(ring.Acknowledge());
  EXPECT_EQ(registers_[1], 0xffff);
}

TEST_F(NvmeRingTest, ThePhaseTurnsWithEachRound) {
  NvmeRing ring = Ring();
  bool phase = true;
  for (int round = 0; round < 3; ++round, phase = !phase) {
    for (uint16_t i = 0; i < kEntries; ++i) {
      nvme::CompletionEnd end;
      EXPECT_FALSE(ring.Pop(end));
      ASSERT_FALSE(ring.HasCompletion()) << "round " << round << ", entry " << i;
      Answer(i, phase);
      ASSERT_TRUE(ring.HasCompletion());
      ASSERT_TRUE(ring.Pop(end));
      EXPECT_EQ(end.id, 100 + i);
    }
  }
}

TEST_F(NvmeRingTest, TheTailWraps) {
  NvmeRing ring = Ring();
  for (uint16_t i = 0; i < 3 * kEntries; ++i) {
    ring.Push({.id = i});
    ring.RingDoorbell();
    EXPECT_EQ(registers_[0], (i + 1) % kEntries);
    EXPECT_EQ(submissions_[i % kEntries].id, i);
  }
}

TEST_F(NvmeRingTest, ARestartForgetsWhatWasThere) {
  NvmeRing ring = Ring();
  ring.Push({});
  ring.RingDoorbell();
  Answer(0, true);
  nvme::CompletionEnd end;
  EXPECT_TRUE(ring.Pop(end));
  Answer(1, true);
  ring.Acknowledge();
  ring.Restart();
  EXPECT_FALSE(ring.HasCompletion());
  EXPECT_FALSE(ring.RingDoorbell());
  ring.Push({});
  EXPECT_TRUE(ring.RingDoorbell());
  EXPECT_EQ(registers_[0], 1);
}

TEST_F(NvmeRingTest, AShadowStandsInForTheRegister) {
  NvmeRing ring = Ring(true);
  ring.Push({});
  EXPECT_TRUE(ring.RingDoorbell());  // the controller asks for it at 0
  ring.Push({});
  EXPECT_FALSE(ring.RingDoorbell());
  EXPECT_EQ(shadows_[0], 2);
  EXPECT_EQ(registers_[0], 1);
  // It has taken both and goes to rest.
  events_[0] = 2;
  ring.Push({});
  EXPECT_TRUE(ring.RingDoorbell());
  EXPECT_EQ(registers_[0], 3);
}

TEST_F(NvmeRingTest, AShadowsEventIsPassedAcrossTheEndOfTheRing) {
  NvmeRing ring = Ring(true);
  for (int i = 0; i < 3; ++i) ring.Push({});
  ring.RingDoorbell();
  events_[0] = 3;
  ring.Push({});
  ring.Push({});
  EXPECT_TRUE(ring.RingDoorbell());
  EXPECT_EQ(registers_[0], 1);
}

}  // namespace
}  // namespace ringside
