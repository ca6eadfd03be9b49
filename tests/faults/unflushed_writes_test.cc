// What a power cut may undo: that it never is what was flushed, always what a sequence of writes
// could leave, and that the cache has its bound.
#include "faults/unflushed_writes.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

namespace ringside {
namespace {

constexpr uint32_t kSector = 512;
constexpr uint64_t kDisk = 96 << 10;  // sectors: 48 MiB

// A disk of sectors that each have a number, beside the writes that are followed.
class Model {
 public:
  UnflushedWrites::Write* Begin(uint64_t first, uint64_t count, uint64_t value) {
    UnflushedWrites::Write* write = writes_.Add(first * kSector, count * kSector);
    for (uint64_t i = 0; i < count; ++i) {
      if (write != nullptr) SetNumber(write->before + i * kSector, disk_[first + i]);
      disk_[first + i] = value;
    }
    return write;
  }
  void Write(uint64_t first, uint64_t count, uint64_t value, bool durable = false) {
    if (auto* write = Begin(first, count, value)) writes_.Done(*write, durable);
  }
  CutReport Cut(uint64_t random) {
    CutReport report = writes_.Cut(random);
    for (const LostRange& range : report.lost) {
      for (size_t i = 0; i < range.sectors.size(); ++i) {
        uint64_t number = 0;
        std::memcpy(&number, range.sectors[i], sizeof number);
        disk_[range.offset / kSector + i] = number;
      }
    }
    return report;
  }
  uint64_t operator[](uint64_t sector) { return disk_[sector]; }
  UnflushedWrites& writes() { return writes_; }

 private:
  static void SetNumber(std::byte* at, uint64_t number) {
    std::memset(at, 0, kSector);
    std::memcpy(at, &number, sizeof number);
  }
  UnflushedWrites writes_{kSector};
  std::vector<uint64_t> disk_ = std::vector<uint64_t>(kDisk);
};

TEST(UnflushedWritesTest, AWriteStaysGoesOrIsTorn) {
  std::set<uint64_t> kept;  // how many sectors of eight
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Model model;
    model.Write(0, 8, 1);
    const CutReport report = model.Cut(seed);
    uint64_t there = 0;
    for (uint64_t sector = 0; sector < 8; ++sector) there += model[sector];
    kept.insert(there);
    EXPECT_TRUE(report.kept_writes == 0 || there == 8) << there;
    EXPECT_TRUE(report.lost_writes == 0 || there == 0) << there;
    EXPECT_EQ(report.kept_writes + report.lost_writes + report.torn_writes, 1u);
  }
  EXPECT_GT(kept.size(), 5u) << "torn ones keep this or that";
  EXPECT_TRUE(kept.contains(0) && kept.contains(8));
}

TEST(UnflushedWritesTest, AFlushCoversWhatWasDoneBeforeItWasSubmitted) {
  bool lost_late = false;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Model model;
    model.Write(0, 8, 1);
    UnflushedWrites::Write* under_way = model.Begin(8, 8, 2);
    const uint64_t flush = model.writes().now();
    model.writes().Done(*under_way, false);
    model.Write(16, 8, 3);
    model.writes().Flushed(flush);
    model.Cut(seed);
    for (uint64_t sector = 0; sector < 8; ++sector) EXPECT_EQ(model[sector], 1u);
    lost_late = lost_late || (model[8] == 0 && model[16] == 0);
  }
  EXPECT_TRUE(lost_late);
}

TEST(UnflushedWritesTest, WhatWasToBeDurableIs) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Model model;
    model.Write(0, 4, 1);
    model.Write(0, 4, 2, true);  // over one that may be lost
    model.Cut(seed);
    for (uint64_t sector = 0; sector < 4; ++sector) EXPECT_EQ(model[sector], 2u);
  }
}

// Of the writes to a sector, the last that is kept is what it holds.
TEST(UnflushedWritesTest, ALostWriteOverAKeptOneLeavesThat) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Model model;
    for (uint64_t value = 1; value <= 3; ++value) model.Write(5, 1, value);
    model.Cut(seed);
    seen.insert(model[5]);
  }
  EXPECT_EQ(seen, (std::set<uint64_t>{0, 1, 2, 3}));
}

TEST(UnflushedWritesTest, TheOldestBecomeDurableWhenItIsFull) {
  constexpr uint64_t kSectors = 2048;  // a MiB
  constexpr uint64_t kFit = UnflushedWrites::kMostBytes / (kSectors * kSector);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Model model;
    for (uint64_t i = 0; i < kFit + 10; ++i) model.Write(i * kSectors, kSectors, 1);
    EXPECT_EQ(model.writes().held_bytes(), UnflushedWrites::kMostBytes);
    const CutReport report = model.Cut(seed);
    EXPECT_EQ(report.kept_writes + report.lost_writes + report.torn_writes, kFit);
    for (uint64_t sector = 0; sector < 10 * kSectors; ++sector) ASSERT_EQ(model[sector], 1u);
  }
}

TEST(UnflushedWritesTest, WhatDoesNotFitGoesAround) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Model model;
    model.Write(0, 8, 1);
    EXPECT_EQ(model.Begin(0, UnflushedWrites::kMostBytes / kSector + 1, 2), nullptr);
    EXPECT_TRUE(model.Cut(seed).lost.empty()) << "nothing older comes over it";
  }
  // The place of one that is under way is not to be had.
  Model full;
  UnflushedWrites::Write* first = full.Begin(0, UnflushedWrites::kMostBytes / kSector, 1);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(full.Begin(1, 1, 2), nullptr);
  full.writes().Done(*first, false);
  EXPECT_NE(full.Begin(1, 1, 3), nullptr);
}

// Writes of all sizes, flushes and in the end a cut: each sector holds what one of its writes left,
// none older than what was flushed; and memory is used as a ring.
TEST(UnflushedWritesTest, ASectorHoldsNothingOlderThanItsFlush) {
  std::mt19937_64 random(3);
  for (uint64_t round = 0; round < 6; ++round) {
    Model model;
    std::vector<uint64_t> newest(kDisk),
        flushed(kDisk);  // by sector: the most, the least it may hold
    uint64_t value = 0;
    for (int i = 0; i < 120; ++i) {
      if (random() % 40 == 0) {
        model.writes().FlushedByItself();
        flushed = newest;
        continue;
      }
      const uint64_t count = 1 + random() % 2000, first = random() % (kDisk - count);
      ++value;
      model.Write(first, count, value);
      for (uint64_t sector = first; sector < first + count; ++sector) newest[sector] = value;
      ASSERT_LE(model.writes().held_bytes(), UnflushedWrites::kMostBytes);
    }
    model.Cut(round);
    for (uint64_t sector = 0; sector < kDisk; ++sector) {
      ASSERT_LE(model[sector], newest[sector]);
      ASSERT_GE(model[sector], flushed[sector]);
    }
  }
}

}  // namespace
}  // namespace ringside
