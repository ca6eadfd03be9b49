// What a kernel is told at its entry, read back as the kernel reads it.
#include "boot/boot_info.h"

#include <asm/bootparam.h>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/pages.h"
#include "tests/support/devices/guest_memory.h"
#include "tests/support/vmm/boot_loader.h"

namespace ringside {

bool operator==(const MemoryMapEntry& a, const MemoryMapEntry& b) {
  return a.address == b.address && a.size == b.size && a.type == b.type;
}
void PrintTo(const MemoryMapEntry& entry, std::ostream* out) {
  *out << std::hex << entry.address << "+" << entry.size << " type " << entry.type;
}

namespace {

using ::testing::ElementsAreArray;

constexpr uint32_t kUsable = 1;
constexpr uint32_t kReserved = 2;
constexpr uint64_t kRsdp = 0xe0120;

using Map = std::vector<MemoryMapEntry>;

// What a machine of this size must say.
struct ExpectedMap {
  uint64_t memory;
  Map map;
};
const ExpectedMap kExpectedMaps[] = {
    {kMinMemory,
     {{0, 0x9fc00, kUsable},
      {0x9fc00, 0x60400, kReserved},
      {kMiB, kMiB, kUsable},
      {0xe0000000, kMiB, kReserved}}},
    {512 * kMiB,
     {{0, 0x9fc00, kUsable},
      {0x9fc00, 0x60400, kReserved},
      {kMiB, 511 * kMiB, kUsable},
      {0xe0000000, kMiB, kReserved}}},
    {3 * kGiB,
     {{0, 0x9fc00, kUsable},
      {0x9fc00, 0x60400, kReserved},
      {kMiB, 3 * kGiB - kMiB, kUsable},
      {0xe0000000, kMiB, kReserved}}},
    {3 * kGiB + kPageSize,
     {{0, 0x9fc00, kUsable},
      {0x9fc00, 0x60400, kReserved},
      {kMiB, 3 * kGiB - kMiB, kUsable},
      {0xe0000000, kMiB, kReserved},
      {4 * kGiB, kPageSize, kUsable}}},
    {6 * kGiB,
     {{0, 0x9fc00, kUsable},
      {0x9fc00, 0x60400, kReserved},
      {kMiB, 3 * kGiB - kMiB, kUsable},
      {0xe0000000, kMiB, kReserved},
      {4 * kGiB, 3 * kGiB, kUsable}}},
};

TEST(MemoryMapTest, SaysWhereMemoryIsForEverySizeOfMachine) {
  for (const ExpectedMap& row : kExpectedMaps) {
    EXPECT_THAT(MemoryMap(*MakeMemory(row.memory)), ElementsAreArray(row.map)) << row.memory;
  }
}

// Everything the boot data occupies must be memory that Linux takes over only when it is done.
TEST(MemoryMapTest, CallsNoMemoryUsableThatIsNotThere) {
  for (const ExpectedMap& row : kExpectedMaps) {
    const auto memory = MakeMemory(row.memory);
    uint64_t end_of_last = 0;
    for (const MemoryMapEntry& entry : MemoryMap(*memory)) {
      EXPECT_GE(entry.address, end_of_last) << "ascending, disjoint";
      end_of_last = entry.address + entry.size;
      if (entry.type == kUsable) {
        EXPECT_NE(memory->At(entry.address, entry.size), nullptr);
      }
    }
  }
}

// ---- Linux: Documentation/arch/x86/boot.rst and zero-page.rst ----

// Its fields are packed: EXPECT_EQ(+field, ...) copies what a reference could not hold.
boot_params LoadLinux(const TestLoader& loader, const GuestMemory& memory) {
  std::memset(memory.At(kZeroPage, kPageSize), 0xff, kPageSize);  // all of it is to be written
  const auto entry = loader.Load(memory);
  EXPECT_TRUE(entry.ok()) << entry.status();
  return Peek<boot_params>(memory, kZeroPage);
}

Map E820(const boot_params& params) {
  Map map;
  for (int i = 0; i < params.e820_entries; ++i) {
    const boot_e820_entry& entry = params.e820_table[i];
    map.push_back({entry.addr, entry.size, entry.type});
  }
  return map;
}

TEST(ZeroPageTest, HoldsTheHeaderOfTheFileWithTheLoadersFieldsSet) {
  const BzImageBuilder bz_image;
  TestLoader loader(bz_image.Build());
  loader.acpi_rsdp = kRsdp;
  const auto memory = MakeMemory(4 * kMiB);
  const boot_params params = LoadLinux(loader, *memory);

  boot_params expected = {};
  expected.hdr = bz_image.setup;
  expected.hdr.type_of_loader = 0xff;  // no number assigned
  expected.hdr.cmd_line_ptr = kCommandLine;
  expected.acpi_rsdp_addr = kRsdp;
  expected.e820_entries = params.e820_entries;
  std::memcpy(expected.e820_table, params.e820_table, sizeof expected.e820_table);
  const auto bytes = [](const boot_params& page) {
    Bytes all(sizeof page);
    std::memcpy(all.data(), &page, sizeof page);
    return all;
  };
  EXPECT_EQ(bytes(params), bytes(expected)) << "everything else is zero";
}

TEST(ZeroPageTest, OfAnElfKernelHasTheMagicsAndNoHeader) {
  const auto memory = MakeMemory(4 * kMiB);
  const boot_params params = LoadLinux(TestLoader(SmallElf().Build()), *memory);
  EXPECT_EQ(+params.hdr.boot_flag, 0xaa55);
  EXPECT_EQ(+params.hdr.header, 0x53726448u);
  EXPECT_EQ(params.hdr.type_of_loader, 0xff);
  EXPECT_EQ(+params.hdr.cmd_line_ptr, kCommandLine);
  EXPECT_EQ(+params.hdr.setup_data, 0u);
  EXPECT_EQ(params.sentinel, 0);
}

TEST(ZeroPageTest, HoldsTheMemoryMapAndNothingBehindIt) {
  for (const ExpectedMap& row : kExpectedMaps) {
    const auto memory = MakeMemory(row.memory);
    const boot_params params = LoadLinux(TestLoader(BzImageBuilder().Build()), *memory);
    EXPECT_THAT(E820(params), ElementsAreArray(row.map)) << row.memory;
    EXPECT_EQ(+params.e820_table[params.e820_entries].size, 0u);
  }
}

TEST(ZeroPageTest, SaysThereIsNoInitrdWhereThereIsNone) {
  BzImageBuilder bz_image;
  const auto memory = MakeMemory(4 * kMiB);
  const boot_params params = LoadLinux(TestLoader(bz_image.Build()), *memory);
  EXPECT_EQ(+params.hdr.ramdisk_image, 0u);
  EXPECT_EQ(+params.hdr.ramdisk_size, 0u);
}

// ---- PVH: xen/include/public/arch-x86/hvm/start_info.h ----

struct StartInfo {
  uint32_t magic, version, flags, modules;
  uint64_t modules_address, command_line, rsdp, memory_map;
  uint32_t memory_map_entries, reserved;
};
static_assert(sizeof(StartInfo) == 56);

struct Module {
  uint64_t address, size, command_line, reserved;
};

struct PvhMapEntry {
  uint64_t address, size;
  uint32_t type, reserved;
};

StartInfo LoadPvh(TestLoader& loader, const GuestMemory& memory) {
  std::memset(memory.At(kPvhStartInfo, kPageSize), 0xff, kPageSize);
  const auto entry = loader.Load(memory);
  EXPECT_TRUE(entry.ok()) << entry.status();
  return Peek<StartInfo>(memory, kPvhStartInfo);
}

TEST(StartInfoTest, HoldsWhatPvhAsksFor) {
  TestLoader loader(SmallElfWithPvh().Build());
  loader.acpi_rsdp = kRsdp;
  const auto memory = MakeMemory(4 * kMiB);
  const StartInfo info = LoadPvh(loader, *memory);
  EXPECT_EQ(info.magic, 0x336ec578u);
  EXPECT_EQ(info.version, 1u);
  EXPECT_EQ(info.flags, 0u);
  EXPECT_EQ(info.modules, 0u);
  EXPECT_EQ(info.modules_address, 0u);
  EXPECT_EQ(info.command_line, kCommandLine);
  EXPECT_EQ(info.rsdp, kRsdp);
  EXPECT_EQ(info.reserved, 0u);
}

TEST(StartInfoTest, HoldsTheMemoryMap) {
  for (const ExpectedMap& row : kExpectedMaps) {
    SCOPED_TRACE(row.memory);
    TestLoader loader(SmallElfWithPvh().Build());
    loader.initrd = Pattern(10);
    const auto memory = MakeMemory(row.memory);
    const StartInfo info = LoadPvh(loader, *memory);
    Map map;
    for (uint32_t i = 0; i < info.memory_map_entries; ++i) {
      const auto entry = Peek<PvhMapEntry>(*memory, info.memory_map + i * sizeof(PvhMapEntry));
      map.push_back({entry.address, entry.size, entry.type});
      EXPECT_EQ(entry.reserved, 0u);
    }
    EXPECT_THAT(map, ElementsAreArray(row.map));
  }
}

TEST(StartInfoTest, NamesTheInitrdAsItsOneModule) {
  TestLoader loader(SmallElfWithPvh().Build());
  loader.initrd = Pattern(5000);
  const auto memory = MakeMemory(6 * kGiB);
  const StartInfo info = LoadPvh(loader, *memory);
  ASSERT_EQ(info.modules, 1u);
  const auto module = Peek<Module>(*memory, info.modules_address);
  EXPECT_EQ(module.address, kLowMemoryEnd - 2 * kPageSize);
  EXPECT_EQ(module.size, 5000u);
  EXPECT_EQ(module.command_line, 0u);
  EXPECT_EQ(module.reserved, 0u);
  EXPECT_EQ(PeekBytes(*memory, module.address, module.size), loader.initrd);
}

TEST(StartInfoTest, KeepsItsPartsApartAndInItsPage) {
  TestLoader loader(SmallElfWithPvh().Build());
  loader.initrd = Pattern(5000);
  const auto memory = MakeMemory(6 * kGiB);
  const StartInfo info = LoadPvh(loader, *memory);
  const uint64_t map_end = info.memory_map + info.memory_map_entries * sizeof(PvhMapEntry);
  EXPECT_GE(info.memory_map, kPvhStartInfo + sizeof(StartInfo));
  EXPECT_GE(info.modules_address, map_end);
  EXPECT_LE(info.modules_address + sizeof(Module), kPvhStartInfo + kPageSize);
  EXPECT_EQ(Peek<uint8_t>(*memory, info.modules_address + sizeof(Module)), 0xff);
}

}  // namespace
}  // namespace ringside
