#include "devices/guest_memory.h"

#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "absl/strings/str_format.h"
#include "base/huge_pages.h"
#include "tests/support/huge_pages.h"

namespace ringside {
namespace {

constexpr uint64_t kPage = 4096;
constexpr GuestMemory::Range kLow{0, 4 * kPage};
constexpr GuestMemory::Range kNext{4 * kPage, 2 * kPage};  // touches the one before
constexpr GuestMemory::Range kHigh{uint64_t{4} << 30, 3 * kPage};

class GuestMemoryTest : public ::testing::Test {
 protected:
  const std::unique_ptr<GuestMemory> memory_ =
      *GuestMemory::Create(std::vector{kLow, kNext, kHigh});
};

TEST_F(GuestMemoryTest, HasTheRegionsItWasAskedFor) {
  const auto regions = memory_->regions();
  ASSERT_EQ(regions.size(), 3u);
  uint64_t offset = 0;
  size_t i = 0;
  for (const GuestMemory::Range& range : {kLow, kNext, kHigh}) {
    EXPECT_EQ(regions[i].guest_address, range.guest_address);
    EXPECT_EQ(regions[i].size, range.size);
    EXPECT_EQ(regions[i].fd_offset, offset);
    offset += range.size;
    ++i;
  }
}

// Who is given the descriptor, such as a vfio-user server, could else end us by SIGBUS.
TEST_F(GuestMemoryTest, NobodyWhoHasTheDescriptorChangesItsLength) {
  const int fd = memory_->regions().front().fd;
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(ftruncate(fd, 64 * kPage), -1);
  EXPECT_EQ(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kPage), 0);
}

TEST_F(GuestMemoryTest, GivesTheHostAddressOfWhatIsInside) {
  for (const MemoryRegion& region : memory_->regions()) {
    const uint64_t start = region.guest_address;
    EXPECT_EQ(memory_->At(start, 1), region.host);
    EXPECT_EQ(memory_->At(start, region.size), region.host);
    EXPECT_EQ(memory_->At(start + 5, region.size - 5), region.host + 5);
    EXPECT_EQ(memory_->At(start + region.size - 1, 1), region.host + region.size - 1);
  }
}

TEST_F(GuestMemoryTest, RefusesWhatEndsOutside) {
  for (const MemoryRegion& region : memory_->regions()) {
    const uint64_t start = region.guest_address;
    EXPECT_EQ(memory_->At(start, region.size + 1), nullptr);
    EXPECT_EQ(memory_->At(start + 1, region.size), nullptr);
    EXPECT_EQ(memory_->At(start + region.size - 1, 2), nullptr);
  }
}

TEST_F(GuestMemoryTest, RefusesWhatStartsOutside) {
  const uint64_t hole = kNext.guest_address + kNext.size;
  const uint64_t end = kHigh.guest_address + kHigh.size;
  for (const uint64_t address : {hole, hole + kPage, kHigh.guest_address - 1, end, end + 1,
                                 UINT64_MAX, UINT64_MAX - kPage}) {
    EXPECT_EQ(memory_->At(address, 1), nullptr) << std::hex << address;
  }
  EXPECT_EQ(memory_->At(kHigh.guest_address - 1, 2), nullptr);
}

// One descriptor element must not reach from one mapping into another, even if the guest sees them
// side by side: the host may not.
TEST_F(GuestMemoryTest, NeverCrossesFromOneRegionIntoTheNext) {
  ASSERT_NE(memory_->At(kNext.guest_address - 1, 1), nullptr);
  ASSERT_NE(memory_->At(kNext.guest_address, 1), nullptr);
  EXPECT_EQ(memory_->At(kNext.guest_address - 1, 2), nullptr);
  EXPECT_EQ(memory_->At(0, kLow.size + kNext.size), nullptr);
}

TEST_F(GuestMemoryTest, LengthsThatWrapAreRefused) {
  EXPECT_EQ(memory_->At(0, UINT64_MAX), nullptr);
  for (const uint64_t address : {kPage, kHigh.guest_address, kHigh.guest_address + kPage}) {
    EXPECT_EQ(memory_->At(address, UINT64_MAX), nullptr) << std::hex << address;
    EXPECT_EQ(memory_->At(address, UINT64_MAX - address), nullptr) << std::hex << address;
    EXPECT_EQ(memory_->At(address, UINT64_MAX - address + 1), nullptr) << std::hex << address;
    EXPECT_EQ(memory_->At(address, UINT64_MAX - address + 2), nullptr) << std::hex << address;
  }
  EXPECT_EQ(memory_->At(UINT64_MAX, 2), nullptr);  // would come round to address 0
  EXPECT_EQ(memory_->At(UINT64_MAX - kPage + 1, 2 * kPage), nullptr);
}

TEST_F(GuestMemoryTest, StartsAsZeroes) {
  for (const MemoryRegion& region : memory_->regions()) {
    EXPECT_TRUE(std::all_of(region.host, region.host + region.size,
                            [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

// What another process maps from the descriptor is the guest's memory, not a copy.
TEST_F(GuestMemoryTest, DescriptorAndOffsetMapTheSameBytes) {
  uint8_t mark = 1;
  for (const MemoryRegion& region : memory_->regions()) {
    void* mapped = mmap(nullptr, region.size, PROT_READ | PROT_WRITE, MAP_SHARED, region.fd,
                        static_cast<off_t>(region.fd_offset));
    ASSERT_NE(mapped, MAP_FAILED);
    auto* other = static_cast<std::byte*>(mapped);
    for (const uint64_t offset : {uint64_t{0}, region.size / 2, region.size - 1}) {
      region.host[offset] = std::byte{mark};
      EXPECT_EQ(other[offset], std::byte{mark++});
      other[offset] = std::byte{mark};
      EXPECT_EQ(region.host[offset], std::byte{mark++});
    }
    munmap(mapped, region.size);
  }
}

TEST(GuestMemory, RegionsDoNotShareBytes) {
  const auto memory = *GuestMemory::Create(std::vector{kLow, kNext, kHigh});
  uint8_t number = 1;
  for (const MemoryRegion& region : memory->regions()) {
    std::fill_n(region.host, region.size, std::byte{number++});
  }
  number = 1;
  for (const MemoryRegion& region : memory->regions()) {
    EXPECT_EQ(region.host[0], std::byte{number});
    EXPECT_EQ(region.host[region.size - 1], std::byte{number});
    ++number;
  }
}

TEST(GuestMemory, ReachesTheTopOfTheAddressSpace) {
  const uint64_t base = UINT64_MAX - kPage + 1;
  const auto memory = *GuestMemory::Create(std::vector<GuestMemory::Range>{{base, kPage}});
  std::byte* const host = memory->regions()[0].host;
  EXPECT_EQ(memory->At(base, kPage), host);
  EXPECT_EQ(memory->At(UINT64_MAX, 1), host + kPage - 1);
  EXPECT_EQ(memory->At(UINT64_MAX, 2), nullptr);
  EXPECT_EQ(memory->At(base, kPage + 1), nullptr);
  EXPECT_EQ(memory->At(0, 1), nullptr);
}

// The policy of the mapping that holds `host`, and its nodes up to 63.
std::pair<int, uint64_t> PolicyOf(std::byte* host) {
  int mode = -1;
  unsigned long nodes[16] = {};
  EXPECT_EQ(syscall(SYS_get_mempolicy, &mode, nodes, sizeof nodes * 8, host, MPOL_F_ADDR), 0);
  return {mode, nodes[0]};
}

TEST(GuestMemory, ComesFromTheNodesThatAreAskedFor) {
  const std::vector<int> nodes = {0};
  const auto memory = *GuestMemory::Create(std::vector{kLow, kHigh}, nodes);
  for (const MemoryRegion& region : memory->regions()) {
    EXPECT_EQ(PolicyOf(region.host), std::pair(static_cast<int>(MPOL_BIND), uint64_t{1}));
    EXPECT_EQ(PolicyOf(region.host + region.size - 1),
              std::pair(static_cast<int>(MPOL_BIND), uint64_t{1}));
  }
}

TEST(GuestMemory, ComesFromAnywhereIfNobodyAsks) {
  const auto memory = *GuestMemory::Create(std::vector{kLow});
  EXPECT_EQ(PolicyOf(memory->regions()[0].host).first, MPOL_DEFAULT);
}

TEST(GuestMemory, ANodeThatTheKernelRefusesIsAnErrorThatSaysWhatToDo) {
  const std::vector<int> nodes = {1000};
  const auto memory = GuestMemory::Create(std::vector{kLow}, nodes);
  ASSERT_FALSE(memory.ok());
  EXPECT_NE(memory.status().message().find("memory-node 1000: "), absl::string_view::npos)
      << memory.status();
  EXPECT_NE(memory.status().message().find("Mems_allowed_list"), absl::string_view::npos);
}

TEST(GuestMemory, MoreThanThereIsIsAnErrorThatSaysWhatToDo) {
  const auto memory = GuestMemory::Create(std::vector<GuestMemory::Range>{{0, uint64_t{1} << 60}});
  ASSERT_FALSE(memory.ok());
  EXPECT_NE(memory.status().message().find("ask for less memory"), absl::string_view::npos)
      << memory.status();
}

TEST_F(GuestMemoryTest, WhatIsFrozenStaysForOthersAndChangesForItself) {
  std::byte* const host = memory_->At(kNext.guest_address, 1);
  *host = std::byte{1};
  ASSERT_EQ(memory_->Freeze(), absl::OkStatus());
  EXPECT_FALSE(memory_->is_shared());
  EXPECT_EQ(memory_->At(kNext.guest_address, 1), host);
  EXPECT_EQ(*host, std::byte{1});
  *host = std::byte{2};
  const int fd = memory_->regions().front().fd;
  std::byte now{0};
  ASSERT_EQ(pread(fd, &now, 1, kNext.guest_address), 1);
  EXPECT_EQ(now, std::byte{1});
  EXPECT_EQ(pwrite(fd, &now, 1, 0), -1);
  EXPECT_EQ(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
}

TEST_F(GuestMemoryTest, WhatAnotherMayWriteIsNotFrozen) {
  const int fd = memory_->regions().front().fd;
  void* const other = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_EQ(memory_->Freeze().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(memory_->is_shared());
  *memory_->At(0, 1) = std::byte{3};
  EXPECT_EQ(*static_cast<std::byte*>(other), std::byte{3});
  munmap(other, kPage);
  EXPECT_EQ(memory_->Freeze(), absl::OkStatus());
}

// Two regions, so that both may be what is lacking.
std::vector<GuestMemory::Range> HugeRanges(uint64_t pages) {
  return {{0, kHugePageSize}, {uint64_t{4} << 30, (pages - 1) * kHugePageSize}};
}

uint64_t Resident(const MemoryRegion& region) {
  std::vector<unsigned char> pages(region.size / kPage);
  EXPECT_EQ(mincore(region.host, region.size, pages.data()), 0);
  return static_cast<uint64_t>(
      std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(GuestMemoryOfHugePages, IsReservedUntilItEnds) {
  const testing::SetAsideHugePages pool(3);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const uint64_t before = pool.Free();
  {
    const auto memory = GuestMemory::Create(HugeRanges(3), {}, HugePages::k2M);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(pool.Free(), before - 3);
    for (const MemoryRegion& region : (*memory)->regions()) {
      EXPECT_TRUE(IsOfHugePages(region.fd));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(region.host) % kHugePageSize, 0u);
      EXPECT_EQ(region.fd_offset % kHugePageSize, 0u);
      EXPECT_EQ(Resident(region), 0u) << "it is taken when it is touched";
      region.host[region.size - 1] = std::byte{1};
      EXPECT_EQ(Resident(region), kHugePageSize / kPage);
    }
  }
  EXPECT_EQ(pool.Free(), before);
}

TEST(GuestMemoryOfHugePages, TooFewAreAnErrorThatSaysHowManyAreWanted) {
  const testing::SetAsideHugePages pool(3);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const uint64_t free = pool.Free();
  const auto memory = GuestMemory::Create(HugeRanges(free + 3), {}, HugePages::k2M);
  ASSERT_FALSE(memory.ok());
  const std::string says = std::to_string(free + 2) + " huge pages of 2M are wanted, and " +
                           std::to_string(free - 1) + " are free: 'sysctl vm.nr_hugepages=";
  EXPECT_NE(memory.status().message().find(says), absl::string_view::npos) << memory.status();
  EXPECT_EQ(pool.Free(), free);
}

TEST(GuestMemoryOfHugePages, IsTakenFromANodeAtOnce) {
  const testing::SetAsideHugePages pool(3);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const std::vector<int> nodes = {0};
  const auto memory = GuestMemory::Create(HugeRanges(3), nodes, HugePages::k2M);
  ASSERT_TRUE(memory.ok()) << memory.status();
  for (const MemoryRegion& region : (*memory)->regions()) {
    EXPECT_EQ(Resident(region), region.size / kPage);
    EXPECT_EQ(PolicyOf(region.host), std::pair(static_cast<int>(MPOL_BIND), uint64_t{1}));
  }
}

TEST(GuestMemoryOfHugePages, IsFrozenWhereAsManyAreThereAgain) {
  const testing::SetAsideHugePages pool(6);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const uint64_t before = pool.Free();
  const auto memory = *GuestMemory::Create(HugeRanges(3), {}, HugePages::k2M);
  std::byte* const host = memory->regions().back().host;
  *host = std::byte{1};
  ASSERT_EQ(memory->Freeze(), absl::OkStatus());
  EXPECT_EQ(memory->regions().back().host, host);
  EXPECT_EQ(pool.Free(), before - 6);
  for (const MemoryRegion& region : memory->regions()) {
    for (uint64_t at = 0; at < region.size; at += kHugePageSize) region.host[at] = std::byte{2};
  }
  std::byte now{0};
  ASSERT_EQ(pread(memory->regions().front().fd, &now, 1, kHugePageSize), 1);
  EXPECT_EQ(now, std::byte{1});
}

// All that is free is the memory's, so none is there for what would be its own.
TEST(GuestMemoryOfHugePages, IsNotFrozenWhereTooFewAreThere) {
  const testing::SetAsideHugePages pool(3);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const auto memory = *GuestMemory::Create(HugeRanges(pool.Free()), {}, HugePages::k2M);
  const MemoryRegion& last = memory->regions().back();
  last.host[0] = std::byte{1};
  const absl::Status status = memory->Freeze();
  EXPECT_NE(status.message().find("huge pages of 2M are wanted, and 0 are free"),
            absl::string_view::npos)
      << status;
  EXPECT_TRUE(memory->is_shared());
  EXPECT_EQ(last.host[0], std::byte{1});
  last.host[0] = std::byte{2};
  std::byte now{0};
  ASSERT_EQ(pread(last.fd, &now, 1, static_cast<off_t>(last.fd_offset)), 1);
  EXPECT_EQ(now, std::byte{2});
}

// Each of them may write to all of it.
TEST(GuestMemoryOfHugePages, ACopyOnWriteOfItIsReserved) {
  const testing::SetAsideHugePages pool(7);
  SKIP_WITHOUT_HUGE_PAGES(pool);
  const auto memory = *GuestMemory::Create(HugeRanges(3), {}, HugePages::k2M);
  memory->regions().front().host[1] = std::byte{1};
  const UniqueFd file(dup(memory->regions().front().fd));
  const uint64_t before = pool.Free();
  const auto copy = *GuestMemory::CopyOnWrite(file, HugeRanges(3));
  EXPECT_EQ(pool.Free(), before - 3);
  EXPECT_EQ(copy->regions().front().host[1], std::byte{1});
  copy->regions().front().host[1] = std::byte{2};
  EXPECT_EQ(memory->regions().front().host[1], std::byte{1});
  if (before == 4) {
    EXPECT_FALSE(GuestMemory::CopyOnWrite(file, HugeRanges(3)).ok());
  }
}

// What it gets is the kernel's to say.
TEST(GuestMemory, AsksForHugePagesWhereTheyAreWanted) {
  const auto flags_of = [](const std::byte* host) {
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    const std::string begin = absl::StrFormat("%x-", reinterpret_cast<uintptr_t>(host));
    while (std::getline(maps, line) && !line.starts_with(begin)) continue;
    while (std::getline(maps, line) && !line.starts_with("VmFlags:")) continue;
    return line;
  };
  for (const HugePages pages : {HugePages::kOff, HugePages::kTransparent}) {
    const auto memory = *GuestMemory::Create(HugeRanges(3), {}, pages);
    EXPECT_EQ(flags_of(memory->regions().back().host).find(" hg") != std::string::npos,
              pages == HugePages::kTransparent);
  }
}

class WriteLogTest : public GuestMemoryTest {
 protected:
  std::vector<uint64_t> Noted() const {
    std::vector<uint64_t> pages;
    const std::span<const uint64_t> words = memory_->write_log()->words();
    for (uint64_t page = 0; page < words.size() * 64; ++page) {
      if ((words[page / 64] >> page % 64 & 1) != 0) pages.push_back(page);
    }
    return pages;
  }
  std::byte* At(uint64_t address) const { return memory_->At(address, 1); }
};

TEST_F(WriteLogTest, IsOfThePagesThatAreTouched) {
  memory_->Writes(At(0), 1);
  EXPECT_EQ(memory_->write_log(), nullptr) << "nobody has asked for it";
  memory_->NoteWrites(true);
  EXPECT_EQ(Noted(), std::vector<uint64_t>());
  memory_->Writes(At(kPage - 1), 1);
  memory_->Writes(At(2 * kPage), 0);
  memory_->Writes(At(3 * kPage - 1), 2);
  constexpr uint64_t kHighPage = kHigh.guest_address / kPage;
  memory_->Writes(At(kHigh.guest_address + 1), 2 * kPage);
  EXPECT_EQ(Noted(), (std::vector<uint64_t>{0, 2, 3, kHighPage, kHighPage + 1, kHighPage + 2}));
  memory_->NoteWrites(true);
  EXPECT_EQ(Noted(), std::vector<uint64_t>()) << "it begins anew";
  WriteLog* const log = memory_->write_log();
  memory_->NoteWrites(false);
  EXPECT_EQ(memory_->write_log(), nullptr);
  log->Note(At(kPage), 1);  // by one who has found it before, which is no crash
}

TEST_F(WriteLogTest, HasRoomForAllPagesAndWhatIsInNoneIsNobodys) {
  memory_->NoteWrites(true);
  for (const GuestMemory::Range& range : {kLow, kNext, kHigh}) {
    memory_->Writes(At(range.guest_address), range.size);
  }
  EXPECT_EQ(Noted().size(), (kLow.size + kNext.size + kHigh.size) / kPage);
  memory_->NoteWrites(true);
  std::byte other{};
  memory_->Writes(&other, 1);
  EXPECT_EQ(Noted(), std::vector<uint64_t>());
}

}  // namespace
}  // namespace ringside
