// bzImages, and files that are no kernel at all. ELF has tests of its own: elf_image_test.cc.
#include "boot/kernel_image.h"

#include <cstring>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvm/memory_layout.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {
namespace {

using ::testing::Optional;
using ::testing::SizeIs;

absl::StatusOr<KernelImage> Parse(const Bytes& content) {
  return ParseKernelImage(MakeBootFile(content));
}
absl::StatusOr<KernelImage> Parse(const BzImageBuilder& bz_image) {
  return Parse(bz_image.Build());
}

// ---- Neither format ----

TEST(KernelImageTest, RefusesFilesTooShortForAnyKernel) {
  const struct {
    Bytes content;
    const char* fault;
  } kShort[] = {
      {{'\n'}, "has only 1 bytes"},
      {{0x7f, 'E', 'L'}, "has only 3 bytes"},
      {Bytes(0x1f1 + sizeof(setup_header) - 1, 'x'), "has only 619 bytes"},
  };
  for (const auto& row : kShort) {
    EXPECT_THAT(Parse(row.content).status(), IsBadInput("kernel 'test'", row.fault));
  }
}

TEST(KernelImageTest, RefusesFilesOfNeitherFormat) {
  for (const uint8_t byte : {0x00, 0x20, 0xff}) {
    EXPECT_THAT(Parse(Bytes(8192, byte)).status(),
                IsBadInput("kernel 'test'", "neither a bzImage nor an ELF file"));
  }
}

// ---- Good bzImages ----

TEST(BzImageTest, ParsesWhatTheFileSays) {
  const BzImageBuilder bz_image;
  const auto image = Parse(bz_image);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_STREQ(image->format, "bzImage");
  ASSERT_THAT(image->segments, SizeIs(1));
  EXPECT_EQ(image->segments[0].file_offset, BzImageBuilder::kSetupSize);
  EXPECT_EQ(image->segments[0].file_size, bz_image.payload().size());
  EXPECT_EQ(image->segments[0].guest_address, BzImageBuilder::kLoadAddress);
  EXPECT_EQ(image->segments[0].memory_size, +bz_image.setup.init_size);
  EXPECT_THAT(image->linux_entry, Optional(BzImageBuilder::kLoadAddress + 0x200));
  EXPECT_EQ(image->pvh_entry, std::nullopt);
  EXPECT_EQ(image->initrd_address_max, +bz_image.setup.initrd_addr_max);
  EXPECT_EQ(image->command_line_max, +bz_image.setup.cmdline_size);
  EXPECT_EQ(std::memcmp(&image->setup, &bz_image.setup, sizeof(setup_header)), 0);
}

// boot.rst: "for backwards compatibility, if the setup_sects field contains 0, the real value is
// 4".
TEST(BzImageTest, TakesNoSetupSectorsAsFour) {
  BzImageBuilder bz_image(Pattern(0x1000));
  bz_image.setup.setup_sects = 0;
  bz_image.setup.syssize = 0x40;  // the payload proper begins five sectors into the file
  const auto image = Parse(bz_image);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->segments[0].file_offset, 5u * 512);
  EXPECT_EQ(image->segments[0].file_size, 0x400u);
}

TEST(BzImageTest, TakesMemoryForAllItsBytesWhenInitSizeIsSmaller) {
  BzImageBuilder bz_image;
  bz_image.setup.init_size = 16;
  const auto image = Parse(bz_image);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->segments[0].memory_size, bz_image.payload().size());
}

// Newer kernels have longer headers than this build knows, and a signature behind the payload.
TEST(BzImageTest, IgnoresWhatLiesBehindThePayload) {
  const BzImageBuilder bz_image;
  Bytes content = bz_image.Build();
  content.resize(content.size() + 777, 0xee);
  const auto image = Parse(content);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->segments[0].file_size, bz_image.payload().size());
}

// boot.rst: syssize is "the size of the protected-mode code in units of 16-byte paragraphs", so the
// file of a kernel that ends within a paragraph is up to 15 bytes shorter, as memtest86+ 6.10's is.
TEST(BzImageTest, TakesALastParagraphThatTheFileDoesNotFill) {
  const BzImageBuilder bz_image;
  const Bytes whole = bz_image.Build();
  for (size_t missing = 1; missing < 16; ++missing) {
    const auto image = Parse(Bytes(whole.begin(), whole.end() - static_cast<ptrdiff_t>(missing)));
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->segments[0].file_size, bz_image.payload().size() - missing);
    EXPECT_EQ(image->segments[0].memory_size, +bz_image.setup.init_size);
  }
}

// Its memory is counted in paragraphs all the same, should it ask for no more than its bytes.
TEST(BzImageTest, TakesMemoryForTheWholeOfItsLastParagraph) {
  BzImageBuilder bz_image;
  bz_image.setup.init_size = 0;
  Bytes content = bz_image.Build();
  content.resize(content.size() - 15);
  const auto image = Parse(content);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(image->segments[0].memory_size, bz_image.payload().size());
}

// boot.rst, 64-bit boot protocol: the header ends at 0x202 + the byte at 0x201; what follows is
// code, and the zero page must hold zeroes there.
TEST(BzImageTest, ZeroesWhatLiesBehindTheHeadersOwnLength) {
  BzImageBuilder bz_image;
  bz_image.setup.handover_offset = 0xdeadbeef;
  bz_image.setup.kernel_info_offset = 0xdeadbeef;
  const size_t end = offsetof(setup_header, handover_offset);
  bz_image.SetHeaderLength(static_cast<uint8_t>(0x1f1 + end - 0x202));
  const auto image = Parse(bz_image);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(+image->setup.handover_offset, 0u);
  EXPECT_EQ(+image->setup.kernel_info_offset, 0u);
  EXPECT_EQ(std::memcmp(&image->setup, &bz_image.setup, end), 0) << "the header itself stays";
}

TEST(BzImageTest, KeepsTheWholeHeaderWhenItIsLongerThanKnown) {
  BzImageBuilder bz_image;
  bz_image.setup.kernel_info_offset = 0xdeadbeef;
  bz_image.SetHeaderLength(0xff);
  const auto image = Parse(bz_image);
  ASSERT_TRUE(image.ok()) << image.status();
  EXPECT_EQ(+image->setup.kernel_info_offset, 0xdeadbeef);
}

// ---- Bad bzImages ----

struct BadBzImage {
  const char* name;
  std::function<void(setup_header&)> spoil;
  const char* fault;
};
void PrintTo(const BadBzImage& bad, std::ostream* out) {
  *out << bad.name;
}

class BadBzImageTest : public ::testing::TestWithParam<BadBzImage> {};

TEST_P(BadBzImageTest, IsRefusedWithItsFaultNamed) {
  BzImageBuilder bz_image;
  ASSERT_TRUE(Parse(bz_image).ok());
  GetParam().spoil(bz_image.setup);
  EXPECT_THAT(Parse(bz_image).status(), IsBadInput("kernel 'test'", GetParam().fault));
}

const BadBzImage kBadBzImages[] = {
    {"NoBootFlag", [](auto& setup) { setup.boot_flag = 0x55aa; }, "neither a bzImage nor"},
    {"NoMagic", [](auto& setup) { setup.header = 0x48647253; }, "neither a bzImage nor"},
    {"OldProtocol", [](auto& setup) { setup.version = 0x020b; }, "boot protocol 2.11"},
    {"AncientProtocol", [](auto& setup) { setup.version = 0; }, "boot protocol 0.00"},
    {"ZImage", [](auto& setup) { setup.loadflags = 0xff & ~LOADED_HIGH; }, "is a zImage"},
    {"Kernel32Bit", [](auto& setup) { setup.xloadflags = 0xffff & ~XLF_KERNEL_64; },
     "is a 32-bit kernel"},
    {"PayloadCutOff", [](auto& setup) { setup.syssize += 1; },
     "it has 3072 bytes, its header says 3088"},
    {"PayloadSizeOverflows32Bits", [](auto& setup) { setup.syssize = 0xffffffff; },
     "its header says 68719477744"},
    {"SetupAcrossTheEnd", [](auto& setup) { setup.setup_sects = 255; }, "is truncated"},
    {"NoPayload", [](auto& setup) { setup.syssize = 0; }, "holds no kernel code"},
    {"PayloadEndsAtTheEntry", [](auto& setup) { setup.syssize = 0x20; }, "holds no kernel code"},
    {"WantsAddress0", [](auto& setup) { setup.pref_address = 0; }, "loaded at 0, outside"},
    {"WantsBelow1MiB", [](auto& setup) { setup.pref_address = 0xff000; },
     "loaded at 0xff000, outside"},
    {"WantsThePciWindow", [](auto& setup) { setup.pref_address = kPciWindow; },
     "loaded at 0xc0000000, outside"},
    {"WantsAbove4GiB", [](auto& setup) { setup.pref_address = kMemoryAbove4G; },
     "loaded at 0x100000000, outside"},
    {"AddressOverflows", [](auto& setup) { setup.pref_address = 0xffffffffffffff00; },
     "loaded at 0xffffffffffffff00, outside"},
    {"WantsAcross3GiB",
     [](auto& setup) { setup.pref_address = kLowMemoryEnd - setup.init_size + 1; },
     "loaded at 0xbfffd001, outside"},
    {"WantsMoreThan3GiB", [](auto& setup) { setup.init_size = 0xffffffff; },
     "4294967295 bytes loaded at 0x100000, outside"},
};
INSTANTIATE_TEST_SUITE_P(Header, BadBzImageTest, ::testing::ValuesIn(kBadBzImages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(BzImageTest, IsRefusedWhenCutOffBeforeItsLastParagraph) {
  const Bytes whole = BzImageBuilder().Build();
  ASSERT_TRUE(Parse(whole).ok());
  for (size_t size = 1; size <= whole.size() - 16; ++size) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_THAT(Parse(part).status(), IsBadInput("kernel 'test'", "truncated")) << size << " bytes";
  }
}

// A header so short that it does not reach a field leaves that field zero, not whatever code is
// there.
TEST(BzImageTest, IsRefusedWhenItsHeaderIsTooShortForItsAddress) {
  BzImageBuilder bz_image;
  bz_image.SetHeaderLength(
      static_cast<uint8_t>(0x1f1 + offsetof(setup_header, pref_address) - 0x202));
  EXPECT_THAT(Parse(bz_image).status(), IsBadInput("kernel 'test'", "loaded at 0, outside"));
}

}  // namespace
}  // namespace ringside
