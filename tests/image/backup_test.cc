// Incremental backups: chains of them, what cuts them off, and files that lie.
#include "image/backup.h"

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "image/commit.h"
#include "overlay/overlay_header.h"
#include "tests/support/image/image_fixture.h"

namespace ringside {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::ImageTest;
using testing::TestOverlay;

class BackupTest : public ImageTest {
 protected:
  BackupTest() : original_(disk_) { WriteSparse(copy_, disk_); }

  absl::StatusOr<DiffResult> Back(const std::string& name, bool full = false) {
    return Diff({.bases = {base_}, .top = top_}, full, Path(name), progress_);
  }
  absl::StatusOr<ApplyResult> Onto(const std::string& image, std::vector<std::string> names,
                                   const std::vector<std::string>& bases = {},
                                   const OverlayId& onto = {}) {
    for (std::string& name : names) name = Path(name);
    return Apply({.image = image, .bases = bases, .deltas = names, .onto = onto}, progress_);
  }
  // With another content each.
  void MakeFive() {
    for (int i = 1; i <= 5; ++i) {
      Scatter(static_cast<unsigned>(i));
      const auto made = Back("b" + std::to_string(i));
      ASSERT_TRUE(made.ok()) << made.status();
      after_.push_back(disk_);
    }
  }

  const std::string original_;
  const std::string copy_ = Path("copy");  // of the base
  const std::vector<std::string> five_ = {"b1", "b2", "b3", "b4", "b5"};
  std::vector<std::string> after_;
};

TEST_F(BackupTest, AChainOfFiveIsRestoredToEachOfItsPoints) {
  MakeFive();
  for (size_t count = 1; count <= 5; ++count) {
    WriteSparse(copy_, original_);
    const std::vector<std::string> some(five_.begin(), five_.begin() + static_cast<long>(count));
    const auto result = Onto(copy_, some);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Content(copy_), after_[count - 1]) << count;
  }
  // Again changes nothing.
  EXPECT_TRUE(Onto(copy_, five_).ok());
  EXPECT_EQ(Content(copy_), disk_);
}

TEST_F(BackupTest, AnOverlayTakesThemOneByOneAndGoesOnFromThere) {
  MakeFive();
  const std::string restored = Path("restored.cow");
  Create(restored, {base_});
  for (const std::string& name : five_) {
    const auto result = Onto(restored, {name}, {base_});
    ASSERT_TRUE(result.ok()) << result.status();
  }
  EXPECT_EQ(testing::ContentOf(restored, {base_}), disk_);
  EXPECT_EQ(Onto(restored, five_, {base_})->applied, 0u);
  // What it is written to from now on is a backup that follows the fifth.
  TestOverlay overlay(restored, disk_);
  overlay.Write(5, 2, 'n');
  overlay.Close();
  EXPECT_THAT(Message(Onto(restored, five_, {base_}).status()), HasSubstr("was written to since"));
  const auto sixth = Diff({.bases = {}, .top = restored}, false, Path("b6"), progress_);
  ASSERT_TRUE(sixth.ok()) << sixth.status();
  EXPECT_EQ(sixth->contents.data_bytes, 2 * kOverlayBlock);
  std::vector<std::string> six = five_;
  six.emplace_back("b6");
  ASSERT_TRUE(Onto(copy_, six).ok());
  EXPECT_EQ(Content(copy_), disk_);
}

TEST_F(BackupTest, AFullOneNeedsNothingBeforeIt) {
  Scatter(1);
  ASSERT_TRUE(Back("full", true).ok());
  Scatter(2);
  ASSERT_TRUE(Back("next").ok());
  const std::string image = Path("image");
  ASSERT_TRUE(Onto(image, {"full", "next"}).ok());
  EXPECT_EQ(Content(image), disk_);
}

TEST_F(BackupTest, WhatDoesNotFollowIsRefusedBeforeAnythingIsWritten) {
  MakeFive();
  const auto refused = [&](const std::vector<std::string>& names, const std::string& says) {
    EXPECT_THAT(Message(Onto(copy_, names).status()), HasSubstr(says));
    EXPECT_EQ(Content(copy_), original_);
  };
  refused({"b2"}, "name the backups before it");
  refused({"b1", "b3"}, "apply those between them first");
  refused({"b2", "b1"}, "apply those between them first");
  refused({}, "no backup to apply");
  refused({"copy"}, "no backup");
  const std::string restored = Path("restored.cow"), other = Path("other.cow");
  Create(restored, {base_});
  EXPECT_THAT(Message(Onto(restored, {"b2"}, {base_}).status()), HasSubstr("that of its base"));
  Create(other, {copy_});
  EXPECT_THAT(Message(Onto(other, {"b1"}, {copy_}).status()), HasSubstr("another base"));
  // A raw image keeps no point: its user says it.
  ASSERT_TRUE(Onto(copy_, {"b1", "b2"}).ok());
  const auto delta = DeltaFile::Open(Path("b2"));
  EXPECT_TRUE(Onto(copy_, {"b3", "b4", "b5"}, {}, delta->header().point).ok());
  EXPECT_EQ(Content(copy_), disk_);
}

// ---- Cut off ----

TEST_F(BackupTest, ABackupThatNobodyWasToldOfIsFinished) {
  Scatter(1);
  ASSERT_TRUE(Back("b1").ok());
  std::filesystem::rename(Path("b1"), Path("b1.part"));
  const auto again = Back("b1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->was_there);
  EXPECT_TRUE(Back("b1")->was_there);
  ASSERT_TRUE(Onto(copy_, {"b1"}).ok());
  EXPECT_EQ(Content(copy_), disk_);
  // With changes since, it is another's file.
  Scatter(2);
  EXPECT_THAT(Message(Back("b1").status()), HasSubstr("an earlier backup"));
}

TEST_F(BackupTest, ABackupWhosePointWasNeverTakenIsMadeAnew) {
  Scatter(1);
  const std::string before = Path("before.cow");
  std::filesystem::copy_file(top_, before);
  ASSERT_TRUE(Back("b1").ok());
  std::filesystem::rename(Path("b1"), Path("b1.part"));
  std::filesystem::rename(before, top_);
  const auto again = Back("b1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_FALSE(again->was_there);
  EXPECT_FALSE(std::filesystem::exists(Path("b1.part")));
  // What is nobody's backup is not removed.
  WriteSparse(Path("b2.part"), std::string(8192, 'x'));
  EXPECT_THAT(Message(Back("b2").status()), HasSubstr("is no backup of"));
}

TEST_F(BackupTest, AKilledMachinesBlocksAreAllInTheNextBackup) {
  Scatter(1);
  ASSERT_TRUE(Back("b1").ok());
  {
    TestOverlay overlay(top_, disk_);
    overlay.Write(3, 9, 'k');
    overlay.Close();
  }
  {
    auto top = OverlayImage::Open(top_, ImageFile::Access::kWrite);
    auto page = top->ReadPage(0);
    // As after a kill: the data is there, and its dirty bits are not.
    page->bits.dirty = {};
    page->bits.intents = 1;
    ASSERT_TRUE(top->WritePage(0, *page).ok());
  }
  ASSERT_TRUE(Back("b2").ok());
  ASSERT_TRUE(Onto(copy_, {"b1", "b2"}).ok());
  EXPECT_EQ(Content(copy_), disk_);
}

// Its point was taken, and a later backup follows it, but it did not get its name.
TEST_F(BackupTest, ABackupThatOthersFollowIsNotRemoved) {
  Scatter(1);
  ASSERT_TRUE(Back("b1").ok());
  std::filesystem::rename(Path("b1"), Path("b1.part"));
  Scatter(2);
  ASSERT_TRUE(Back("b2").ok());
  std::filesystem::copy_file(Path("b1.part"), Path("x.part"));
  const auto first = Back("b1");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(first->was_there);
  ASSERT_TRUE(Onto(copy_, {"b1", "b2"}).ok());
  EXPECT_EQ(Content(copy_), disk_);
  Scatter(3);
  ASSERT_TRUE(Back("b3").ok());
  EXPECT_THAT(Message(Back("x").status()), HasSubstr("later ones may follow"));
  EXPECT_TRUE(std::filesystem::exists(Path("x.part")));
}

// All points are forgotten with a commit, and the first of them has none before it.
TEST_F(BackupTest, ABackupThatOthersFollowIsNotRemovedAfterACommit) {
  for (const char* name : {"b1", "b2"}) {
    Scatter(static_cast<unsigned>(name[1]));
    ASSERT_TRUE(Back(name).ok());
  }
  std::filesystem::rename(Path("b1"), Path("b1.part"));
  ASSERT_TRUE(Commit({.bases = {base_}, .top = top_}, progress_).ok());
  EXPECT_THAT(Message(Back("b1").status()), HasSubstr("later ones may follow"));
  EXPECT_TRUE(std::filesystem::exists(Path("b1.part")));
}

// Given again, or cut off and given again, over a disk that has grown in between.
TEST_F(BackupTest, ADiskThatGrewIsRestoredFromTheStartAgain) {
  Scatter(1);
  ASSERT_TRUE(Back("b1").ok());
  disk_.resize(kDisk + (1 << 20));
  {
    auto top = OverlayImage::Open(top_, ImageFile::Access::kWrite);
    OverlayHeader header = top->header();
    header.size = disk_.size();
    ASSERT_TRUE(top->file().Resize(OverlayFileBytes(header.data_offset, header.size)).ok());
    ASSERT_TRUE(top->WriteHeader(header).ok());
  }
  Scatter(2);
  ASSERT_TRUE(Back("b2").ok());
  const std::string restored = Path("restored.cow");
  Create(restored, {base_});
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(Onto(copy_, {"b1", "b2"}).ok());
    EXPECT_EQ(Content(copy_), disk_);
    const auto result = Onto(restored, {"b1", "b2"}, {base_});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(testing::ContentOf(restored, {base_}), disk_);
  }
  // What was behind the smaller disk is not the larger one's.
  WriteSparse(copy_, original_ + std::string(1 << 20, 'x'));
  ASSERT_TRUE(Onto(copy_, {"b1", "b2"}).ok());
  EXPECT_EQ(Content(copy_), disk_);
}

// A copy of the base would show what the disk has not.
TEST_F(BackupTest, WhatHidesAPartOfItsBaseIsBackedUpWhole) {
  const std::string small = Path("small.cow");
  Create(small, {base_}, 8192);
  {
    auto overlay = OverlayImage::Open(small, ImageFile::Access::kWrite);
    OverlayHeader header = overlay->header();
    header.size = kDisk;
    ASSERT_TRUE(overlay->file().Resize(OverlayFileBytes(header.data_offset, kDisk)).ok());
    ASSERT_TRUE(overlay->WriteHeader(header).ok());
  }
  const Chain::Names names = {.bases = {base_}, .top = small};
  EXPECT_THAT(Message(Diff(names, false, Path("b"), progress_).status()), HasSubstr("add --full"));
  ASSERT_TRUE(Diff(names, true, Path("b"), progress_).ok());
  const std::string image = Path("image");
  ASSERT_TRUE(Onto(image, {"b"}).ok());
  EXPECT_EQ(Content(image), testing::ContentOf(small, {base_}));
}

TEST_F(BackupTest, AnOverlayWithAPartOfABackupIsNobodysUntilItHasAll) {
  MakeFive();
  const std::string restored = Path("restored.cow");
  Create(restored, {base_});
  ASSERT_TRUE(Onto(restored, {"b1"}, {base_}).ok());
  {
    auto overlay = OverlayImage::Open(restored, ImageFile::Access::kWrite);
    OverlayHeader header = overlay->header();
    header.flags |= OverlayHeader::kApplying;
    header.previous_point = header.point;
    header.point = DeltaFile::Open(Path("b2"))->header().point;
    ASSERT_TRUE(overlay->BeginWriting(header).ok());
  }
  EXPECT_FALSE(OverlayFile::Open(restored, OverlayAccess::kRead).ok());
  EXPECT_THAT(Message(Onto(restored, {"b1"}, {base_}).status()), HasSubstr("a part of the backup"));
  ASSERT_TRUE(Onto(restored, five_, {base_}).ok());
  EXPECT_EQ(testing::ContentOf(restored, {base_}), disk_);
}

// ---- Files that lie ----

class HostileBackupTest : public BackupTest {
 protected:
  HostileBackupTest() {
    TestOverlay overlay(top_, disk_);
    overlay.Write(1, 3, 'x');
    overlay.Zero(9, 1);
    overlay.Write(OverlayBlocks(kDisk) - 1, 1, 'e');
    overlay.Close();
    EXPECT_TRUE(Back("b1").ok());
    good_ = Content(Path("b1"));
  }
  static DeltaHeader& HeaderIn(std::string& file) {
    return *reinterpret_cast<DeltaHeader*>(file.data());
  }
  static DeltaTable& TableIn(std::string& file) {
    return *reinterpret_cast<DeltaTable*>(file.data() + sizeof(DeltaHeader));
  }
  // With checksums that are right.
  static void Seal(std::string& file) {
    const auto bytes = std::as_bytes(std::span(file));
    HeaderIn(file).crc = Crc32c(bytes.first(offsetof(DeltaHeader, crc)));
    TableIn(file).crc = 0;
    TableIn(file).crc = Crc32c(bytes.subspan(sizeof(DeltaHeader), sizeof(DeltaTable)));
  }
  void Refused(const std::string& file) {
    WriteSparse(Path("bad"), file);
    const absl::Status status = Onto(copy_, {"bad"}).status();
    EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(Message(status).find('\n'), std::string_view::npos);
    EXPECT_EQ(Content(copy_), original_);
  }

  std::string good_;
};

TEST_F(HostileBackupTest, EveryFlippedByteIsFound) {
  for (size_t at = 0; at < good_.size(); at += at < 4300 ? 97 : 997) {
    std::string file = good_;
    file[at] = static_cast<char>(file[at] ^ 0x10);
    // What pads the last data is nobody's.
    if (at >= good_.size() - 3584) break;
    Refused(file);
  }
  for (const size_t size : {0UL, 100UL, 4096UL, 8000UL, 8192UL, good_.size() - 1}) {
    Refused(good_.substr(0, size));
  }
  Refused(good_ + "x");
}

TEST_F(HostileBackupTest, WhateverItSaysNothingIsWrittenElsewhere) {
  using Change = std::function<void(DeltaHeader & header, DeltaTable & table)>;
  constexpr uint64_t kMost = ~uint64_t{0};
  const std::vector<Change> changes = {
      [](auto& header, auto&) { header.version = 2; },
      [](auto& header, auto&) { header.incompatible = 4; },
      [](auto& header, auto&) { header.disk_bytes = 0; },
      [](auto& header, auto&) { header.disk_bytes = kMost / 512 * 512; },
      [](auto& header, auto&) { header.disk_bytes = 4096; },
      [](auto& header, auto&) { header.point = {}; },
      [](auto& header, auto&) { header.flags = DeltaHeader::kFull; },
      [](auto&, auto& table) { table.runs = 127; },
      [](auto&, auto& table) { table.runs = kMost; },
      [](auto&, auto& table) { table.number = 1; },
      [](auto&, auto& table) { table.is_last = 0; },
      [](auto&, auto& table) { table.is_last = 7; },
      [](auto&, auto& table) { table.point[0] ^= 1; },
      [](auto&, auto& table) { table.run[0].offset = 512; },
      [](auto&, auto& table) { table.run[1].offset = 0; },
      [](auto&, auto& table) { table.run[0].offset = kMost - 4095; },
      [](auto&, auto& table) { table.run[0].length = 0; },
      [](auto&, auto& table) { table.run[0].length = 100; },
      [](auto&, auto& table) { table.run[0].length = uint64_t{1} << 40; },
      [](auto&, auto& table) { table.run[1].length = kMost - 4095; },
      [](auto&, auto& table) { table.run[2].length = 4096; },
      [](auto&, auto& table) { table.run[0].kind = static_cast<DeltaRun::Kind>(3); },
      [](auto&, auto& table) { table.run[0].crc ^= 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE(i);
    std::string file = good_;
    changes[i](HeaderIn(file), TableIn(file));
    Seal(file);
    Refused(file);
  }
  // Those checksums are right otherwise.
  std::string file = good_;
  Seal(file);
  EXPECT_EQ(file, good_);
}

}  // namespace
}  // namespace ringside
