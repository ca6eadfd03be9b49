// Overlays into their bases, and chains as one image.
#include "image/commit.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "overlay/overlay_header.h"
#include "tests/support/image/image_fixture.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;
using testing::ImageTest;
using testing::TestOverlay;
using ::testing::UnorderedElementsAre;

class CommitTest : public ImageTest {
 protected:
  Chain::Names names() const { return {.bases = {base_}, .top = top_}; }
};

TEST_F(CommitTest, AChainIsFlattenedWithHoles) {
  Scatter(1);
  const std::string upper = Path("upper.cow"), image = Path("image");
  Create(upper, {base_, top_});
  TestOverlay overlay(upper, disk_);
  overlay.Scatter(2);
  overlay.Close();
  const auto flat = Flatten({.bases = {base_, top_}, .top = upper}, image, progress_);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(Content(image), disk_);
  EXPECT_LT(flat->bytes_on_host, 8u << 20);
  EXPECT_THAT(Message(Flatten({.bases = {base_, top_}, .top = upper}, image, progress_).status()),
              HasSubstr("is there already"));
  // A base in the wrong place.
  EXPECT_FALSE(Flatten({.bases = {base_}, .top = upper}, Path("other"), progress_).ok());
  EXPECT_THAT(Names(), UnorderedElementsAre("base", "top.cow", "upper.cow", "image"));
}

TEST_F(CommitTest, TheBaseHoldsItAndTheOverlayIsEmpty) {
  Scatter(1);
  const auto result = Commit(names(), progress_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_FALSE(result->was_resumed);
  EXPECT_EQ(Content(base_), disk_);
  EXPECT_EQ(testing::ContentOf(top_, {base_}), disk_);
  {
    const auto top = OverlayImage::Open(top_, ImageFile::Access::kRead);
    EXPECT_EQ(top->NextPage(0), std::nullopt);
    EXPECT_LE(top->file().BytesOnHost(), 64u << 10);  // its space was given back
  }
  // Again, with other blocks, over the same file.
  Scatter(2);
  EXPECT_TRUE(Commit(names(), progress_).ok());
  EXPECT_EQ(Content(base_), disk_);
}

TEST_F(CommitTest, AnOverlayIsABaseTooAndItsNextBackupHasAll) {
  Scatter(1);
  const std::string upper = Path("upper.cow");
  const Chain::Names chain = {.bases = {base_, top_}, .top = upper};
  // The top is in a period of backups, with nothing changed.
  {
    auto top = OverlayImage::Open(top_, ImageFile::Access::kWrite);
    OverlayHeader header = top->header();
    header.period = 1;
    header.point = *NewOverlayId();
    // And was not closed, while a page of its map was being written.
    header.flags |= OverlayHeader::kInUse;
    ASSERT_TRUE(top->WriteHeader(header).ok());
    auto page = top->ReadPage(1);
    ASSERT_TRUE(page.ok() && top->WritePage(1, *page).ok());
    const std::string torn = testing::Pattern(2048, 't');
    ASSERT_TRUE(
        top->file().Write(PageSlotOffset(1, page->slot ^ 1), std::as_bytes(std::span(torn))).ok());
  }
  Create(upper, chain.bases);
  TestOverlay overlay(upper, disk_);
  overlay.Scatter(2);
  overlay.Close();
  const auto result = Commit(chain, progress_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(testing::ContentOf(top_, {base_}), disk_);
  EXPECT_EQ(testing::ContentOf(upper, {base_, top_}), disk_);
  const auto top = OverlayImage::Open(top_, ImageFile::Access::kRead);
  uint64_t dirty = 0;
  EXPECT_TRUE(OverlayRuns(*top, OverlayRuns::Which::kDirty)
                  .ForEach([&](const ringside::Run& run) {
                    dirty += run.length;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(dirty, result->data_bytes + result->zero_bytes);
}

TEST_F(CommitTest, ALargerOverlayMakesItsBaseLarger) {
  disk_ += std::string(1 << 20, '\0');
  const std::string larger = Path("larger.cow");
  Create(larger, {base_}, disk_.size());
  TestOverlay overlay(larger, disk_);
  overlay.Write(OverlayBlocks(kDisk) + 7, 3, 'x');
  overlay.Close();
  ASSERT_TRUE(Commit({.bases = {base_}, .top = larger}, progress_).ok());
  EXPECT_EQ(Content(base_), disk_);
  EXPECT_EQ(testing::ContentOf(larger, {base_}), disk_);
}

// It is as it was, and can be used and written out.
TEST_F(CommitTest, ABaseThatCannotGrowHasNothingOfIt) {
  Scatter(1);
  const uint64_t capacity = Header(top_).capacity;
  const std::string larger = Path("larger.cow");
  Create(larger, {base_, top_}, capacity + 4096);
  EXPECT_THAT(Message(Commit({.bases = {base_, top_}, .top = larger}, progress_).status()),
              HasSubstr("image flatten"));
  EXPECT_EQ(Header(larger).flags, 0u);
  EXPECT_TRUE(OverlayFile::Open(larger, OverlayAccess::kWrite)->BeginUse().ok());

  const std::string raw = Path("raw.cow");
  Create(raw, {base_}, disk_.size() + (1 << 20));
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = disk_.size(), .rlim_max = before.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status status = Commit({.bases = {base_}, .top = raw}, progress_).status();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(Message(status), HasSubstr("File too large"));
  EXPECT_EQ(Header(raw).flags, 0u);
  EXPECT_TRUE(Commit({.bases = {base_}, .top = raw}, progress_).ok());
}

TEST_F(CommitTest, WhatEndsInABlockOfALargerBaseIsRefused) {
  const std::string smaller = Path("smaller.cow");
  Create(smaller, {base_, top_}, 8192 + 512);
  EXPECT_THAT(Message(Commit({.bases = {base_, top_}, .top = smaller}, progress_).status()),
              HasSubstr("in the middle of a block"));
  EXPECT_EQ(Header(smaller).flags, 0u);
}

TEST_F(CommitTest, OtherOverlaysOfTheBaseAreRefusedAfterIt) {
  Scatter(1);
  const std::string other = Path("other.cow");
  Create(other, {base_});
  ASSERT_TRUE(Commit(names(), progress_).ok());
  EXPECT_FALSE(Chain::OpenToRead({.bases = {base_}, .top = other}).ok());
}

TEST_F(CommitTest, WhoeverHasOneOfThemOpenIsInTheWay) {
  Scatter(1);
  for (const std::string& path : {base_, top_}) {
    const UniqueFd reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    EXPECT_THAT(Message(Commit(names(), progress_).status()), HasSubstr("is open in process"));
  }
  EXPECT_EQ(Header(top_).flags, 0u);
  EXPECT_TRUE(Commit(names(), progress_).ok());
}

TEST_F(CommitTest, WhatWasCutOffGoesOnWithTheSameBaseOnly) {
  Scatter(1);
  const std::string other = Path("other");
  WriteSparse(other, Content(base_));
  {
    auto top = OverlayImage::Open(top_, ImageFile::Access::kWrite);
    const auto chain = Chain::Open({.bases = {base_}, .top = {}}, Chain::Writes::kNothing);
    OverlayHeader header = top->header();
    header.flags |= OverlayHeader::kCommitting;
    header.base_hint = chain->BaseHint();
    ASSERT_TRUE(top->BeginWriting(header).ok());
  }
  WriteSparse(base_, disk_);  // so that its time is another
  EXPECT_THAT(Message(OverlayFile::Open(top_, OverlayAccess::kWrite)->BeginUse()),
              HasSubstr("is being written into its base"));
  EXPECT_THAT(Message(Flatten(names(), Path("flat"), progress_).status()), HasSubstr("its base"));
  EXPECT_THAT(Message(Commit({.bases = {other}, .top = top_}, progress_).status()),
              HasSubstr("is being written into '" + base_ + "'"));
  const auto result = Commit(names(), progress_);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->was_resumed);
  EXPECT_EQ(Content(base_), disk_);
}

TEST_F(CommitTest, ADamagedMapChangesNothing) {
  Scatter(1);
  const std::string before = Content(base_);
  {
    const UniqueFd file(open(top_.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_EQ(pwrite(file.get(), "x", 1, PageSlotOffset(1, 0) + 1500), 1);
  }
  const absl::Status status = Commit(names(), progress_).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_EQ(Content(base_), before);
  EXPECT_EQ(Header(top_).flags, 0u);
}

}  // namespace
}  // namespace ringside
