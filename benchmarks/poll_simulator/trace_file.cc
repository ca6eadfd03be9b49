#include "benchmarks/poll_simulator/trace_file.h"

#include <cerrno>
#include <charconv>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr std::string_view kFormat = "# ringside poll trace ";
constexpr std::string_view kVersion = "1";
constexpr int64_t kMostNs = int64_t{1} << 62;  // of any time: two can be added

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text, int base) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> ParseNs(std::string_view text) {
  const auto ns = ParseNumber<int64_t>(text, 10);
  return ns && *ns >= 0 && *ns <= kMostNs ? ns : std::nullopt;
}

std::optional<Waiting> ParseWaiting(std::string_view text) {
  if (text == "idle") return Waiting::kIdle;
  if (text == "in-flight") return Waiting::kInFlight;
  return std::nullopt;
}

struct Row {
  std::string thread;
  int64_t start_ns = 0;
  Wait wait;
};

std::optional<Row> ParseRow(std::string_view line) {
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(line.data(), line.size()), ',');
  if (fields.size() != 6) return std::nullopt;
  const auto start_ns = ParseNs(fields[1]);
  const auto what = ParseWaiting(fields[2]);
  const auto waited_ns = ParseNs(fields[3]);
  const bool slept_known = fields[4] == "0" || fields[4] == "1";
  const auto ready = ParseNumber<uint64_t>(fields[5], 16);
  if (fields[0].empty() || !start_ns || !what || !waited_ns || !slept_known || !ready)
    return std::nullopt;
  return Row{.thread = fields[0],
             .start_ns = *start_ns,
             .wait = {.what = *what, .waited_ns = *waited_ns, .ready = *ready}};
}

// Reads line by line and trusts none of them.
class Reader {
 public:
  Reader(std::istream& file, const std::string& path) : file_(file), path_(path) {}

  absl::StatusOr<Family> Read() {
    RINGSIDE_RETURN_IF_ERROR(ReadHeader());
    while (Next()) {
      if (!line_.starts_with('#')) RINGSIDE_RETURN_IF_ERROR(ReadRow());
    }
    if (family_.traces.empty()) {
      return BadInput("'%s' holds no waits; record while the guest runs I/O", path_);
    }
    return std::move(family_);
  }

 private:
  struct Thread {
    size_t place = 0;    // in the family
    int64_t end_ns = 0;  // of its last wait
  };

  bool Next() {
    ++number_;
    return static_cast<bool>(std::getline(file_, line_));
  }

  absl::Status ReadHeader() {
    if (!Next() || !std::string_view(line_).starts_with(kFormat)) {
      return BadInput("'%s' is no poll trace; give a file that --poll-trace wrote", path_);
    }
    if (std::string_view(line_).substr(kFormat.size()) != kVersion) {
      return BadInput("'%s' is a poll trace of version '%s'; this simulator reads version %s",
                      path_, line_.substr(kFormat.size()), std::string(kVersion));
    }
    return absl::OkStatus();
  }

  absl::Status ReadRow() {
    // Without its end a line may be cut short, and look whole.
    const std::optional<Row> row = file_.eof() ? std::nullopt : ParseRow(line_);
    if (!row) {
      return BadInput("'%s' is damaged or truncated at line %d; record it again", path_, number_);
    }
    const auto [found, is_new] = threads_.try_emplace(row->thread);
    Thread& thread = found->second;
    if (is_new) {
      thread.place = family_.traces.size();
      family_.traces.push_back({.name = row->thread});
    }
    std::vector<Wait>& waits = family_.traces[thread.place].waits;
    if (!is_new) {
      if (row->start_ns < thread.end_ns) {
        return BadInput(
            "'%s' has a wait at line %d that begins before the thread's last one ended; "
            "record it again",
            path_, number_);
      }
      waits.back().busy_ns = row->start_ns - thread.end_ns;
    }
    waits.push_back(row->wait);
    thread.end_ns = row->start_ns + row->wait.waited_ns;
    return absl::OkStatus();
  }

  std::istream& file_;
  const std::string path_;
  std::string line_;
  int number_ = 0;
  Family family_ = {.name = "recorded"};
  std::map<std::string, Thread> threads_;
};

}  // namespace

absl::StatusOr<Family> ReadPollTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) {
    const absl::Status status = ErrnoError(errno, absl::StrFormat("cannot open '%s'", path),
                                           "give a file that --poll-trace wrote");
    return absl::InvalidArgumentError(status.message());
  }
  return ReadPollTrace(file, path);
}

absl::StatusOr<Family> ReadPollTrace(std::istream& file, const std::string& path) {
  return Reader(file, path).Read();
}

}  // namespace ringside
