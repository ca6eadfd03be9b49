// Images are made whole or not at all; overlays keep to their bases.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "image/commit.h"
#include "image/create.h"
#include "image/inspect.h"
#include "overlay/overlay_header.h"
#include "tests/support/image/image_fixture.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::ImageTest;
using testing::TestOverlay;
using ::testing::UnorderedElementsAre;

class CreateTest : public ImageTest {
 protected:
  absl::Status Make(const CreateOptions& options) {
    return CreateImage(options, progress_).status();
  }
};

TEST_F(CreateTest, ARawImageHasTheSpaceThatWasAskedFor) {
  constexpr uint64_t kSize = 4 << 20;
  struct stat info = {};
  for (const auto& [how, least, most] : {std::tuple(Preallocation::kOff, 0UL, 0UL),
                                         std::tuple(Preallocation::kFalloc, kSize, 2 * kSize),
                                         std::tuple(Preallocation::kFull, kSize, 2 * kSize)}) {
    const std::string path = Path("raw");
    ASSERT_TRUE(Make({.file = path, .size = kSize, .preallocation = how}).ok());
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(static_cast<uint64_t>(info.st_size), kSize);
    EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, least);
    EXPECT_LE(static_cast<uint64_t>(info.st_blocks) * 512, most);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    std::filesystem::remove(path);
  }
}

TEST_F(CreateTest, WhatIsThereIsNotTouchedAndWhatFailsLeavesNothing) {
  EXPECT_THAT(Message(Make({.file = base_, .size = 4096})), HasSubstr("is there already"));
  EXPECT_EQ(Content(base_), disk_);
  EXPECT_THAT(Make({.file = Path("raw"), .size = 1000}),
              IsBadInput("1000 bytes", "a multiple of 512"));
  EXPECT_THAT(Make({.file = Path("no/raw"), .size = 4096}), IsBadInput("no/raw", "No such file"));
  EXPECT_FALSE(
      Make(
          {.file = Path("raw"), .size = uint64_t{1} << 62, .preallocation = Preallocation::kFalloc})
          .ok());
  EXPECT_FALSE(Make({.file = Path("new.cow"), .bases = {Path("gone")}}).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("base", "top.cow"));
}

TEST_F(CreateTest, AnOverlayOnAnOddBaseEndsWhereItEndsAndIsZeroesBehind) {
  disk_ += std::string(70'000 / 512 * 512, '\0');
  const std::string larger = Path("larger.cow");
  Create(larger, {base_}, disk_.size());
  EXPECT_EQ(testing::ContentOf(larger, {base_}), disk_);
  TestOverlay overlay(larger, disk_);
  overlay.Write(OverlayBlocks(kDisk), 3, 'x');
  overlay.Close();
  EXPECT_EQ(testing::ContentOf(larger, {base_}), disk_);
}

TEST_F(CreateTest, AChangedBaseIsRefusedAndOneThatWasCopiedAcceptedByItsDigest) {
  const std::string sure = Path("sure.cow"), copy = Path("copy");
  Create(sure, {base_}, 0, /*digest=*/true);
  WriteSparse(copy, disk_);
  const Chain::Names moved = {.bases = {copy}, .top = sure};
  EXPECT_THAT(Message(Chain::OpenToRead(moved).status()), HasSubstr("last changed at"));
  EXPECT_THAT(Message(Rebase({.bases = {copy}, .top = top_}, false, progress_).status()),
              HasSubstr("has no digest of its base"));
  const auto accepted = Rebase(moved, false, progress_);
  ASSERT_TRUE(accepted.ok()) << accepted.status();
  EXPECT_TRUE(accepted->digest_agrees);
  EXPECT_EQ(testing::ContentOf(sure, {copy}), disk_);
  EXPECT_TRUE(Rebase(moved, false, progress_)->was_the_same);
  // Another content of the same size.
  disk_[77] ^= 1;
  WriteSparse(copy, disk_);
  EXPECT_THAT(Message(Rebase(moved, false, progress_).status()), HasSubstr("digest is another"));
  EXPECT_TRUE(Rebase(moved, true, progress_).ok());
  EXPECT_EQ(Header(sure).base.has_digest, 0u);
  // Another size.
  std::filesystem::resize_file(copy, kDisk + 512);
  EXPECT_THAT(Message(Rebase(moved, true, progress_).status()),
              HasSubstr("no base of another size"));
}

TEST_F(CreateTest, BasesThatSomebodyMayWriteAreRefused) {
  const UniqueFd writer(open(base_.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_THAT(Message(Make({.file = Path("new.cow"), .bases = {base_}})),
              HasSubstr("is open for writing by process"));
}

TEST_F(CreateTest, ManyBasesAreRefused) {
  EXPECT_THAT(Make({.file = Path("new.cow"), .bases = std::vector<std::string>(17, base_)}),
              IsBadInput("17 bases", "too many"));
}

// ---- Looking at them ----

TEST_F(CreateTest, CheckFindsWhatWasSpoiled) {
  Scatter(1);
  const auto bad = [&](const ImageCheck& options) {
    const auto findings = CheckImage(options, progress_);
    EXPECT_TRUE(findings.ok()) << findings.status();
    std::string text;
    for (const CheckFinding& each : *findings) {
      if (each.kind == CheckFinding::Kind::kBad) text += each.text;
    }
    return text;
  };
  const ImageCheck options = {.file = top_, .bases = {base_}};
  EXPECT_EQ(bad(options), "");
  const UniqueFd file(open(top_.c_str(), O_RDWR | O_CLOEXEC));
  const auto flip = [&](uint64_t offset) {
    char byte = 0;
    ASSERT_EQ(pread(file.get(), &byte, 1, static_cast<off_t>(offset)), 1);
    byte = static_cast<char>(byte ^ 1);
    ASSERT_EQ(pwrite(file.get(), &byte, 1, static_cast<off_t>(offset)), 1);
  };
  const auto read_only = [&] {
    // Or it would be refused as open for writing.
    return bad({.file = Path("copy.cow")});
  };
  const auto copy = [&] {
    std::filesystem::copy_file(top_, Path("copy.cow"),
                               std::filesystem::copy_options::overwrite_existing);
  };
  flip(PageSlotOffset(0, 0) + 2000);
  copy();
  EXPECT_THAT(read_only(), HasSubstr("1 of its map's"));
  flip(PageSlotOffset(0, 0) + 2000);
  for (const unsigned slot : {0u, 1u}) flip(HeaderSlotOffset(slot) + 100);
  copy();
  EXPECT_THAT(read_only(), HasSubstr("no valid header"));
  for (const unsigned slot : {0u, 1u}) flip(HeaderSlotOffset(slot) + 100);
  copy();
  EXPECT_EQ(read_only(), "");
  std::filesystem::resize_file(Path("copy.cow"), 30 << 20);
  EXPECT_THAT(read_only(), HasSubstr("cut short"));
}

TEST_F(CreateTest, InfoCountsWhatIsThere) {
  TestOverlay overlay(top_, disk_);
  overlay.Write(1, 3, 'x');
  overlay.Zero(8192, 2);
  overlay.Close();
  const auto info = Inspect(top_);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->kind, ImageKind::kOverlay);
  EXPECT_EQ(info->disk_bytes, kDisk);
  EXPECT_EQ(info->blocks.here_bytes, 3 * kOverlayBlock);
  EXPECT_EQ(info->blocks.zero_bytes, 2 * kOverlayBlock);
  EXPECT_EQ(info->blocks.dirty_bytes, 5 * kOverlayBlock);
  EXPECT_EQ(Inspect(base_)->kind, ImageKind::kRaw);
}

}  // namespace
}  // namespace ringside
