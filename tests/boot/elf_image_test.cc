// ELF kernels: what is parsed is what the file says, and each way to be wrong has its own error.
#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "boot/kernel_image.h"
#include "kvm/memory_layout.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {
namespace {

using ::testing::Optional;
using ::testing::SizeIs;

constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

absl::StatusOr<KernelImage> Parse(const Bytes& content) {
  return ParseKernelImage(MakeBootFile(content));
}
absl::StatusOr<KernelImage> Parse(const ElfBuilder& elf) {
  return Parse(elf.Build());
}

// ---- Good files ----

TEST(ElfImageTest, ParsesWhatTheFileSays) {
  const auto image = Parse(SmallElf());
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_STREQ(image->format, "ELF");
  ASSERT_THAT(image->segments, SizeIs(2));

  const KernelSegment& text = image->segments[0];
  EXPECT_EQ(text.file_offset, ElfBuilder::kContent);
  EXPECT_EQ(text.file_size, kTextSize);
  EXPECT_EQ(text.guest_address, kTextAddress);
  EXPECT_EQ(text.memory_size, kTextSize);

  const KernelSegment& data = image->segments[1];
  EXPECT_EQ(data.file_offset, ElfBuilder::kContent + kTextSize);
  EXPECT_EQ(data.file_size, kDataFileSize);
  EXPECT_EQ(data.guest_address, kDataAddress);
  EXPECT_EQ(data.memory_size, kDataMemorySize);

  EXPECT_THAT(image->linux_entry, Optional(kElfEntry));
  EXPECT_EQ(image->pvh_entry, std::nullopt);
  EXPECT_EQ(image->initrd_address_max, kLowMemoryEnd - 1);
  EXPECT_EQ(image->command_line_max, 2047u);
  const setup_header none = {};
  EXPECT_EQ(std::memcmp(&image->setup, &none, sizeof none), 0);
}

TEST(ElfImageTest, SortsSegmentsByAddress) {
  ElfBuilder elf = SmallElf();
  std::swap(elf.program_headers[0], elf.program_headers[1]);
  const auto image = Parse(elf);
  ASSERT_TRUE(image.ok()) << image.status();
  ASSERT_THAT(image->segments, SizeIs(2));
  EXPECT_EQ(image->segments[0].guest_address, kTextAddress);
  EXPECT_EQ(image->segments[0].file_offset, ElfBuilder::kContent);
  EXPECT_EQ(image->segments[1].guest_address, kDataAddress);
}

TEST(ElfImageTest, TakesSegmentsThatTouch) {
  ElfBuilder elf = SmallElf();
  elf.program_headers[0].p_memsz = kDataAddress - kTextAddress;
  EXPECT_TRUE(Parse(elf).ok());
}

TEST(ElfImageTest, TakesPositionIndependentExecutables) {
  ElfBuilder elf = SmallElf();
  elf.header.e_type = ET_DYN;
  EXPECT_TRUE(Parse(elf).ok());
}

TEST(ElfImageTest, SkipsEmptySegmentsAndOtherHeaders) {
  ElfBuilder elf = SmallElf();
  elf.AddSegment(0, {}, 0);
  elf.AddSegment(0, {}, 0x1000).p_type = PT_GNU_STACK;
  const auto image = Parse(elf);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->segments, SizeIs(2));
}

TEST(ElfImageTest, TakesSegmentsFromOneMebibyteToThreeGibibytes) {
  ElfBuilder elf;
  elf.AddSegment(kHighMemoryStart, Pattern(16), kLowMemoryEnd - kHighMemoryStart);
  elf.header.e_entry = kLowMemoryEnd - 1;
  const auto image = Parse(elf);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_THAT(image->linux_entry, Optional(kLowMemoryEnd - 1));
}

// ---- Bad files ----

struct BadElf {
  const char* name;
  std::function<void(ElfBuilder&)> spoil;
  const char* fault;
};
void PrintTo(const BadElf& bad, std::ostream* out) {
  *out << bad.name;
}

class BadElfTest : public ::testing::TestWithParam<BadElf> {};

TEST_P(BadElfTest, IsRefusedWithItsFaultNamed) {
  ElfBuilder elf = SmallElfWithPvh();
  ASSERT_TRUE(Parse(elf).ok());
  GetParam().spoil(elf);
  EXPECT_THAT(Parse(elf).status(), IsBadInput("kernel 'test'", GetParam().fault));
}

const BadElf kBadHeaders[] = {
    {"Class32", [](auto& elf) { elf.header.e_ident[EI_CLASS] = ELFCLASS32; }, "(class 1,"},
    {"BigEndian", [](auto& elf) { elf.header.e_ident[EI_DATA] = ELFDATA2MSB; }, "byte order 2"},
    {"I386", [](auto& elf) { elf.header.e_machine = EM_386; }, "machine 3)"},
    {"Aarch64", [](auto& elf) { elf.header.e_machine = EM_AARCH64; }, "machine 183)"},
    {"Relocatable", [](auto& elf) { elf.header.e_type = ET_REL; }, "of type 1, not an executable"},
    {"CoreDump", [](auto& elf) { elf.header.e_type = ET_CORE; }, "of type 4, not an executable"},
    {"NoProgramHeaders", [](auto& elf) { elf.header.e_phnum = 0; }, "0 program headers of 56"},
    {"MoreProgramHeadersThanTaken", [](auto& elf) { elf.header.e_phnum = 129; },
     "129 program headers of 56"},
    {"ManyProgramHeaders", [](auto& elf) { elf.header.e_phnum = 0xffff; }, "65535 program headers"},
    {"ProgramHeadersOf32Bit", [](auto& elf) { elf.header.e_phentsize = 32; }, "of 32 bytes"},
    {"ProgramHeadersOfNoSize", [](auto& elf) { elf.header.e_phentsize = 0; }, "of 0 bytes"},
    {"ProgramHeadersAcrossTheEnd",
     [](auto& elf) { elf.header.e_phoff = elf.Build().size() - 3 * 56 + 1; },
     "program headers lie behind its end"},
    {"ProgramHeadersBehindTheEnd", [](auto& elf) { elf.header.e_phoff = 0x100000; },
     "program headers lie behind its end"},
    {"ProgramHeaderOffsetOverflows", [](auto& elf) { elf.header.e_phoff = kHuge - 55; },
     "program headers lie behind its end"},
};
const BadElf kBadSegments[] = {
    {"None",
     [](auto& elf) { elf.program_headers[0].p_type = elf.program_headers[1].p_type = PT_NULL; },
     "no segment to load"},
    {"OnlyEmptyOnes",
     [](auto& elf) {
       for (Elf64_Phdr& header : elf.program_headers) header.p_filesz = header.p_memsz = 0;
     },
     "no segment to load"},
    {"AcrossTheEndOfTheFile", [](auto& elf) { elf.program_headers[1].p_offset += 0x80; },
     "segment at 0x102000 lies behind its end"},
    {"BehindTheEndOfTheFile", [](auto& elf) { elf.program_headers[1].p_offset = 0x100000; },
     "segment at 0x102000 lies behind its end"},
    {"OffsetOverflows", [](auto& elf) { elf.program_headers[1].p_offset = kHuge; },
     "segment at 0x102000 lies behind its end"},
    {"FileSizeOverflows",
     [](auto& elf) { elf.program_headers[1].p_filesz = elf.program_headers[1].p_memsz = kHuge; },
     "segment at 0x102000 lies behind its end"},
    {"MoreInFileThanInMemory",
     [](auto& elf) { elf.program_headers[1].p_memsz = kDataFileSize - 1; },
     "segment at 0x102000 with more bytes in the file than in memory"},
    {"InFileButNotInMemory", [](auto& elf) { elf.program_headers[1].p_memsz = 0; },
     "segment at 0x102000 with more bytes in the file than in memory"},
    {"At0", [](auto& elf) { elf.program_headers[0].p_paddr = 0; }, "at 0, outside"},
    {"JustBelow1MiB", [](auto& elf) { elf.program_headers[0].p_paddr = 0xfffff; },
     "at 0xfffff, outside"},
    {"Across3GiB",
     [](auto& elf) { elf.program_headers[1].p_paddr = kLowMemoryEnd - kDataMemorySize + 1; },
     "at 0xbfffef01, outside"},
    {"InThePciWindow", [](auto& elf) { elf.program_headers[1].p_paddr = kPciWindow; },
     "at 0xc0000000, outside"},
    {"Above4GiB", [](auto& elf) { elf.program_headers[1].p_paddr = kMemoryAbove4G; },
     "at 0x100000000, outside"},
    {"AddressOverflows", [](auto& elf) { elf.program_headers[1].p_paddr = kHuge - 16; },
     "at 0xffffffffffffffef, outside"},
    {"MemorySizeOverflows", [](auto& elf) { elf.program_headers[1].p_memsz = kHuge; },
     "of 18446744073709551615 bytes at 0x102000, outside"},
    {"OverlapByAByte",
     [](auto& elf) { elf.program_headers[0].p_memsz = kDataAddress - kTextAddress + 1; },
     "overlapping segments at 0x100000 and 0x102000"},
    {"OneInsideAnother",
     [](auto& elf) { elf.program_headers[1].p_memsz = 0x100000, elf.AddSegment(0x110000, {1}, 1); },
     "overlapping segments at 0x102000 and 0x110000"},
    {"TwoAtOneAddress", [](auto& elf) { elf.program_headers[1].p_paddr = kTextAddress; },
     "overlapping segments at 0x100000 and 0x100000"},
};
const BadElf kBadEntries[] = {
    {"PvhBelowSegments", [](auto& elf) { elf = SmallElfWithPvh(kTextAddress - 1); },
     "PVH entry 0xfffff outside"},
    {"PvhAt0", [](auto& elf) { elf = SmallElfWithPvh(0); }, "PVH entry 0 outside"},
    {"PvhBetweenSegments", [](auto& elf) { elf = SmallElfWithPvh(kTextAddress + kTextSize); },
     "PVH entry 0x100300 outside"},
    {"PvhBehindSegments", [](auto& elf) { elf = SmallElfWithPvh(kDataAddress + kDataMemorySize); },
     "PVH entry 0x103100 outside"},
    {"LinuxBelowSegments",
     [](auto& elf) { elf = SmallElf(), elf.header.e_entry = kTextAddress - 1; },
     "entry 0xfffff outside"},
    {"LinuxBetweenSegments",
     [](auto& elf) { elf = SmallElf(), elf.header.e_entry = kTextAddress + kTextSize; },
     "entry 0x100300 outside"},
    {"LinuxBehindSegments",
     [](auto& elf) { elf = SmallElf(), elf.header.e_entry = kDataAddress + kDataMemorySize; },
     "entry 0x103100 outside"},
    {"LinuxAtTheTopOfAddresses", [](auto& elf) { elf = SmallElf(), elf.header.e_entry = kHuge; },
     "entry 0xffffffffffffffff outside"},
};
const BadElf kBadNoteSegments[] = {
    {"AcrossTheEndOfTheFile", [](auto& elf) { elf.program_headers[2].p_offset += 1; }, "notes"},
    {"OffsetOverflows", [](auto& elf) { elf.program_headers[2].p_offset = kHuge; }, "notes"},
    {"SizeOverflows", [](auto& elf) { elf.program_headers[2].p_filesz = kHuge; }, "notes"},
    {"LargerThanAnyNotes", [](auto& elf) { elf = SmallElf(), elf.AddNotes(Bytes(64 * 1024 + 1)); },
     "notes are larger than 65536 bytes"},
};

std::string NameOf(const ::testing::TestParamInfo<BadElf>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Header, BadElfTest, ::testing::ValuesIn(kBadHeaders), NameOf);
INSTANTIATE_TEST_SUITE_P(Segment, BadElfTest, ::testing::ValuesIn(kBadSegments), NameOf);
INSTANTIATE_TEST_SUITE_P(Entry, BadElfTest, ::testing::ValuesIn(kBadEntries), NameOf);
INSTANTIATE_TEST_SUITE_P(NoteSegment, BadElfTest, ::testing::ValuesIn(kBadNoteSegments), NameOf);

TEST(ElfImageTest, IsRefusedWhenCutOffAnywhere) {
  const Bytes whole = SmallElfWithPvh().Build();
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t size = 1; size < whole.size(); ++size) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    const char* fault = size < SELFMAG ? "truncated" : "is truncated";
    ASSERT_THAT(Parse(part).status(), IsBadInput("kernel 'test'", fault)) << size << " bytes";
  }
}

TEST(ElfImageTest, ErrorOfACutOffFileSaysWhatIsMissing) {
  const Bytes whole = SmallElfWithPvh().Build();
  const struct {
    size_t size;
    const char* fault;
  } kCuts[] = {
      {SELFMAG, "4 bytes do not hold an ELF header"},
      {sizeof(Elf64_Ehdr) - 1, "63 bytes do not hold an ELF header"},
      {sizeof(Elf64_Ehdr), "program headers lie behind its end"},
      {sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr) - 1, "program headers lie behind its end"},
      {sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr), "segment at 0x100000 lies behind its end"},
      {ElfBuilder::kContent + kTextSize - 1, "segment at 0x100000 lies behind its end"},
      {ElfBuilder::kContent + kTextSize, "segment at 0x102000 lies behind its end"},
      {ElfBuilder::kContent + kTextSize + kDataFileSize, "notes"},
      {whole.size() - 1, "notes"},
  };
  for (const auto& cut : kCuts) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(cut.size));
    EXPECT_THAT(Parse(part).status(), IsBadInput("kernel 'test'", cut.fault)) << cut.size;
  }
}

}  // namespace
}  // namespace ringside
