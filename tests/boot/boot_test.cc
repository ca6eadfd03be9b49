// Where LoadKernel puts kernel, initrd and command line, and what it says when something does not
// fit. What the kernel is told is in boot_info_test.cc.
#include "boot/boot.h"

#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <regex>

#include "base/pages.h"
#include "base/size.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/status_matchers.h"
#include "tests/support/vmm/boot_loader.h"
#include "tests/support/vmm/image_builder.h"

namespace ringside {
namespace {

using ::testing::AllOf;
using ::testing::Each;

// ---- The kernel ----

TEST(LoadKernelTest, PutsSegmentsInPlaceAndLeavesTheirRestZero) {
  const ElfBuilder elf = SmallElf();
  Bytes content = elf.Build();
  content.resize(content.size() + 0x2000, 0xee);  // would land in the bss of too long a copy
  const auto memory = MakeMemory(4 * kMiB);
  const auto entry = TestLoader(content).Load(*memory);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(PeekBytes(*memory, kTextAddress, kTextSize), Pattern(kTextSize));
  EXPECT_THAT(PeekBytes(*memory, kTextAddress + kTextSize, kDataAddress - kTextAddress - kTextSize),
              Each(0));
  EXPECT_EQ(PeekBytes(*memory, kDataAddress, kDataFileSize), Pattern(kDataFileSize, 77));
  EXPECT_THAT(PeekBytes(*memory, kDataAddress + kDataFileSize, 0x3000), Each(0));
}

TEST(LoadKernelTest, PutsABzImagesPayloadAtItsPreferredAddress) {
  BzImageBuilder bz_image;
  bz_image.setup.pref_address = 2 * kMiB;
  const auto memory = MakeMemory(4 * kMiB);
  const auto entry = TestLoader(bz_image.Build()).Load(*memory);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(entry->address, 2 * kMiB + 0x200);
  EXPECT_EQ(PeekBytes(*memory, 2 * kMiB, bz_image.payload().size()), bz_image.payload());
  EXPECT_THAT(PeekBytes(*memory, kHighMemoryStart, kMiB), Each(0)) << "not at 1 MiB";
}

TEST(LoadKernelTest, TakesAKernelUpToTheLastByteOfMemory) {
  BzImageBuilder bz_image;
  bz_image.setup.init_size = 3 * kMiB;  // from 1 MiB
  const auto memory = MakeMemory(4 * kMiB);
  EXPECT_TRUE(TestLoader(bz_image.Build()).Load(*memory).ok());
}

// The size that the error's remedy asks for: "... at least 4100K".
uint64_t RemedySize(const absl::Status& status) {
  const std::string message(Message(status));
  std::smatch match;
  if (!std::regex_search(message, match, std::regex("at least ([0-9]+[KMGT]?)$"))) return 0;
  return ParseSize(match[1].str()).value();
}

TEST(LoadKernelTest, KernelLargerThanMemoryIsAnErrorWhoseRemedyHelps) {
  BzImageBuilder bz_image;
  bz_image.setup.init_size = 3 * kMiB + 1;
  const TestLoader loader(bz_image.Build());
  const absl::Status status = loader.Load(*MakeMemory(4 * kMiB)).status();
  EXPECT_THAT(status, AllOf(IsBadInput("kernel 'test'", "from 0x100000 to 0x400001"),
                            IsBadInput("kernel 'test'", "ends at 0x400000")));
  const uint64_t enough = RemedySize(status);
  ASSERT_GT(enough, 4 * kMiB);
  EXPECT_EQ(enough % kPageSize, 0u) << "a machine takes whole pages only";
  EXPECT_TRUE(loader.Load(*MakeMemory(enough)).ok());
}

// ---- How it is entered ----

enum class KernelKind { kBzImage, kElf, kElfWithPvh, kPvhOnly };

Bytes MakeKernel(KernelKind kind) {
  if (kind == KernelKind::kBzImage) return BzImageBuilder().Build();
  ElfBuilder elf = kind == KernelKind::kElf ? SmallElf() : SmallElfWithPvh();
  if (kind == KernelKind::kPvhOnly) elf.header.e_entry = 0;
  return elf.Build();
}

constexpr BootEntry kEnterBzImage = {BootProtocol::kLinux, 0x100200, kZeroPage};
constexpr BootEntry kEnterElf = {BootProtocol::kLinux, kElfEntry, kZeroPage};
constexpr BootEntry kEnterPvh = {BootProtocol::kPvh, kPvhEntry, kPvhStartInfo};

TEST(LoadKernelTest, EntersByTheProtocolAskedForElseByPvhWhereThereIsANote) {
  const struct {
    KernelKind kind;
    BootProtocol asked;
    BootEntry expected;
  } kRows[] = {
      {KernelKind::kBzImage, BootProtocol::kAuto, kEnterBzImage},
      {KernelKind::kBzImage, BootProtocol::kLinux, kEnterBzImage},
      {KernelKind::kElf, BootProtocol::kAuto, kEnterElf},
      {KernelKind::kElf, BootProtocol::kLinux, kEnterElf},
      {KernelKind::kElfWithPvh, BootProtocol::kAuto, kEnterPvh},
      {KernelKind::kElfWithPvh, BootProtocol::kLinux, kEnterElf},
      {KernelKind::kElfWithPvh, BootProtocol::kPvh, kEnterPvh},
      {KernelKind::kPvhOnly, BootProtocol::kAuto, kEnterPvh},
      {KernelKind::kPvhOnly, BootProtocol::kPvh, kEnterPvh},
  };
  for (const auto& row : kRows) {
    SCOPED_TRACE(static_cast<int>(row.kind) * 10 + static_cast<int>(row.asked));
    TestLoader loader(MakeKernel(row.kind));
    loader.protocol = row.asked;
    const auto entry = loader.Load(*MakeMemory(4 * kMiB));
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(entry->protocol, row.expected.protocol);
    EXPECT_EQ(entry->address, row.expected.address);
    EXPECT_EQ(entry->info, row.expected.info);
  }
}

TEST(LoadKernelTest, ProtocolWithoutAnEntryIsAnErrorThatNamesTheOther) {
  const struct {
    KernelKind kind;
    BootProtocol asked;
    const char* fault;
  } kRows[] = {
      {KernelKind::kBzImage, BootProtocol::kPvh, "no PVH entry (bzImage"},
      {KernelKind::kElf, BootProtocol::kPvh, "no PVH entry (ELF"},
      {KernelKind::kPvhOnly, BootProtocol::kLinux, "no 64-bit entry; boot it as 'pvh'"},
  };
  for (const auto& row : kRows) {
    TestLoader loader(MakeKernel(row.kind));
    loader.protocol = row.asked;
    EXPECT_THAT(loader.Load(*MakeMemory(4 * kMiB)).status(),
                IsBadInput("kernel 'test'", row.fault));
  }
}

// ---- The initrd ----

constexpr uint64_t kBzImageEnd = kHighMemoryStart + 0x3000;

class InitrdTest : public ::testing::Test {
 protected:
  // Loads and returns what the zero page says of the initrd: address and size.
  std::pair<uint64_t, uint64_t> Load(const GuestMemory& memory) {
    loader_.kernel = bz_image_.Build();
    const auto entry = loader_.Load(memory);
    EXPECT_TRUE(entry.ok()) << entry.status();
    const auto params = Peek<boot_params>(memory, kZeroPage);
    EXPECT_EQ(+params.ext_ramdisk_image, 0u);
    EXPECT_EQ(+params.ext_ramdisk_size, 0u);
    return {params.hdr.ramdisk_image, params.hdr.ramdisk_size};
  }
  absl::Status LoadError(uint64_t memory_size) {
    loader_.kernel = bz_image_.Build();
    return loader_.Load(*MakeMemory(memory_size)).status();
  }

  BzImageBuilder bz_image_;
  TestLoader loader_{{}};
};

TEST_F(InitrdTest, LiesPageAlignedAtTheTopOfMemory) {
  for (const size_t size : {1, 4095, 4096, 4097, 100000}) {
    SCOPED_TRACE(size);
    loader_.initrd = Pattern(size);
    const auto memory = MakeMemory(4 * kMiB);
    const auto [address, length] = Load(*memory);
    EXPECT_EQ(length, size);
    EXPECT_EQ(address % kPageSize, 0u);
    EXPECT_LE(address + size, 4 * kMiB);
    EXPECT_GT(address + size, 4 * kMiB - kPageSize);
    EXPECT_EQ(PeekBytes(*memory, address, size), loader_.initrd);
  }
}

TEST_F(InitrdTest, LiesBelowTheKernelsLimitAndAsHighAsThatAllows) {
  for (const size_t size : {5000, 8192}) {
    for (const uint32_t last : {0x2ffffeu, 0x2fffffu, 0x300000u, 0x300ffeu, 0x300fffu}) {
      SCOPED_TRACE(::testing::Message() << size << " bytes, up to " << last);
      loader_.initrd = Pattern(size);
      bz_image_.setup.initrd_addr_max = last;
      const auto memory = MakeMemory(8 * kMiB);
      const auto [address, length] = Load(*memory);
      EXPECT_EQ(length, size);
      EXPECT_LE(address + length - 1, last);
      EXPECT_GT(address + length - 1 + kPageSize, last);
      EXPECT_EQ(PeekBytes(*memory, address, length), loader_.initrd);
    }
  }
}

TEST_F(InitrdTest, LiesInLowMemoryHoweverHighTheKernelsLimit) {
  bz_image_.setup.initrd_addr_max = 0xffffffff;
  loader_.initrd = Pattern(5000);
  const auto memory = MakeMemory(6 * kGiB);
  const auto [address, length] = Load(*memory);
  EXPECT_EQ(address, kLowMemoryEnd - 2 * kPageSize);
  EXPECT_EQ(PeekBytes(*memory, address, length), loader_.initrd);
}

TEST_F(InitrdTest, MayFillAllThatTheKernelLeaves) {
  loader_.initrd = Pattern(4 * kMiB - kBzImageEnd);
  const auto memory = MakeMemory(4 * kMiB);
  const auto [address, length] = Load(*memory);
  EXPECT_EQ(address, kBzImageEnd);
  EXPECT_EQ(length, loader_.initrd.size());
  EXPECT_EQ(PeekBytes(*memory, kHighMemoryStart, bz_image_.payload().size()), bz_image_.payload());
}

TEST_F(InitrdTest, OneByteMoreIsAnErrorWhoseRemedyHelps) {
  loader_.initrd = Pattern(4 * kMiB - kBzImageEnd + 1);
  const absl::Status status = LoadError(4 * kMiB);
  EXPECT_THAT(status, AllOf(IsBadInput("initrd 'test'", "of 3133441 bytes"),
                            IsBadInput("end at 0x103000", "and 0x400000")));
  const uint64_t enough = RemedySize(status);
  ASSERT_GT(enough, 4 * kMiB);
  EXPECT_EQ(enough % kPageSize, 0u) << "a machine takes whole pages only";
  Load(*MakeMemory(enough));
}

TEST_F(InitrdTest, KernelsUnalignedEndIsNotOverwritten) {
  bz_image_.setup.init_size = 0x2001;
  loader_.initrd = Pattern(4 * kMiB - kBzImageEnd + 1);  // fits by bytes, not by pages
  EXPECT_THAT(LoadError(4 * kMiB), IsBadInput("initrd 'test'", "end at 0x102001"));
}

TEST_F(InitrdTest, MoreThanTheKernelsLimitAllowsDoesNotAskForMemory) {
  loader_.initrd = Pattern(0x100000);
  for (const uint32_t last : {0u, 0xfffffu, 0x1fffffu}) {
    bz_image_.setup.initrd_addr_max = last;
    EXPECT_THAT(LoadError(64 * kMiB), IsBadInput("initrd 'test'", "give a smaller one")) << last;
  }
}

TEST_F(InitrdTest, ElfKernelsTakeItBelowThreeGibibytes) {
  loader_.kernel = SmallElf().Build();
  loader_.initrd = Pattern(5000);
  const auto memory = MakeMemory(6 * kGiB);
  ASSERT_TRUE(loader_.Load(*memory).ok());
  EXPECT_EQ(+Peek<boot_params>(*memory, kZeroPage).hdr.ramdisk_image,
            kLowMemoryEnd - 2 * kPageSize);
}

// ---- The command line ----

TEST(CommandLineTest, IsWrittenWithItsZero) {
  TestLoader loader(BzImageBuilder().Build());
  loader.command_line = "console=ttyS0 panic=-1";
  const auto memory = MakeMemory(4 * kMiB);
  std::memset(memory->At(kCommandLine, 64), 'x', 64);
  ASSERT_TRUE(loader.Load(*memory).ok());
  EXPECT_STREQ(reinterpret_cast<const char*>(memory->At(kCommandLine, 64)),
               loader.command_line.c_str());
}

TEST(CommandLineTest, MayBeAsLongAsTheKernelTakesAndNoLonger) {
  const auto with_limit = [](uint32_t limit) {
    BzImageBuilder bz_image;
    bz_image.setup.cmdline_size = limit;
    return bz_image.Build();
  };
  constexpr uint32_t kRoom = kConventionalEnd - kCommandLine - 1;
  const struct {
    Bytes kernel;
    size_t limit;
  } kRows[] = {
      {with_limit(0), 0},
      {with_limit(255), 255},
      {with_limit(kRoom), kRoom},
      {with_limit(0xffffffff), kRoom},  // it takes more than there is room for
      {SmallElf().Build(), 2047},
  };
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.limit);
    const auto memory = MakeMemory(4 * kMiB);
    std::memset(memory->At(kCommandLine, kHighMemoryStart - kCommandLine), 0xff,
                kHighMemoryStart - kCommandLine);
    TestLoader loader(row.kernel);
    loader.command_line = std::string(row.limit, 'a');
    ASSERT_TRUE(loader.Load(*memory).ok());
    EXPECT_THAT(PeekBytes(*memory, kCommandLine, row.limit), Each('a'));
    EXPECT_EQ(Peek<char>(*memory, kCommandLine + row.limit), '\0');
    EXPECT_EQ(Peek<uint8_t>(*memory, kCommandLine + row.limit + 1), 0xff);

    loader.command_line += 'a';
    const absl::Status status = loader.Load(*memory).status();
    EXPECT_THAT(status, IsBadInput("kernel 'test'", "takes at most " + std::to_string(row.limit)));
    EXPECT_THAT(status, IsBadInput("command line has", std::to_string(row.limit + 1) + " bytes"));
  }
}

}  // namespace
}  // namespace ringside
