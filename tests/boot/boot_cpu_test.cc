// The boot tables as a CPU reads them (Intel SDM volume 3: paging section 4.5, descriptors 3.4.5).
#include "boot/boot_cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <set>

#include "tests/support/devices/guest_memory.h"

namespace ringside {
namespace {

constexpr uint64_t kPresent = 1 << 0;
constexpr uint64_t kWritable = 1 << 1;
constexpr uint64_t kLarge = 1 << 7;
constexpr uint64_t kAddressMask = 0x000ffffffffff000;

struct Translation {
  uint64_t physical;
  bool writable;
};

// What a CPU with CR3 = kBootPageTables makes of a linear address; nothing on a page fault.
std::optional<Translation> Walk(const GuestMemory& memory, uint64_t linear) {
  uint64_t table = kBootPageTables;
  bool writable = true;
  for (int shift = 39; shift >= 12; shift -= 9) {
    const auto entry = Peek<uint64_t>(memory, table + (linear >> shift & 511) * 8);
    if ((entry & kPresent) == 0) return std::nullopt;
    writable = writable && (entry & kWritable) != 0;
    const bool last = shift == 12 || (shift <= 30 && (entry & kLarge) != 0);
    if (last) {
      const uint64_t offset_mask = (uint64_t{1} << shift) - 1;
      return Translation{(entry & kAddressMask & ~offset_mask) | (linear & offset_mask), writable};
    }
    table = entry & kAddressMask;
  }
  return std::nullopt;
}

class BootTablesTest : public ::testing::Test {
 protected:
  BootTablesTest() { WriteBootTables(*memory_); }
  const std::unique_ptr<GuestMemory> memory_ = MakeMemory(kMinMemory);
};

TEST_F(BootTablesTest, MapTheFirstFourGibibytesToThemselvesWritable) {
  std::set<uint64_t> addresses = {0,     1,          0xfff,      kZeroPage,  kLocalApic, kIoApic,
                                  kEcam, 0x7fffffff, 0x80000000, 0xffffffff, kMiB,       3 * kGiB};
  for (uint64_t page = 0; page < 4 * kGiB; page += 2 * kMiB) {
    addresses.insert({page, page + 0x12345, page + 2 * kMiB - 1});
  }
  for (const uint64_t address : addresses) {
    const auto translation = Walk(*memory_, address);
    ASSERT_TRUE(translation.has_value()) << std::hex << address;
    ASSERT_EQ(translation->physical, address) << std::hex << address;
    ASSERT_TRUE(translation->writable) << std::hex << address;
  }
}

TEST_F(BootTablesTest, MapNothingElse) {
  for (const uint64_t address : {4 * kGiB, 5 * kGiB, 512 * kGiB - 1, 512 * kGiB,
                                 uint64_t{0xffff800000000000}, uint64_t{0xffffffff80000000}}) {
    EXPECT_FALSE(Walk(*memory_, address).has_value()) << std::hex << address;
  }
}

TEST_F(BootTablesTest, StayClearOfWhatElseIsInLowMemory) {
  const auto fresh = MakeMemory(kMinMemory);
  const struct {
    uint64_t start, end;
  } kOthers[] = {{kPvhStartInfo, kBootPageTables},  // start info, zero page, stack
                 {kCommandLine, kMinMemory}};       // command line, ACPI, kernel
  for (const auto& other : kOthers) {
    EXPECT_EQ(PeekBytes(*memory_, other.start, other.end - other.start),
              PeekBytes(*fresh, other.start, other.end - other.start));
  }
}

struct Descriptor {
  explicit Descriptor(uint64_t raw)
      : base((raw >> 16 & 0xffffff) | (raw >> 56 << 24)),
        limit((raw & 0xffff) | (raw >> 32 & 0xf0000)),
        type(raw >> 40 & 0xf),
        system((raw >> 44 & 1) == 0),
        privilege(raw >> 45 & 3),
        present((raw >> 47 & 1) != 0),
        long_mode((raw >> 53 & 1) != 0),
        size_32((raw >> 54 & 1) != 0),
        pages((raw >> 55 & 1) != 0) {}
  uint64_t base, limit, type;
  bool system;
  uint64_t privilege;
  bool present, long_mode, size_32, pages;
};

Descriptor GdtEntry(const GuestMemory& memory, uint64_t selector) {
  return Descriptor(Peek<uint64_t>(memory, kBootGdt + selector));
}

// boot.rst: __BOOT_CS (0x10) is flat, execute/read; __BOOT_DS (0x18) flat, read/write.
TEST_F(BootTablesTest, HaveAFlat64BitCodeSegmentAtBootCs) {
  const Descriptor code = GdtEntry(*memory_, 0x10);
  EXPECT_EQ(code.base, 0u);
  EXPECT_EQ(code.limit, 0xfffffu);
  EXPECT_TRUE(code.pages);
  EXPECT_TRUE(code.present);
  EXPECT_FALSE(code.system);
  EXPECT_EQ(code.privilege, 0u);
  EXPECT_EQ(code.type | 1, 0xbu) << "execute, read; accessed or not";
  EXPECT_TRUE(code.long_mode);
  EXPECT_FALSE(code.size_32) << "L and D together are reserved";
}

TEST_F(BootTablesTest, HaveAFlatDataSegmentAtBootDs) {
  const Descriptor data = GdtEntry(*memory_, 0x18);
  EXPECT_EQ(data.base, 0u);
  EXPECT_EQ(data.limit, 0xfffffu);
  EXPECT_TRUE(data.pages);
  EXPECT_TRUE(data.present);
  EXPECT_FALSE(data.system);
  EXPECT_EQ(data.privilege, 0u);
  EXPECT_EQ(data.type | 1, 0x3u) << "read, write; accessed or not";
  EXPECT_FALSE(data.long_mode);
  EXPECT_TRUE(data.size_32);
}

TEST_F(BootTablesTest, HaveATaskSegmentBehindThem) {
  const Descriptor task = GdtEntry(*memory_, 0x20);
  EXPECT_TRUE(task.system);
  EXPECT_TRUE(task.present);
  EXPECT_EQ(task.type, 0xbu) << "busy 64-bit TSS";
  EXPECT_EQ(task.base, 0u);
  EXPECT_EQ(task.limit, 0x67u);
  EXPECT_EQ(Peek<uint64_t>(*memory_, kBootGdt + 0x28), 0u) << "upper half of its base";
}

TEST_F(BootTablesTest, HaveANullDescriptorFirst) {
  EXPECT_EQ(Peek<uint64_t>(*memory_, kBootGdt), 0u);
}

}  // namespace
}  // namespace ringside
