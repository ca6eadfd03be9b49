// Records of writes: that they have what came, in the order in which it was certain, that a replay
// is the disk, and that the file has its bounds.
#include <cerrno>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "faults/disk_filters.h"
#include "faults/fault_device.h"
#include "faults/record_device.h"
#include "nvme/nvme_controllers.h"
#include "tests/support/allocation_counter.h"
#include "tests/support/block/memory_disk.h"
#include "tests/support/block/test_disk.h"
#include "tests/support/recording_log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_file.h"

namespace ringside {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryDisk;
using testing::Pattern;
using testing::RunOn;
using testing::TempFile;
using testing::TestDisk;
using testing::TestRequest;

constexpr uint64_t kSize = 1 << 20;

struct ReadEntry {
  RecordEntry entry;
  std::string data;
};

// As a tool would read it.
std::vector<ReadEntry> Read(const TempFile& file) {
  struct stat info;
  EXPECT_EQ(stat(file.path().c_str(), &info), 0);
  const std::string bytes = file.Content(0, static_cast<size_t>(info.st_size));
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  EXPECT_EQ(header.magic, RecordHeader::kMagic);
  EXPECT_EQ(header.version, 1u);
  EXPECT_EQ(header.disk_bytes, kSize);
  std::vector<ReadEntry> entries;
  for (size_t at = header.bytes; at < bytes.size();) {
    ReadEntry& read = entries.emplace_back();
    std::memcpy(&read.entry, &bytes[at], sizeof read.entry);
    EXPECT_EQ(read.entry.magic, RecordEntry::kMagic) << at;
    at += sizeof read.entry;
    if (read.entry.kind != RecordEntry::Kind::kSubmitted || read.entry.op != 1) continue;
    read.data = bytes.substr(at, read.entry.length);
    at += read.entry.length;
  }
  return entries;
}

class RecordTest : public ::testing::Test {
 protected:
  void Use(uint64_t limit = kSize * 64) {
    auto memory = std::make_unique<MemoryDisk>(BlockInfo{.size = kSize});
    memory_ = memory.get();
    auto file = RecordFile::Create(file_.path(), limit, memory->info(), Logger(&log_));
    ASSERT_TRUE(file.ok()) << file.status();
    disk_ = std::make_unique<TestDisk>(
        std::make_unique<RecordDevice>(std::move(memory), *std::move(file)),
        IoThread::Waiter::kEpoll);
    ASSERT_TRUE(disk_->status().ok()) << disk_->status();
  }
  int Write(uint64_t offset, const std::string& text) {
    TestRequest write(BlockOp::kWrite, offset, {static_cast<uint32_t>(text.size())});
    return disk_->Run(write.Set(text));
  }

  testing::RecordingLog log_;
  TempFile file_{0};
  MemoryDisk* memory_ = nullptr;
  std::unique_ptr<TestDisk> disk_;
};

TEST_F(RecordTest, HasWhatChangesTheDiskInItsOrder) {
  Use();
  const std::string text = Pattern(4096, 'r');
  TestRequest write(BlockOp::kWrite, 8192, {512, 1024, 2560}), read(BlockOp::kRead, 0, {512});
  write.durable = true;
  EXPECT_EQ(disk_->Run(write.Set(text)), 0);
  EXPECT_EQ(disk_->Run(read), 0);
  memory_->FailWith(EIO);
  TestRequest flush(BlockOp::kFlush, 0), zeroes(BlockOp::kWriteZeroes, 512);
  zeroes.length = 1024;
  zeroes.unmap = true;
  EXPECT_EQ(disk_->Run(flush), -EIO);
  disk_->Run({&zeroes});
  const std::vector<ReadEntry> entries = Read(file_);
  ASSERT_EQ(entries.size(), 6u);
  using Kind = RecordEntry::Kind;
  for (size_t i = 0; i < 6; ++i) {
    const RecordEntry& entry = entries[i].entry;
    EXPECT_EQ(entry.kind, i % 2 == 0 ? Kind::kSubmitted : Kind::kCompleted) << i;
    EXPECT_EQ(entry.number, i / 2 + 1) << i;
    EXPECT_EQ(entry.op, std::to_array({1, 2, 4})[i / 2]) << i;
    EXPECT_EQ(entry.result, i == 3 || i == 5 ? -EIO : 0) << i;
    EXPECT_GE(entry.time_ns, entries[i - (i > 0 ? 1 : 0)].entry.time_ns) << i;
  }
  EXPECT_EQ(entries[0].entry.offset, 8192u);
  EXPECT_EQ(entries[0].entry.flags, RecordEntry::kDurable);
  EXPECT_EQ(entries[0].data, text);
  EXPECT_EQ(entries[4].entry.offset, 512u);
  EXPECT_EQ(entries[4].entry.length, 1024u);
  EXPECT_EQ(entries[4].entry.flags, RecordEntry::kUnmap);
  EXPECT_EQ(disk_->Count("recorded"), 3u);
}

// Who has seen a write end can rely on a flush that is submitted then.
TEST_F(RecordTest, ACompletionIsThereBeforeAnybodyKnowsOfIt) {
  Use();
  TestRequest write(BlockOp::kWrite, 0, {512});
  size_t entries = 0;
  memory_->OnSubmit([&] { entries = Read(file_).size(); });
  EXPECT_EQ(disk_->Run(write), 0);
  EXPECT_EQ(entries, 1u) << "the submission, before the disk has it";
  EXPECT_EQ(Read(file_).size(), 2u);
}

TEST_F(RecordTest, AReplayIsTheDisk) {
  Use();
  std::mt19937_64 random(5);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::unique_ptr<TestRequest>> requests;
    std::vector<TestRequest*> all;
    for (uint64_t i = 0; i < 8; ++i) {  // side by side, each in its eighth of the disk
      const uint64_t place = i * kSize / 8 + random() % 64 * 512;
      const bool zeroes = random() % 8 == 0;
      const std::vector<uint32_t> lengths(1 + random() % 100, 512);
      auto request =
          std::make_unique<TestRequest>(zeroes ? BlockOp::kWriteZeroes : BlockOp::kWrite, place,
                                        zeroes ? std::vector<uint32_t>() : lengths);
      if (zeroes) request->length = lengths.size() * 512;
      request->Set(Pattern(lengths.size() * 512, static_cast<char>(random())));
      all.push_back(request.get());
      requests.push_back(std::move(request));
    }
    disk_->Run(all);
  }
  std::string replayed(kSize, '\0');
  for (const ReadEntry& read : Read(file_)) {
    if (read.entry.kind != RecordEntry::Kind::kSubmitted) continue;
    const std::string zeroes(read.entry.length, '\0');
    replayed.replace(read.entry.offset, read.entry.length, read.entry.op == 1 ? read.data : zeroes);
  }
  const std::vector<std::byte> content = memory_->Content(0, kSize);
  EXPECT_TRUE(std::memcmp(replayed.data(), content.data(), kSize) == 0);
}

TEST_F(RecordTest, EndsAtItsLimitAndTheDiskGoesOn) {
  constexpr uint64_t kEntry = sizeof(RecordEntry);
  constexpr uint64_t kLimit = sizeof(RecordHeader) + 2 * (2 * kEntry + 4096) + kEntry;
  Use(kLimit);
  const std::string text = Pattern(4096, 'l');
  for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(Write(i * 4096, text), 0);
  TestRequest flush(BlockOp::kFlush, 0);  // there would be room for it, but for the end
  EXPECT_EQ(disk_->Run(flush), 0);
  EXPECT_EQ(Write(0, text), 0);
  const std::vector<ReadEntry> entries = Read(file_);
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[4].entry.kind, RecordEntry::Kind::kEnd);
  EXPECT_EQ(disk_->Count("recorded"), 2u);
  EXPECT_EQ(disk_->Count("unrecorded"), 2u);
  EXPECT_EQ(disk_->Count("record_bytes"), kLimit);
  EXPECT_THAT(log_.lines(), ElementsAre(HasSubstr("ends here, and the disk goes on without")));
}

TEST_F(RecordTest, ReplacesARecordAndNothingElse) {
  Use();
  EXPECT_EQ(Write(0, Pattern(512, 'x')), 0);
  const BlockInfo info = {.size = kSize};
  const auto create = [&](const std::string& path) {
    return RecordFile::Create(path, kSize, info, Logger()).status();
  };
  EXPECT_THAT(create(file_.path()).message(), HasSubstr("is in use"));
  disk_.reset();
  EXPECT_TRUE(create(file_.path()).ok());
  EXPECT_THAT(Read(file_), IsEmpty());
  TempFile image(4096);
  EXPECT_THAT(create(image.path()), IsBadInput(image.path(), "no record"));
  EXPECT_THAT(create("/dev"), IsBadInput("record=/dev", "Is a directory"));
  EXPECT_THAT(create("/dev/null"), IsBadInput("record=/dev/null", "no regular file"));
  EXPECT_THAT(create("/nowhere/record"), IsBadInput("/nowhere/record", "No such file"));
}

TEST_F(RecordTest, AllocatesNothingInTheSteadyState) {
  if (!testing::CanCountAllocations()) GTEST_SKIP() << "allocations cannot be counted here";
  Use();
  memory_->KeepRecords(false);
  std::array<uint64_t, 2> counts{};
  for (uint64_t& count : counts) {
    TestRequest write(BlockOp::kWrite, 0, std::vector<uint32_t>(100, 512));
    TestRequest flush(BlockOp::kFlush, 0);
    for (int i = 0; i < 100; ++i) disk_->Run({&write, &flush});
    RunOn(disk_->io_thread(), [&] { count = testing::AllocationsOfThisThread(); });
  }
  EXPECT_EQ(counts[0], counts[1]);
}

// As a machine opens its disks.
class DiskFiltersTest : public ::testing::Test {
 protected:
  // Of a page that no fault lets through, whether the record has it.
  bool RecordsAFailedWrite(bool below_faults) {
    TempFile script(0), record(0), image(kSize);
    script.Fill(0, "write error=EIO\n");
    const DiskConfig config = {
        .backend = FileConfig{.path = image.path(), .cache = CacheMode::kWriteback},
        .fault_script = script.path(),
        .record = {.path = record.path(), .below_faults = below_faults}};
    NvmeControllers controllers{Logger()};
    const BlockContext context = {.log = Logger(), .nvme = controllers};
    EXPECT_THAT(WithFilters(config).Describe().files, ElementsAre(image.path(), record.path()));
    TestDisk disk(WithFilters(config).Open(context), IoThread::Waiter::kEpoll);
    EXPECT_TRUE(disk.status().ok()) << disk.status();
    TestRequest write(BlockOp::kWrite, 0, {512}), flush(BlockOp::kFlush, 0);
    EXPECT_EQ(disk.Run(write), -EIO);
    EXPECT_EQ(disk.Run(flush), 0);
    EXPECT_EQ(disk.Count("fault_errors"), 1u);
    return Read(record).size() == 4;
  }
};

TEST_F(DiskFiltersTest, ARecordIsOfWhatTheGuestAskedForOrOfWhatGotThrough) {
  EXPECT_TRUE(RecordsAFailedWrite(false));
  EXPECT_FALSE(RecordsAFailedWrite(true));
}

TEST_F(DiskFiltersTest, ADiskWithoutThemIsItsBackend) {
  const DiskConfig plain = {.backend = FileConfig{.path = "a"}};
  EXPECT_NE(WithFilters(plain).As<FileConfig>(), nullptr);
}

}  // namespace
}  // namespace ringside
