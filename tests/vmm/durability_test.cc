// What a disk has acknowledged is in its file, whatever happens to the VMM: the guest writes
// numbered records and says up to which they are durable; `ringside run` is killed at a random
// moment; the file, read from outside, must hold every record that was acknowledged before.
//
// A kill proves what the VMM owes (nothing acknowledged before the kernel has it, no flush before
// the writes it covers); what the kernel and the drive owe needs a power cut.
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/fd.h"
#include "tests/guest/record.h"
#include "tests/support/overlay/read_overlay.h"
#include "tests/support/temp_file.h"
#include "tests/support/vmm/test_machine.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using testing::TempFile;

constexpr int kKills = 50;                // of each mode
constexpr uint64_t kImageSize = 8 << 20;  // 2048 records

// tmpfs, where a flush costs nothing and most records are written before the kill; and where the
// tests are built, a disk.
constexpr const char* kDirectories[] = {"/dev/shm", "."};

// Leaves the processors to the machine under test.
template <typename Condition>
bool WaitUntil(Condition condition) {
  const absl::Time deadline = absl::Now() + testing::kWaitLimit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

// `ringside run` with the record-writing guest, its console in memory.
class RecordWriter {
 public:
  RecordWriter(const std::string& disk, uint64_t seed)
      : console_(memfd_create("console", MFD_CLOEXEC)) {
    const std::vector<std::string> command = {
        RINGSIDE_COMMAND, "run",
        "--kernel",       RINGSIDE_GUEST_ELF,
        "--memory",       "16M",
        "--disk",         disk,
        "--cmdline",      absl::StrCat("records=1 seed=", seed)};
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
      dup2(console_.get(), STDOUT_FILENO);
      dup2(console_.get(), STDERR_FILENO);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
  }
  ~RecordWriter() {
    if (pid_ > 0) Kill();
  }
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  bool WaitForRecords(uint64_t count) const {
    return WaitUntil([=, this] { return Acknowledged() >= count; });
  }
  void Kill() {
    kill(pid_, SIGKILL);
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
  }

  std::string Output() const {
    std::string text(static_cast<size_t>(lseek(console_.get(), 0, SEEK_END)), '\0');
    text.resize(static_cast<size_t>(pread(console_.get(), text.data(), text.size(), 0)));
    return text;
  }
  // How many records, from 0 on, the whole lines of the console call durable.
  uint64_t Acknowledged() const {
    static constexpr std::string_view kDurable = "guest: durable ";
    const std::string output = Output();
    uint64_t acknowledged = 0;
    for (size_t at = 0; (at = output.find(kDurable, at)) != std::string::npos;) {
      at += kDurable.size();
      if (output.find('\n', at) == std::string::npos) break;  // the line it died in
      acknowledged = std::stoull(output.substr(at)) + 1;
    }
    return acknowledged;
  }

 private:
  const UniqueFd console_;
  pid_t pid_ = -1;
};

// The kernel lets go of a killed process's io_uring, with what it has in flight and the files
// registered in it, some time after the process is gone: the lock on the file says when.
bool WaitUntilReleased(const TempFile& image) {
  return WaitUntil([&image] {
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    return fcntl(image.fd(), F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
  });
}

// How many of the first `count` records are not what was written.
uint64_t CountMissing(const std::string& content, uint64_t count, uint64_t seed) {
  uint64_t missing = 0;
  for (uint64_t k = 0; k < count; ++k) {
    guest::Record record;
    std::memcpy(&record, &content[k * guest::kRecordSize], sizeof record);
    if (!guest::IsRecord(record, k, seed)) ++missing;
  }
  return missing;
}

struct Mode {
  const char* cache;
  // A kill comes after at most so many records: with a write-back cache the console speaks once a
  // flush, else once a write.
  uint64_t most_records;
};

class DurabilityTest : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override { SKIP_WITHOUT_KVM(); }
};

TEST_P(DurabilityTest, EveryAcknowledgedRecordSurvivesAKill) {
  const TempFile images[] = {TempFile(kImageSize, kDirectories[0]),
                             TempFile(kImageSize, kDirectories[1])};
  std::mt19937 random(17);
  for (int i = 0; i < kKills; ++i) {
    // A seed of its own: records of an earlier round do not count.
    const auto seed = static_cast<uint64_t>(i) + 1;
    const TempFile& image = images[i % 2];
    RecordWriter writer(absl::StrCat("path=", image.path(), ",cache=", GetParam().cache), seed);
    ASSERT_TRUE(writer.WaitForRecords(1 + random() % GetParam().most_records)) << writer.Output();
    absl::SleepFor(absl::Microseconds(random() % 3000));
    writer.Kill();
    ASSERT_TRUE(WaitUntilReleased(image));
    const uint64_t acknowledged = writer.Acknowledged();
    const std::string content = image.Content(0, acknowledged * guest::kRecordSize);
    ASSERT_EQ(CountMissing(content, acknowledged, seed), 0u)
        << "of " << acknowledged << " in round " << i << "\n"
        << writer.Output();
  }
}

// One that is killed again and again, and goes on: on a raw image that stays as it is.
TEST_P(DurabilityTest, EveryAcknowledgedRecordOnAnOverlaySurvivesAKill) {
  constexpr int kKillsOfAnOverlay = 25;
  TempFile base(kImageSize, kDirectories[0]);
  base.Close();
  // Files that are there and empty are made overlays.
  const TempFile overlays[] = {TempFile(0, kDirectories[0]), TempFile(0, kDirectories[1])};
  std::mt19937 random(18);
  for (int i = 0; i < kKillsOfAnOverlay; ++i) {
    const auto seed = static_cast<uint64_t>(i) + 1;
    const TempFile& overlay = overlays[i % 2];
    RecordWriter writer(absl::StrCat("base=", base.path(), ",overlay=", overlay.path(),
                                     ",cache=", GetParam().cache),
                        seed);
    ASSERT_TRUE(writer.WaitForRecords(1 + random() % GetParam().most_records)) << writer.Output();
    absl::SleepFor(absl::Microseconds(random() % 3000));
    writer.Kill();
    ASSERT_TRUE(WaitUntilReleased(overlay));
    const uint64_t acknowledged = writer.Acknowledged();
    const auto content =
        testing::ReadOverlay({base.path(), overlay.path()}, acknowledged * guest::kRecordSize);
    ASSERT_TRUE(content.ok()) << content.status();
    ASSERT_EQ(CountMissing(*content, acknowledged, seed), 0u)
        << "of " << acknowledged << " in round " << i << "\n"
        << writer.Output();
  }
  const auto untouched = testing::ReadOverlay({base.path()}, kImageSize);
  EXPECT_EQ(*untouched, std::string(kImageSize, '\0'));
}

INSTANTIATE_TEST_SUITE_P(, DurabilityTest,
                         ::testing::Values(Mode{"none", 200}, Mode{"writeback", 200},
                                           Mode{"writethrough", 24}, Mode{"directsync", 24}),
                         [](const auto& info) { return std::string(info.param.cache); });

}  // namespace
}  // namespace ringside
