// What a channel of an overlay does in one turn, of that of which there may be much, and what it
// keeps.
#include <array>
#include <cerrno>
#include <deque>
#include <gtest/gtest.h>
#include <string>

#include "tests/overlay/overlay_rig.h"
#include "tests/support/allocation_counter.h"

namespace ringside {
namespace {

using testing::Letters;
using testing::MemoryDisk;
using testing::OverlayRig;
using testing::RigHeader;
using testing::RigRequest;
using testing::RunOn;

constexpr uint64_t kStep = uint64_t{256} << 10;  // of zeroes

// As if it were a small one: no data is written here.
OverlayHeader LargeHeader(uint64_t size, uint64_t base_bytes) {
  const BaseIdentity base = {.kind = BaseKind::kRaw, .size = base_bytes};
  OverlayHeader header = *NewOverlayHeader(size, base, "", size);
  header.size = 512;
  return header;
}

// Of the map, by a read of so many steps of zeroes.
uint64_t LooksOfZeroes(uint64_t steps, uint64_t base_bytes, bool discards) {
  const uint64_t size = 2 * kBytesPerMapPage;
  OverlayRig rig(1, LargeHeader(size, base_bytes));
  rig.info().size = size;
  if (discards) {
    EXPECT_EQ(rig.Discard(0, size), 0);
  }
  const auto looks = [&] {
    uint64_t count = 0;
    RunOn(rig.thread(), [&] { count = BlockMap::LooksOfThisThread(); });
    return count;
  };
  const uint64_t before = looks();
  EXPECT_TRUE(rig.Read(kStep, steps * kStep) == Letters(steps * kStep, 0));
  return looks() - before;
}

// One has 64 blocks, and looks no further.
TEST(OverlayTurnsTest, OfManyZeroesAStepLooksAtItsOwn) {
  constexpr uint64_t kSteps = 255;
  constexpr uint64_t kMost = 2 * kSteps + 1;
  EXPECT_LE(LooksOfZeroes(kSteps, /*base_bytes=*/512, /*discards=*/false), kMost);
  EXPECT_LE(LooksOfZeroes(kSteps, 2 * kBytesPerMapPage, /*discards=*/true), kMost);
}

// Asked again in each turn, until another has ended.
struct Again : BlockRequest {
  static constexpr int kMostRounds = 1000;

  Again(OverlayRig& of, const RigRequest& other)
      : BlockRequest{.op = BlockOp::kRead, .offset = kStep}, rig(of), until(other) {
    segments = {&segment, 1};
    done = [](BlockRequest& request) {
      auto& self = static_cast<Again&>(request);
      if (self.until.has_ended() || ++self.rounds == kMostRounds) return self.over.Notify();
      self.rig.Begin(self);
    };
  }

  OverlayRig& rig;
  const RigRequest& until;
  std::string memory = Letters(kStep, '-');
  Segment segment = {.host = reinterpret_cast<std::byte*>(memory.data()),
                     .length = static_cast<uint32_t>(kStep),
                     .region = 0};
  int rounds = 0;
  testing::BoundedEvent over;
};

// A guest that asks in each turn for all that one makes does not keep it from another request.
TEST(OverlayTurnsTest, ZeroesAreNotOvertakenForEver) {
  OverlayRig rig(1, LargeHeader(kBytesPerMapPage, 512));
  rig.info().size = kBytesPerMapPage;
  RigRequest large(BlockOp::kRead, kStep, 16 * kStep, '-');
  Again small(rig, large);
  RunOn(rig.thread(), [&] {
    rig.channel().Submit(small);
    rig.channel().Submit(large);
  });
  small.over.WaitOrAbort();
  EXPECT_LT(small.rounds, Again::kMostRounds);
  EXPECT_EQ(large.Wait(), 0);
}

// Nor do reads that go on with zeroes in each turn, as what they have from below has come by then.
TEST(OverlayTurnsTest, ZeroesAreNotOvertakenByWhatGoesOn) {
  constexpr size_t kSmall = 100;  // far more than a fair share takes turns
  OverlayRig rig(1, RigHeader(512, 32 * kStep));
  EXPECT_EQ(rig.Write(kOverlayBlock, kOverlayBlock, 'h'), 0);
  rig.file().Hold(true);
  std::deque<RigRequest> small;
  for (size_t i = 0; i < kSmall; ++i) {
    small.emplace_back(BlockOp::kRead, kOverlayBlock, kOverlayBlock + kStep, '-');
  }
  RunOn(rig.thread(), [&] {  // in one turn, which has zeroes for one
    for (RigRequest& request : small) rig.channel().Submit(request);
  });
  ASSERT_TRUE(rig.file().WaitForHeld(kSmall));
  RigRequest large(BlockOp::kRead, 8 * kStep, 8 * kStep, '-');
  bool in_time = false;
  testing::BoundedEvent over;
  Task* next = nullptr;
  TaskOf each_turn([&] {
    if (rig.file().held() == 0) {
      in_time = large.has_ended();
      return over.Notify();
    }
    rig.file().ReleaseOnItsThread(0);
    rig.thread().Post(*next);
  });
  next = &each_turn;
  RunOn(rig.thread(), [&] {
    rig.channel().Submit(large);
    rig.thread().Post(each_turn);
  });
  over.WaitOrAbort();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(large.Wait(), 0);
  for (RigRequest& request : small) EXPECT_EQ(request.Wait(), 0);
}

// 256 MiB of them, and 16 MiB of each that finds nothing left of that.
TEST(OverlayTurnsTest, DiscardsShareWhatATurnDoes) {
  constexpr uint64_t kDiscards = 8;
  constexpr uint64_t kBytes = uint64_t{256} << 20;
  OverlayRig rig(1, LargeHeader(kDiscards * kBytes, 512));
  rig.info().size = kDiscards * kBytes;
  std::deque<RigRequest> discards;
  for (uint64_t i = 0; i < kDiscards; ++i) {
    discards.emplace_back(BlockOp::kDiscard, i * kBytes, kBytes);
  }
  uint64_t at_once = 0;
  RunOn(rig.thread(), [&] {
    for (RigRequest& discard : discards) rig.channel().Submit(discard);
    at_once = rig.state().map->zero_blocks();
  });
  EXPECT_EQ(at_once, (kBytes + (kDiscards - 1) * (uint64_t{16} << 20)) / kOverlayBlock);
  for (RigRequest& discard : discards) EXPECT_EQ(discard.Wait(), 0);
  EXPECT_EQ(rig.state().map->zero_blocks(), kDiscards * kBytes / kOverlayBlock);
}

// Each is compared with those that are under way, so that these are no more than 256. The order is
// kept, also of those that wait outside.
TEST(OverlayTurnsTest, OfManyChangesSomeWaitOutside) {
  constexpr uint64_t kMostInside = 256;
  constexpr uint64_t kCount = kMostInside + 50;
  const uint64_t size = kCount * kOverlayBlock;
  OverlayRig rig(1, RigHeader(size, size));
  rig.file().Hold(true);
  std::deque<RigRequest> writes;
  const auto write = [&](uint64_t block, char letter) {
    writes.emplace_back(BlockOp::kWrite, block * kOverlayBlock, kOverlayBlock, letter);
    rig.Submit(writes.back());
  };
  for (uint64_t i = 0; i < kCount; ++i) write(i, 'w');
  RequestOwner owner;
  RigRequest recalled(BlockOp::kWrite, 0, kOverlayBlock, 'r');
  recalled.owner = &owner;
  rig.Submit(recalled);
  for (const char letter : {'x', 'y'}) write(0, letter);
  EXPECT_EQ(rig.file().held(), kMostInside);
  owner.recalls = true;
  EXPECT_EQ(recalled.Wait(), -ECANCELED);
  EXPECT_EQ(rig.file().held(), kMostInside);
  rig.file().Release(3);  // one more is let in
  EXPECT_TRUE(rig.file().WaitForHeld(kMostInside));
  rig.file().Hold(false);
  rig.file().ReleaseAll();
  for (RigRequest& each : writes) EXPECT_EQ(each.Wait(), 0);
  EXPECT_EQ(rig.Read(0, size), Letters(kOverlayBlock, 'y') + Letters(size - kOverlayBlock, 'w'));
}

// As above, at the end of the machine.
TEST(OverlayTurnsTest, ThoseOutsideEndWithTheMachine) {
  constexpr uint64_t kCount = 300;
  const uint64_t size = kCount * kOverlayBlock;
  OverlayRig rig(1, RigHeader(size, size));
  rig.file().Hold(true);
  std::deque<RigRequest> writes;
  for (uint64_t i = 0; i < kCount; ++i) {
    writes.emplace_back(BlockOp::kWrite, i * kOverlayBlock, kOverlayBlock, 'w');
    rig.Submit(writes.back());
  }
  rig.Cancel();
  for (uint64_t i = 256; i < kCount; ++i) EXPECT_EQ(writes[i].Wait(), -ECANCELED);
  rig.file().Hold(false);
  rig.file().ReleaseAll();
  for (RigRequest& each : writes) each.Wait();
}

// Of a commit that many share, and of the next one.
TEST(OverlayTurnsTest, ThoseThatAreTakenBackLeaveTheOthersInPlace) {
  OverlayRig rig(2);
  rig.file().Hold(true);
  RequestOwner owner;
  std::deque<RigRequest> flushes;
  // The last of the one under way, not of the next one.
  const auto is_recalled = [](size_t i) { return i < 59 && i % 3 == 2; };
  const auto submit = [&](size_t end) {
    for (size_t i = flushes.size(); i < end; ++i) {
      flushes.emplace_back(BlockOp::kFlush, 0).owner = is_recalled(i) ? &owner : nullptr;
      rig.Submit(flushes.back(), i % 2);
    }
  };
  const auto end_commit = [&] {
    rig.file().Release(0);
    EXPECT_TRUE(rig.file().WaitForHeld(1));  // of the next one
  };
  submit(21);
  end_commit();  // the first flush's; those behind it share the next one, which the second leads
  submit(60);
  owner.recalls = true;
  for (size_t i = 0; i < 60; ++i) {
    if (!is_recalled(i)) continue;
    EXPECT_EQ(flushes[i].Wait(), -ECANCELED);
  }
  submit(64);
  end_commit();
  for (size_t i = 0; i < 21; ++i) EXPECT_EQ(flushes[i].Wait(), is_recalled(i) ? -ECANCELED : 0);
  testing::LetTurn(rig.thread(0));
  testing::LetTurn(rig.thread(1));
  for (size_t i = 21; i < 64; ++i) EXPECT_EQ(flushes[i].has_ended(), is_recalled(i));
  rig.file().Hold(false);
  rig.file().ReleaseAll();
  for (size_t i = 21; i < 64; ++i) EXPECT_EQ(flushes[i].Wait(), is_recalled(i) ? -ECANCELED : 0);
}

// Of many segments, which all are of the same memory.
struct LongRead : BlockRequest {
  static constexpr size_t kSegments = 1000;
  static constexpr uint32_t kEach = 64;  // bytes

  LongRead() : BlockRequest{.op = BlockOp::kRead} {
    list.fill({.host = memory.data(), .length = kEach, .region = 0});
    segments = list;
    done = [](BlockRequest& request) { static_cast<LongRead&>(request).over.Notify(); };
  }
  std::array<std::byte, kEach> memory;
  std::array<Segment, kSegments> list;
  testing::BoundedEvent over;
};

TEST(OverlayTurnsTest, ItsDeepestMomentIsNotForGood) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  constexpr size_t kDepth = 256;
  constexpr int64_t kSegmentsOfAll = kDepth * LongRead::kSegments * sizeof(Segment);  // 4 MiB
  OverlayRig rig;
  for (MemoryDisk* disk : {&rig.base(), &rig.file()}) disk->KeepRecords(false);
  // All are cut: the last of their blocks is here, and the others are the base's.
  ASSERT_EQ(rig.Write(15 * kOverlayBlock, kOverlayBlock, 'w'), 0);
  const auto run = [&](size_t count) {
    std::deque<LongRead> reads(count);
    rig.base().Hold(true);
    for (LongRead& read : reads) rig.Submit(read);
    rig.base().Hold(false);
    rig.base().ReleaseAll();
    for (LongRead& read : reads) read.over.WaitOrAbort();
  };
  const int64_t before = testing::LiveBytes();
  run(kDepth);
  EXPECT_LT(testing::LiveBytes() - before, kSegmentsOfAll / 4);
  // What is kept is enough for those of most moments.
  run(16);
  const auto count = [&] {
    uint64_t allocations = 0;
    RunOn(rig.thread(), [&] { allocations = testing::AllocationsOfThisThread(); });
    return allocations;
  };
  const uint64_t allocations = count();
  run(16);
  EXPECT_EQ(count(), allocations);
}

}  // namespace
}  // namespace ringside
