// Which pages a machine used that went on from a snapshot: found, written, read again, and given to
// the next.
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>

#include "base/pages.h"
#include "snapshot/state_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/saving_machine.h"
#include "vmm/machine_state.h"

namespace ringside {
namespace {

namespace fs = std::filesystem;
using testing::CheckedLoad;
using ::testing::HasSubstr;

constexpr MemoryImage kMemory = {.identity = {1, 2, 3}, .size = 64 * kPageSize};

bool operator==(const PageRun& a, const PageRun& b) {
  return a.first == b.first && a.count == b.count;
}
bool Equal(const std::vector<PageRun>& a, const std::vector<PageRun>& b) {
  return std::ranges::equal(a, b, [](auto& x, auto& y) { return x == y; });
}
bool Has(const std::vector<PageRun>& runs, uint64_t page) {
  return std::ranges::any_of(
      runs, [page](auto& run) { return run.first <= page && page < run.first + run.count; });
}

absl::Status Decode(const std::vector<uint8_t>& bytes, const MemoryImage& memory = kMemory) {
  return DecodeWorkingSet(bytes, memory).status();
}
absl::Status DecodeRuns(const std::vector<PageRun>& runs) {
  return Decode(EncodeWorkingSet({.written = runs, .read = {}}, kMemory.identity));
}

TEST(PageRunsTest, TheNarrowestGapsAreFilledFirst) {
  const PageRuns runs = {{0, 1}, {2, 1}, {10, 5}, {17, 1}, {100, 1}};
  const auto coarse = [&](size_t most) {
    PageRuns fewer = runs;
    Coarsen(fewer, most);
    return fewer;
  };
  EXPECT_TRUE(Equal(coarse(5), runs));
  EXPECT_TRUE(Equal(coarse(4), {{0, 3}, {10, 5}, {17, 1}, {100, 1}}));
  EXPECT_TRUE(Equal(coarse(3), {{0, 3}, {10, 8}, {100, 1}}));
  EXPECT_TRUE(Equal(coarse(2), {{0, 18}, {100, 1}}));
  EXPECT_TRUE(Equal(coarse(1), {{0, 101}}));
}

TEST(WorkingSetTest, IsReadAsItWasWritten) {
  const WorkingSet set = {.written = {{0, 1}, {5, 3}}, .read = {{9, 55}}};
  const auto read = DecodeWorkingSet(EncodeWorkingSet(set, kMemory.identity), kMemory);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(Equal(read->written, set.written));
  EXPECT_TRUE(Equal(read->read, set.read));
  EXPECT_EQ(PagesOf(read->written), 4U);
}

TEST(WorkingSetTest, EveryChangedBitAndEveryTruncationIsFound) {
  std::vector<uint8_t> bytes =
      EncodeWorkingSet({.written = {{1, 2}}, .read = {{4, 1}, {7, 7}}}, kMemory.identity);
  ASSERT_EQ(Decode(bytes), absl::OkStatus());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(Decode(bytes).ok()) << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Decode({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)}).ok());
  }
}

// With checksums that are right.
TEST(WorkingSetTest, PagesThatAreNoneOfTheMemoryAreRefused) {
  EXPECT_EQ(DecodeRuns({{63, 1}}), absl::OkStatus());
  EXPECT_FALSE(DecodeRuns({{64, 1}}).ok()) << "behind its end";
  EXPECT_FALSE(DecodeRuns({{60, 5}}).ok()) << "beyond its end";
  EXPECT_FALSE(DecodeRuns({{1, UINT64_MAX}}).ok());
  EXPECT_FALSE(DecodeRuns({{UINT64_MAX, 1}}).ok());
  EXPECT_FALSE(DecodeRuns({{3, 0}}).ok()) << "none";
  EXPECT_FALSE(DecodeRuns({{3, 2}, {4, 1}}).ok()) << "twice";
  EXPECT_FALSE(DecodeRuns({{3, 2}, {5, 1}}).ok()) << "two that are one";
  EXPECT_FALSE(DecodeRuns({{5, 1}, {1, 1}}).ok()) << "out of order";
  const std::vector<uint8_t> bytes = EncodeWorkingSet({}, kMemory.identity);
  EXPECT_THAT(Decode(bytes, {.identity = {1, 2, 4}, .size = kMemory.size}).message(),
              HasSubstr("of another snapshot"));
  StateFileWriter other;
  other.Add(StateTag("MACH"), 1, {});
  EXPECT_THAT(Decode(std::move(other).Finish()).message(), HasSubstr("no working set"));
}

// Two regions, as of a machine with memory above 4 GiB.
class MappedTwice : public ::testing::Test {
 protected:
  static constexpr uint64_t kPages = 256, kLow = 100;

  MappedTwice() {
    for (uint64_t page = 0; page < kPages; ++page) {
      file_.Fill(page * kPageSize, std::string(kPageSize, static_cast<char>('a' + page % 26)));
    }
    Add(0, kLow);
    Add(kLow, kPages - kLow);
  }
  ~MappedTwice() override { Unmap(); }
  void Unmap() {
    for (const MemoryRegion& region : regions_) munmap(region.host, region.size);
    regions_.clear();
  }
  void Add(uint64_t first, uint64_t pages) {
    const off_t offset = static_cast<off_t>(first * kPageSize);
    void* const host =
        mmap(nullptr, pages * kPageSize, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_.fd(), offset);
    ASSERT_NE(host, MAP_FAILED);
    regions_.push_back({.guest_address = first * kPageSize,
                        .size = pages * kPageSize,
                        .host = static_cast<std::byte*>(host),
                        .fd = file_.fd(),
                        .fd_offset = first * kPageSize,
                        .index = static_cast<uint16_t>(regions_.size())});
  }
  std::byte* At(uint64_t page) const {
    const MemoryRegion& region = regions_[page < kLow ? 0 : 1];
    return region.host + page * kPageSize - region.fd_offset;
  }

  testing::TempFile file_{kPages * kPageSize};
  std::vector<MemoryRegion> regions_;
};

TEST_F(MappedTwice, WhatIsUsedIsFoundAndPrepared) {
  ASSERT_TRUE(Equal(FindTouchedPages(regions_)->written, {}));
  for (const uint64_t page : {3, 4, 99, 100, 255}) std::memset(At(page), 'x', 1);
  ASSERT_EQ(*At(200), std::byte{'a' + 200 % 26});
  const auto set = FindTouchedPages(regions_);
  ASSERT_TRUE(set.ok()) << set.status();
  const std::vector<PageRun> written = {{3, 2}, {99, 2}, {255, 1}};
  EXPECT_TRUE(Equal(set->written, written));
  EXPECT_TRUE(Has(set->read, 200));
  EXPECT_FALSE(Has(set->read, 4));

  Unmap();
  Add(0, kLow);
  Add(kLow, kPages - kLow);
  PrepareMemory(*set, regions_);
  EXPECT_TRUE(Equal(FindTouchedPages(regions_)->written, written)) << "needs Linux 5.14";
  for (const uint64_t page : {3, 99, 100, 255}) {
    EXPECT_EQ(*At(page), static_cast<std::byte>('a' + page % 26)) << page;
  }
}

class RecordedMachineTest : public testing::SavingMachine {
 protected:
  static constexpr CheckedLoad kLoad = {Engine::kIoUring, "irq", 1};

  // Leaves a configuration that goes on from a snapshot with a working set.
  MachineConfig Recorded() {
    MachineConfig config = ConfigOf(kLoad, "100ms");
    SaveAndEnd(Begin(config), Place(1));
    GoOnFrom(Place(1), config);
    fs::copy_file(image_.path(), Place(2));
    auto machine = Begin(config);
    ExpectProgress(*machine);
    EXPECT_EQ(machine->RecordWorkingSet(), absl::OkStatus());
    machine.reset();
    fs::copy_file(Place(2), image_.path(), fs::copy_options::overwrite_existing);
    return config;
  }
};

TEST_F(RecordedMachineTest, TheNextGoesOnAsWell) {
  const MachineConfig config = Recorded();
  const auto snapshot = OpenSnapshot(Place(1));
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_GT(PagesOf(snapshot->working_set.written), 2U);
  EXPECT_LT(PagesOf(snapshot->working_set.written), config.memory / kPageSize / 2);
  EndWell(*Begin(config));
}

TEST_F(RecordedMachineTest, AnEarlierOneIsReplacedAlsoBySeveralAtOnce) {
  const MachineConfig config = Recorded();
  auto machine = Begin(config);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&machine] { EXPECT_EQ(machine->RecordWorkingSet(), absl::OkStatus()); });
  }
  threads.clear();
  EndWell(*machine);
  EXPECT_EQ(machine->RecordWorkingSet(), absl::OkStatus()) << "also of one that has ended";
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(Place(1))) files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 3U) << "state, memory, working-set";
}

TEST_F(RecordedMachineTest, OneThatIsWrongIsRefusedByName) {
  MachineConfig config = Recorded();
  const std::string path = Place(1) + "/working-set";
  Write(path, Read(path) + "x");
  EXPECT_THAT(Machine::Create(config).status(), IsBadInput("/working-set': ", "delete it"));
  config.restore_working_set = false;
  EXPECT_EQ(Machine::Create(config).status(), absl::OkStatus()) << "it can do without";
  config.restore_working_set = true;
  fs::remove(path);
  EndWell(*Begin(config));
}

TEST_F(RecordedMachineTest, WhoHasNoMappedSnapshotHasNone) {
  MachineConfig config = ConfigOf(kLoad, "60s");
  auto machine = Begin(config);
  EXPECT_EQ(machine->RecordWorkingSet().code(), absl::StatusCode::kFailedPrecondition);
  SaveAndEnd(std::move(machine), Place(1));
  GoOnFrom(Place(1), config);
  config.restore_memory = RestoreMemory::kCopied;
  EXPECT_EQ(Begin(config)->RecordWorkingSet().code(), absl::StatusCode::kFailedPrecondition);
  config.restore_memory = RestoreMemory::kMapped;
  machine = Begin(config);
  fs::remove_all(Place(1));
  EXPECT_THAT(machine->RecordWorkingSet().message(), HasSubstr("not the one that this machine"));
}

// It is of the snapshot that the machine goes on from, and not of one that has its name by then.
TEST_F(RecordedMachineTest, AnotherSnapshotOfThatNameGetsNone) {
  MachineConfig config = Recorded();
  const auto machine = Begin(config);
  fs::rename(Place(1), Place(9));
  fs::create_directory(Place(1));
  for (const char* const name : {"/state", "/memory"}) {
    fs::copy_file(Place(9) + name, Place(1) + name);
  }
  EXPECT_THAT(machine->RecordWorkingSet().message(), HasSubstr("not the one that this machine"));
  EXPECT_FALSE(fs::exists(Place(1) + "/working-set"));
}

// A memory that others may read has a working set that they may read.
TEST_F(RecordedMachineTest, ItIsForWhomTheMemoryIs) {
  MachineConfig config = Recorded();
  fs::permissions(Place(1) + "/memory", fs::perms::group_read, fs::perm_options::add);
  ASSERT_EQ(Begin(config)->RecordWorkingSet(), absl::OkStatus());
  EXPECT_EQ(fs::status(Place(1) + "/working-set").permissions(),
            fs::perms::owner_read | fs::perms::owner_write | fs::perms::group_read);
}

}  // namespace
}  // namespace ringside
