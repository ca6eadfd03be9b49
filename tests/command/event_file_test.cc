// The file of --events: where it cannot be written, events are missing, and nothing else is wrong.
#include "command/event_file.h"

#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/stat.h>

#include "absl/cleanup/cleanup.h"
#include "tests/support/descriptors.h"
#include "tests/support/directories.h"
#include "tests/support/recording_log.h"
#include "tests/support/wait.h"

namespace ringside {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class EventFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<EventFile> Open(const std::string& path) {
    auto file = EventFile::Open(path, Logger(&log_));
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  static void Tell(EventFile& file, int64_t sequence) {
    file.Happened({.kind = EventKind::kPaused, .sequence = sequence});
  }
  // Of whole lines; what is none fails the test.
  static std::vector<int64_t> Sequences(const std::string& lines) {
    std::vector<int64_t> sequences;
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      EXPECT_FALSE(json.is_discarded()) << line;
      if (!json.is_discarded()) sequences.push_back(json["sequence"]);
    }
    return sequences;
  }
  std::string Content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  testing::RecordingLog log_;
  const testing::TempDirectory directory_;
  const std::string path_ = directory_.path() / "events";
};

TEST_F(EventFileTest, ReplacesAnEarlierOneWithItsFirstEvent) {
  std::ofstream(path_) << R"({"event":"ended"})" << "\n";
  const auto file = Open(path_);
  EXPECT_THAT(Content(), HasSubstr("ended"));
  Tell(*file, 1);
  Tell(*file, 2);
  file->Finish();
  EXPECT_THAT(Sequences(Content()), ElementsAre(1, 2));
  EXPECT_THAT(log_.lines(), IsEmpty());
}

// Such a disk takes the beginning of a line.
TEST_F(EventFileTest, ADiskThatIsFullLacksWholeLines) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto former = std::signal(SIGXFSZ, SIG_IGN);
  const absl::Cleanup restore = [&] {
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, former);
  };
  const auto file = Open(path_);
  const auto tell = [&](int64_t sequence) {
    Tell(*file, sequence);
    file->Finish();
  };
  tell(1);
  const rlimit full = {.rlim_cur = Content().size() + 10, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  tell(2);
  tell(3);
  EXPECT_THAT(Sequences(Content()), ElementsAre(1));
  setrlimit(RLIMIT_FSIZE, &before);
  tell(4);
  EXPECT_THAT(Sequences(Content()), ElementsAre(1, 4));
  const auto is_error = [](const std::string& line) {
    return line.find("File too large") != std::string::npos;
  };
  EXPECT_EQ(std::ranges::count_if(log_.lines(), is_error), 1);
  EXPECT_THAT(log_.lines(), Contains(HasSubstr("lacks 2 events")));
}

TEST_F(EventFileTest, AReaderWhoDoesNotReadHoldsNobodyAndFindsAGap) {
  testing::Must(mkfifo(path_.c_str(), 0600), "mkfifo");
  const UniqueFd reader(
      testing::Must(open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC), "open"));
  const auto file = Open(path_);
  constexpr int64_t kMany = 3000;  // several times what a pipe and the writer hold
  for (int64_t sequence = 1; sequence <= kMany; ++sequence) Tell(*file, sequence);
  std::string lines;
  std::vector<int64_t> read;
  for (int64_t next = kMany + 1; read.empty() || read.back() <= kMany; ++next) {
    ASSERT_LT(next, 10 * kMany);
    Tell(*file, next);
    ASSERT_TRUE(testing::WaitForFd(reader.get(), POLLIN));
    lines += testing::ReadAvailable(reader.get());
    read = Sequences(lines.substr(0, lines.rfind('\n') + 1));
  }
  EXPECT_EQ(read.front(), 1);
  EXPECT_TRUE(std::ranges::is_sorted(read));
  EXPECT_LT(read.size(), static_cast<size_t>(read.back())) << "a gap";
  file->Finish();
  EXPECT_THAT(log_.lines(), Contains(HasSubstr("lacks ")));
}

}  // namespace
}  // namespace ringside
