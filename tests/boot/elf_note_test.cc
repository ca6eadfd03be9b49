// The PVH entry: which notes give one. What is malformed gives none, as in Linux.
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "boot/kernel_image.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {
namespace {

using ::testing::Optional;

absl::StatusOr<KernelImage> ParseWithNotes(const Bytes& notes, uint64_t alignment = 4) {
  ElfBuilder elf = SmallElf();
  elf.AddNotes(notes, alignment);
  return ParseKernelImage(MakeBootFile(elf.Build()));
}

Bytes Join(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Names of every length modulo the alignment.
ElfNote OtherNote(size_t name_size, size_t description_size) {
  return {.type = 1, .name = Pattern(name_size), .description = Pattern(description_size)};
}

TEST(ElfNoteTest, GivesThePvhEntryBesideThePlainOne) {
  const auto image = ParseWithNotes(Encode(PvhNote(kPvhEntry)));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->pvh_entry, Optional(kPvhEntry));
  EXPECT_THAT(image->linux_entry, Optional(kElfEntry));
}

TEST(ElfNoteTest, MakesAFileWithoutAPlainEntryBootable) {
  ElfBuilder elf = SmallElfWithPvh();
  elf.header.e_entry = 0xffffffff80000000;
  const auto image = ParseKernelImage(MakeBootFile(elf.Build()));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->pvh_entry, Optional(kPvhEntry));
  EXPECT_EQ(image->linux_entry, std::nullopt);
}

TEST(ElfNoteTest, IsFoundBehindNotesOfAnySize) {
  for (size_t name = 0; name <= 9; ++name) {
    for (size_t description = 0; description <= 9; ++description) {
      const auto image =
          ParseWithNotes(Join({Encode(OtherNote(name, description)), Encode(PvhNote(kPvhEntry))}));
      ASSERT_TRUE(image.ok()) << image.status();
      EXPECT_THAT(image->pvh_entry, Optional(kPvhEntry)) << name << ", " << description;
    }
  }
}

// As linkers lay out sections of notes aligned to 8: the description at a multiple of 8 too.
TEST(ElfNoteTest, IsFoundAmongNotesAlignedToEight) {
  ElfNote pvh = PvhNote(kPvhEntry);
  pvh.alignment = 8;
  for (size_t name = 0; name <= 9; ++name) {
    ElfNote other = OtherNote(name, 5);
    other.alignment = 8;
    const auto image = ParseWithNotes(Join({Encode(other), Encode(pvh)}), 8);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_THAT(image->pvh_entry, Optional(kPvhEntry)) << name;
  }
}

TEST(ElfNoteTest, IsFoundInASecondNoteSegmentAndTheFirstCounts) {
  ElfBuilder elf = SmallElf();
  elf.AddNotes(Encode(OtherNote(4, 4)));
  elf.AddNotes(Encode(PvhNote(kPvhEntry)));
  elf.AddNotes(Encode(PvhNote(kPvhEntry + 1)));
  const auto image = ParseKernelImage(MakeBootFile(elf.Build()));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->pvh_entry, Optional(kPvhEntry));
}

TEST(ElfNoteTest, MayHoldItsEntryInEightBytes) {
  ElfNote note = PvhNote(kPvhEntry);
  note.description.resize(8);
  const auto image = ParseWithNotes(Encode(note));
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->pvh_entry, Optional(kPvhEntry));
}

// ---- Notes that give no entry ----

struct NoPvhNote {
  const char* name;
  std::function<Bytes()> make;
};
void PrintTo(const NoPvhNote& note, std::ostream* out) {
  *out << note.name;
}

Bytes SetWord(Bytes notes, size_t offset, uint32_t value) {
  std::memcpy(&notes[offset], &value, sizeof value);
  return notes;
}
Bytes FirstBytes(size_t size) {
  Bytes notes = Encode(PvhNote(kPvhEntry));
  notes.resize(size);
  return notes;
}
Bytes Changed(const std::function<void(ElfNote&)>& change) {
  ElfNote note = PvhNote(kPvhEntry);
  change(note);
  return Encode(note);
}
Bytes Good() {
  return Encode(PvhNote(kPvhEntry));
}

constexpr size_t kNameSize = offsetof(Elf64_Nhdr, n_namesz);
constexpr size_t kDescriptionSize = offsetof(Elf64_Nhdr, n_descsz);

const NoPvhNote kNoPvhNotes[] = {
    {"Empty", [] { return Bytes(); }},
    {"HeaderCutOff", [] { return FirstBytes(sizeof(Elf64_Nhdr) - 1); }},
    {"NameMissing", [] { return FirstBytes(sizeof(Elf64_Nhdr)); }},
    {"NameCutOff", [] { return FirstBytes(sizeof(Elf64_Nhdr) + 3); }},
    {"DescriptionMissing", [] { return FirstBytes(sizeof(Elf64_Nhdr) + 4); }},
    {"DescriptionCutOff", [] { return FirstBytes(sizeof(Elf64_Nhdr) + 7); }},
    {"NameOneTooLarge", [] { return SetWord(Good(), kNameSize, 9); }},
    {"NameSizeOverflows", [] { return SetWord(Good(), kNameSize, 0xffffffff); }},
    {"NameSizeOverflowsWhenRounded", [] { return SetWord(Good(), kNameSize, 0xfffffffd); }},
    {"DescriptionOneTooLarge", [] { return SetWord(Good(), kDescriptionSize, 5); }},
    {"DescriptionSizeOverflows", [] { return SetWord(Good(), kDescriptionSize, 0xffffffff); }},
    {"FollowsAMalformedNote",
     [] { return Join({SetWord(Good(), kDescriptionSize, 0xfffffff0), Good()}); }},
    {"DescriptionTooShort", [] { return Changed([](auto& note) { note.description.resize(3); }); }},
    {"NoDescription", [] { return Changed([](auto& note) { note.description.clear(); }); }},
    {"OtherType", [] { return Changed([](auto& note) { note.type = 17; }); }},
    {"OtherName", [] { return Changed([](auto& note) { note.name = {'G', 'N', 'U', 0}; }); }},
    {"NameWithoutItsZero", [] { return Changed([](auto& note) { note.name = {'X', 'e', 'n'}; }); }},
    {"LongerName", [] { return Changed([](auto& note) { note.name = {'X', 'e', 'n', 0, 0}; }); }},
};

class NoPvhNoteTest : public ::testing::TestWithParam<NoPvhNote> {};

TEST_P(NoPvhNoteTest, LeavesThePlainEntry) {
  const auto image = ParseWithNotes(GetParam().make());
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->pvh_entry, std::nullopt);
  EXPECT_THAT(image->linux_entry, Optional(kElfEntry));
}

INSTANTIATE_TEST_SUITE_P(Note, NoPvhNoteTest, ::testing::ValuesIn(kNoPvhNotes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ringside
