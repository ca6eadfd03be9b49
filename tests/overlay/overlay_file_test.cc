// The file of an overlay: what is written is found again, and what is not what was written is
// noticed.
#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "overlay/overlay_file.h"
#include "tests/support/directories.h"
#include "tests/support/status_matchers.h"

namespace ringside {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSize = uint64_t{100} << 20;  // 3 pages and an eighth
constexpr uint64_t kBlocks = kSize / kOverlayBlock;

TEST(Crc32cTest, IsTheOneOfTheRfc) {
  // RFC 3720 appendix B.4.
  std::vector<std::byte> bytes(32);
  EXPECT_EQ(Crc32c(bytes), 0x8a9136aau);
  std::ranges::fill(bytes, std::byte{0xff});
  EXPECT_EQ(Crc32c(bytes), 0x62a8ab43u);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  EXPECT_EQ(Crc32c(bytes), 0x46dd794eu);
}

TEST(Crc32cTest, BothWaysGiveTheSameInPiecesAndWhole) {
  std::vector<std::byte> bytes(1001);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 13);
  const std::span all(bytes);
  for (const size_t cut : {0u, 1u, 7u, 8u, 500u, 1001u}) {
    EXPECT_EQ(Crc32c(all.subspan(cut), Crc32c(all.first(cut))), Crc32cByTable(all)) << cut;
  }
}

class OverlayFileTest : public ::testing::Test {
 protected:
  static BaseIdentity Base() {
    return {.kind = BaseKind::kRaw, .size = kSize, .modified_ns = 1'700'000'000'000'000'000};
  }
  OverlayFile Create(uint64_t size = kSize) {
    auto file = OverlayFile::Create(path_, *NewOverlayHeader(size, Base(), "golden.img"));
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  absl::StatusOr<OverlayFile> Open(OverlayAccess access = OverlayAccess::kWrite) {
    return OverlayFile::Open(path_, access);
  }
  // With blocks 5 and 20000 here, and 7 to 9 zeroes; closed.
  void MakeOne() {
    OverlayFile file = Create();
    auto loaded = file.Load();
    ASSERT_TRUE(loaded.ok());
    loaded->map->SetHere(5, 6);
    loaded->map->SetHere(20000, 20001);
    loaded->map->SetZeroes(7, 10);
    ASSERT_TRUE(file.EndUse(*loaded->map).ok());
  }
  std::string Bytes(uint64_t offset, size_t count) {
    std::string bytes(count, 0);
    std::ifstream(path_, std::ios::binary)
        .seekg(static_cast<std::streamoff>(offset))
        .read(bytes.data(), static_cast<std::streamsize>(count));
    return bytes;
  }
  void Put(uint64_t offset, const std::string& bytes) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(offset))
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  // A header with what `change` makes of the one that counts, in both slots.
  template <typename Change>
  void ChangeHeader(Change change) {
    OverlayHeader header = Open(OverlayAccess::kRead)->header();
    change(header);
    for (const unsigned slot : {0u, 1u}) {
      ++header.sequence;
      SealHeader(header);
      Put(HeaderSlotOffset(slot), std::string(reinterpret_cast<const char*>(&header), 4096));
    }
  }
  MapPage PageIn(uint64_t number, unsigned slot) {
    MapPage page;
    const std::string bytes = Bytes(PageSlotOffset(number, slot), sizeof page);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&page));
    return page;
  }
  void PutPage(uint64_t number, unsigned slot, MapPage page) {
    SealPage(page);
    Put(PageSlotOffset(number, slot), std::string(reinterpret_cast<const char*>(&page), 4096));
  }
  OverlayFile::Loaded Load() {
    auto file = Open(OverlayAccess::kRead);
    EXPECT_TRUE(file.ok()) << file.status();
    auto loaded = file->Load();
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return *std::move(loaded);
  }

  testing::TempDirectory directory_;
  const std::string path_ = directory_ / "vm1.cow";
};

TEST_F(OverlayFileTest, WhatWasWrittenIsFoundAgain) {
  MakeOne();
  const auto loaded = Load();
  EXPECT_EQ(loaded.pages, 2u);
  EXPECT_EQ(loaded.map->here_blocks(), 2u);
  EXPECT_EQ(loaded.map->zero_blocks(), 3u);
  EXPECT_TRUE(loaded.map->AreHere(5, 6));
  EXPECT_TRUE(loaded.map->AreHere(20000, 20001));
  const BlockMap::Run base = loaded.map->RunAt(10, kBlocks);
  EXPECT_EQ(base.state, BlockState::kBase);
  EXPECT_EQ(base.end, 20000u);
  EXPECT_EQ(loaded.map->RunAt(7, kBlocks).state, BlockState::kZeroes);
  EXPECT_EQ(loaded.map->RunAt(7, kBlocks).end, 10u);
}

TEST_F(OverlayFileTest, ANewOneIsPrivateSparseAndInUse) {
  const OverlayFile file = Create();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(static_cast<uint64_t>(info.st_size),
            OverlayFileBytes(file.header().data_offset, kSize));
  EXPECT_LE(info.st_blocks * 512, 8192);
  EXPECT_GE(file.header().capacity, uint64_t{64} << 30);
  EXPECT_NE(file.header().flags & OverlayHeader::kInUse, 0u);
  EXPECT_STREQ(file.header().base_hint.data(), "golden.img");
}

TEST_F(OverlayFileTest, WhatIsThereIsNotMadeAnew) {
  Create();
  EXPECT_TRUE(absl::IsAlreadyExists(
      OverlayFile::Create(path_, *NewOverlayHeader(kSize, Base(), "")).status()));
  EXPECT_FALSE(OverlayFile::IsMissing(path_));
}

// What a power cut may leave of a file that was made: its name, and perhaps its size.
TEST_F(OverlayFileTest, AFileWithoutContentCountsAsMissing) {
  EXPECT_TRUE(OverlayFile::IsMissing(path_));
  std::ofstream{path_};
  EXPECT_TRUE(OverlayFile::IsMissing(path_));
  ASSERT_EQ(truncate(path_.c_str(), 1 << 20), 0);
  EXPECT_TRUE(OverlayFile::IsMissing(path_));
  Create();
  EXPECT_TRUE(Open().ok());
  EXPECT_FALSE(OverlayFile::IsMissing(directory_.path()));
}

TEST_F(OverlayFileTest, OneWhoWritesHasItAlone) {
  const OverlayFile file = Create();
  EXPECT_TRUE(absl::IsFailedPrecondition(Open().status()));
  EXPECT_THAT(std::string(Open(OverlayAccess::kRead).status().message()), HasSubstr("in use"));
}

TEST_F(OverlayFileTest, EachSlotIsWrittenInTurn) {
  MakeOne();
  auto file = Open();
  ASSERT_TRUE(file->BeginUse().ok());
  auto loaded = file->Load();
  for (uint64_t i = 0; i < 5; ++i) {
    loaded->map->SetHere(100 + i, 101 + i);
    ASSERT_TRUE(file->WriteMap(*loaded->map).ok());
    EXPECT_EQ(PageIn(0, i % 2 == 0 ? 1 : 0).sequence, i + 2);
  }
  const OverlayId first = file->header().generation;
  ASSERT_TRUE(file->EndUse(*loaded->map).ok());
  file = absl::UnknownError("closed");
  file = Open();
  ASSERT_TRUE(file->BeginUse().ok());
  EXPECT_NE(file->header().generation, first);
}

TEST_F(OverlayFileTest, OfATornSlotTheOtherCounts) {
  MakeOne();
  auto file = Open();
  ASSERT_TRUE(file->BeginUse().ok());
  auto loaded = file->Load();
  loaded->map->SetHere(6, 7);
  ASSERT_TRUE(file->WriteMap(*loaded->map).ok());
  file = absl::UnknownError("killed");
  Put(PageSlotOffset(0, 1) + 512, std::string(512, 'x'));
  const auto again = Load();
  EXPECT_EQ(again.torn_pages, 1u);
  EXPECT_EQ(again.corrupt_pages, 0u);
  EXPECT_TRUE(again.map->AreHere(5, 6));
  EXPECT_FALSE(again.map->AreHere(6, 7));
  EXPECT_TRUE(again.map->has_changes());  // so that it is whole when the file is closed
  // The very first write of a page, torn: all shows the base.
  Put(PageSlotOffset(0, 0), std::string(8192, 0));
  Put(PageSlotOffset(0, 0) + 1024, "half");
  EXPECT_EQ(Load().corrupt_pages, 0u);
  EXPECT_FALSE(Load().map->AreHere(5, 6));
}

TEST_F(OverlayFileTest, OfAClosedFileATornSlotIsDamage) {
  MakeOne();
  Put(PageSlotOffset(0, 1) + 512, std::string(512, 'x'));
  const auto loaded = Load();
  EXPECT_EQ(loaded.corrupt_pages, 1u);
  EXPECT_EQ(loaded.map->RunAt(0, kBlocksPerMapPage).state, BlockState::kBad);
  EXPECT_EQ(loaded.map->RunAt(0, kBlocksPerMapPage).end, kBlocksPerMapPage);
  EXPECT_TRUE(loaded.map->AreHere(20000, 20001));
}

TEST_F(OverlayFileTest, TwoTornSlotsAreDamage) {
  {
    const OverlayFile in_use = Create();
  }
  Put(PageSlotOffset(0, 0), "torn");
  Put(PageSlotOffset(0, 1), "torn");
  EXPECT_EQ(Load().corrupt_pages, 1u);
}

TEST_F(OverlayFileTest, OfATornHeaderTheOtherCounts) {
  {
    OverlayFile file = Create();
  }
  ASSERT_TRUE(Open()->BeginUse().ok());
  Put(HeaderSlotOffset(1) + 100, "torn");
  auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->header().sequence, 1u);
  Put(HeaderSlotOffset(0) + 100, "torn");
  file = absl::UnknownError("");
  EXPECT_TRUE(absl::IsDataLoss(Open().status()));
}

// Pages that others would have written, or nobody.
TEST_F(OverlayFileTest, PagesThatMakeNoSenseAreDamage) {
  const struct {
    const char* what;
    std::function<void(MapPage&)> change;
    uint64_t number = 0;
  } cases[] = {
      {"another page's", [](MapPage& page) { page.number = 1; }},
      {"a later epoch", [](MapPage& page) { page.epoch = 1; }},
      {"a later period", [](MapPage& page) { page.period = 1; }},
      {"no sequence", [](MapPage& page) { page.sequence = 0; }},
      {"here and zeroes", [](MapPage& page) { page.here[0] = page.zeroes[0] = 1; }},
      {"beyond the end", [](MapPage& page) { page.here[127] = 1; }, 3},
      {"just beyond the end", [](MapPage& page) { page.dirty[16] = 1; }, 3},
      {"far beyond the end", [](MapPage& page) { page.zeroes[0] = 1; }, 4},
  };
  for (const auto& each : cases) {
    std::filesystem::remove(path_);
    {
      const OverlayFile in_use = Create();
    }
    MapPage page;
    page.number = each.number;
    page.sequence = 1;
    PutPage(each.number, 0, page);
    EXPECT_EQ(Load().corrupt_pages, 0u) << each.what;
    each.change(page);
    PutPage(each.number, 0, page);
    EXPECT_EQ(Load().corrupt_pages, 1u) << each.what;
  }
}

TEST_F(OverlayFileTest, TwoSlotsThatAreTheNewestAreDamage) {
  {
    const OverlayFile in_use = Create();
  }
  MapPage page;
  page.sequence = 3;
  PutPage(0, 0, page);
  PutPage(0, 1, page);
  EXPECT_EQ(Load().corrupt_pages, 1u);
}

TEST_F(OverlayFileTest, PagesOfAFormerEpochAreVoid) {
  MakeOne();
  ChangeHeader([](OverlayHeader& header) { header.epoch = 1; });
  const auto loaded = Load();
  EXPECT_EQ(loaded.corrupt_pages, 0u);
  EXPECT_EQ(loaded.map->here_blocks(), 0u);
}

TEST_F(OverlayFileTest, HeadersThatMakeNoSenseAreRefused) {
  const struct {
    const char* fault;
    std::function<void(OverlayHeader&)> change;
  } cases[] = {
      {"version 2", [](OverlayHeader& header) { header.version = 2; }},
      {"features", [](OverlayHeader& header) { header.incompatible = 4; }},
      {"disk size of 0", [](OverlayHeader& header) { header.size = 0; }},
      {"disk size of 513", [](OverlayHeader& header) { header.size = 513; }},
      {"disk size of 18446744073709551104",
       [](OverlayHeader& header) { header.size = ~uint64_t{511}; }},
      {"capacity of 33554432", [](OverlayHeader& header) { header.capacity = kBytesPerMapPage; }},
      {"capacity of 68719476737", [](OverlayHeader& header) { header.capacity += 1; }},
      {"capacity", [](OverlayHeader& header) { header.capacity = ~uint64_t{0}; }},
      {"data offset of 1048576", [](OverlayHeader& header) { header.data_offset = 1 << 20; }},
      {"data offset", [](OverlayHeader& header) { header.data_offset += 512; }},
      {"data offset", [](OverlayHeader& header) { header.data_offset = uint64_t{1} << 63; }},
      {"base of kind 3", [](OverlayHeader& header) { header.base.kind = BaseKind{3}; }},
      {"a base of", [](OverlayHeader& header) { header.base_bytes = kSize + 1; }},
      {"base's path", [](OverlayHeader& header) { header.base_hint.fill('x'); }},
  };
  for (const auto& each : cases) {
    std::filesystem::remove(path_);
    MakeOne();
    ChangeHeader(each.change);
    EXPECT_THAT(Open().status(), IsBadInput(path_, each.fault));
  }
}

TEST_F(OverlayFileTest, FilesThatAreNoneAreRefused) {
  EXPECT_TRUE(absl::IsNotFound(Open().status()));
  std::ofstream(path_) << "short";
  EXPECT_THAT(Open().status(), IsBadInput(path_, "not an overlay"));
  std::ofstream(path_) << std::string(100000, 'x');
  EXPECT_THAT(Open().status(), IsBadInput(path_, "not an overlay"));
  EXPECT_THAT(OverlayFile::Open("/dev/null", OverlayAccess::kRead).status(),
              IsBadInput("/dev/null", "regular file"));
}

TEST_F(OverlayFileTest, ATruncatedFileIsNoticed) {
  MakeOne();
  const auto size = std::filesystem::file_size(path_);
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(size - 512)), 0);
  EXPECT_TRUE(absl::IsDataLoss(Open().status()));
}

TEST_F(OverlayFileTest, AnotherBaseIsRefusedWithWhatDiffers) {
  MakeOne();
  const OverlayHeader header = Open(OverlayAccess::kRead)->header();
  const auto differs = [&](auto change) {
    BaseIdentity base = Base();
    change(base);
    const absl::Status status = CheckBase(header, base, "overlay");
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    return std::string(Message(status));
  };
  EXPECT_TRUE(CheckBase(header, Base(), "overlay").ok());
  EXPECT_THAT(differs([](BaseIdentity& base) { base.size -= 512; }), HasSubstr("104857600"));
  EXPECT_THAT(differs([](BaseIdentity& base) { ++base.modified_ns; }),
              HasSubstr("2023-11-14T22:13:20.000000001+00:00"));
  EXPECT_THAT(differs([](BaseIdentity& base) { base.kind = BaseKind::kOverlay; }),
              HasSubstr("an overlay"));
  EXPECT_THAT(differs([](BaseIdentity& base) { base.id[0] = 1; }), HasSubstr("01000000"));
  EXPECT_THAT(differs([](BaseIdentity& base) { base.generation[0] = 1; }),
              HasSubstr("has been written since"));
}

TEST_F(OverlayFileTest, ACorruptOneIsReadOnly) {
  MakeOne();
  ChangeHeader([](OverlayHeader& header) { header.flags |= OverlayHeader::kCorrupt; });
  EXPECT_TRUE(absl::IsFailedPrecondition(Open()->BeginUse()));
  ChangeHeader([](OverlayHeader& header) { header.flags = OverlayHeader::kCommitting; });
  EXPECT_TRUE(absl::IsFailedPrecondition(Open()->BeginUse()));
}

TEST_F(OverlayFileTest, TheLargestTakesNoSpace) {
  OverlayFile file = Create(uint64_t{4} << 40);
  auto loaded = file.Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  loaded->map->SetHere((uint64_t{1} << 30) - 1, uint64_t{1} << 30);
  ASSERT_TRUE(file.EndUse(*loaded->map).ok());
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 64 << 10);
}

// After a backup: what was about to be overwritten counts as overwritten.
TEST_F(OverlayFileTest, IntentsMakeBlocksDirtyAfterAKill) {
  {
    const OverlayFile in_use = Create();
  }
  ChangeHeader([](OverlayHeader& header) { header.period = 2; });
  MapPage page;
  page.sequence = 1;
  page.period = 2;
  page.here[0] = 0b0111;
  page.here[2] = 0b0001;
  page.dirty[0] = 0b0010;
  page.intents = 0b0001;  // of the first 128 blocks
  page.here[126] = page.zeroes[127] = 1;
  PutPage(0, 0, page);
  const auto loaded = Load();
  for (const uint64_t block : {0u, 1u, 2u}) EXPECT_TRUE(loaded.map->IsDirty(block)) << block;
  EXPECT_TRUE(loaded.map->AreWritable(0, 3));
  EXPECT_FALSE(loaded.map->IsDirty(3));
  EXPECT_FALSE(loaded.map->IsDirty(128));
  EXPECT_FALSE(loaded.map->AreWritable(128, 129));
  EXPECT_FALSE(loaded.map->IsDirty(127 * 64));
  // Bits of the backup before are void.
  ChangeHeader([](OverlayHeader& header) { header.period = 3; });
  EXPECT_FALSE(Load().map->IsDirty(1));
}

TEST(BlockMapTest, RunsAndCountsAreThoseOfAModel) {
  OverlayHeader header = *NewOverlayHeader(kBytesPerMapPage * 2, {}, "", kBytesPerMapPage * 2);
  auto map = *BlockMap::Create(header);
  const uint64_t blocks = 2 * kBlocksPerMapPage;
  std::vector<BlockState> model(blocks, BlockState::kBase);
  uint64_t random = 1;
  const auto next = [&](uint64_t below) {
    random = random * 6364136223846793005 + 1442695040888963407;
    return (random >> 33) % below;
  };
  for (int i = 0; i < 2000; ++i) {
    const uint64_t first = next(blocks);
    const uint64_t end = std::min(blocks, first + 1 + next(i % 10 == 0 ? 3000 : 90));
    const bool here = next(2) == 0;
    here ? map->SetHere(first, end) : map->SetZeroes(first, end);
    std::fill(model.begin() + static_cast<ptrdiff_t>(first),
              model.begin() + static_cast<ptrdiff_t>(end),
              here ? BlockState::kHere : BlockState::kZeroes);
    const uint64_t at = next(blocks);
    const uint64_t limit = std::min(blocks, at + 1 + next(500));
    uint64_t run = at + 1;
    while (run < limit && model[run] == model[at]) ++run;
    const BlockMap::Run found = map->RunAt(at, limit);
    ASSERT_EQ(found.state, model[at]);
    ASSERT_EQ(found.end, run);
    ASSERT_EQ(map->AreHere(at, limit), model[at] == BlockState::kHere && run == limit);
  }
  EXPECT_EQ(map->here_blocks(),
            static_cast<uint64_t>(std::ranges::count(model, BlockState::kHere)));
  EXPECT_EQ(map->zero_blocks(),
            static_cast<uint64_t>(std::ranges::count(model, BlockState::kZeroes)));
  EXPECT_EQ(map->CountHere(0, blocks), map->here_blocks());
}

TEST(BlockMapTest, ALongRunIsLookedAtByWords) {
  const uint64_t blocks = 2 * kBlocksPerMapPage;
  const OverlayHeader header = *NewOverlayHeader(kBytesPerMapPage * 2, {}, "", 0);
  auto map = *BlockMap::Create(header);
  const auto expect_one_run = [&](BlockState state) {
    const uint64_t before = BlockMap::LooksOfThisThread();
    const BlockMap::Run run = map->RunAt(3, blocks - 3);
    EXPECT_EQ(run.state, state);
    EXPECT_EQ(run.end, blocks - 3);
    EXPECT_LE(BlockMap::LooksOfThisThread() - before, blocks / 64 + 1);
  };
  expect_one_run(BlockState::kBase);
  map->SetHere(0, blocks);
  expect_one_run(BlockState::kHere);
  map->SetZeroes(0, blocks);
  expect_one_run(BlockState::kZeroes);
  // One of zeroes ends where a page is bad.
  map->SetBad(1);
  EXPECT_EQ(map->RunAt(3, blocks).end, kBlocksPerMapPage);
  EXPECT_EQ(map->RunAt(kBlocksPerMapPage + 3, blocks).end, blocks);
  map->SetBad(0);
  expect_one_run(BlockState::kBad);
  // No more than it takes to say no.
  const uint64_t before = BlockMap::LooksOfThisThread();
  EXPECT_FALSE(map->AreHere(0, blocks));
  EXPECT_EQ(BlockMap::LooksOfThisThread() - before, 1u);
}

}  // namespace
}  // namespace ringside
