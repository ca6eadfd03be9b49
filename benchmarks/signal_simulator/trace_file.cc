#include "benchmarks/signal_simulator/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace ringside {
namespace {

constexpr std::string_view kHeader = "# ringside signal trace 1";
constexpr int64_t kMostNs = int64_t{1} << 62;  // of any time: two can be subtracted

template <typename Number>
std::optional<Number> ParseNumber(absl::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

struct Row {
  std::string queue;
  SignalEvent event;
};

std::optional<Row> ParseRow(const std::string& line) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  if (fields.size() != 4 || fields[0].empty()) return std::nullopt;
  const auto ns = ParseNumber<int64_t>(fields[1]);
  const auto* const kind = std::ranges::find(kSignalEventNames, std::string(fields[2]));
  const auto index = ParseNumber<uint16_t>(fields[3]);
  if (!ns || *ns < 0 || *ns > kMostNs || kind == std::end(kSignalEventNames) || !index) {
    return std::nullopt;
  }
  return Row{std::string(fields[0]),
             {*ns, static_cast<SignalEventKind>(kind - kSignalEventNames), *index}};
}

// Reads line by line and trusts none of them.
class Reader {
 public:
  Reader(std::istream& file, const std::string& path) : file_(file), path_(path) {}

  absl::StatusOr<std::vector<SignalTrace>> Read() {
    if (!Next() || line_ != kHeader) {
      return BadInput("'%s' does not begin with '%s'; give a signal trace", path_,
                      std::string(kHeader));
    }
    while (Next()) {
      if (!line_.starts_with('#')) RINGSIDE_RETURN_IF_ERROR(ReadRow());
    }
    if (traces_.empty()) {
      return BadInput("'%s' holds no events; record while the guest runs I/O", path_);
    }
    return std::move(traces_);
  }

 private:
  bool Next() {
    ++number_;
    return static_cast<bool>(std::getline(file_, line_));
  }

  absl::Status ReadRow() {
    // Without its end a line may be cut short, and look whole.
    const std::optional<Row> row = file_.eof() ? std::nullopt : ParseRow(line_);
    if (!row) {
      return BadInput("'%s' is damaged or truncated at line %d; record it again", path_, number_);
    }
    if (++count_ > kMostSignalEvents) {
      return BadInput("'%s' has more than %d events; give the first part of it", path_,
                      kMostSignalEvents);
    }
    const auto [place, is_new] = places_.try_emplace(row->queue, traces_.size());
    if (is_new) traces_.push_back({.queue = row->queue});
    std::vector<SignalEvent>& events = traces_[place->second].events;
    if (!is_new && row->event.ns < events.back().ns) {
      return BadInput("'%s' goes back in time at line %d; record it again", path_, number_);
    }
    events.push_back(row->event);
    return absl::OkStatus();
  }

  std::istream& file_;
  const std::string path_;
  std::string line_;
  int number_ = 0;
  size_t count_ = 0;
  std::vector<SignalTrace> traces_;
  std::map<std::string, size_t> places_;
};

}  // namespace

std::string SignalTraceText(const SignalTrace& trace) {
  std::string text(kHeader);
  text += "\n# queue,ns,event,index\n";
  for (const SignalEvent& event : trace.events) {
    absl::StrAppendFormat(&text, "%s,%d,%s,%d\n", trace.queue, event.ns,
                          kSignalEventNames[static_cast<size_t>(event.kind)], event.index);
  }
  return text;
}

absl::StatusOr<std::vector<SignalTrace>> ReadSignalTraces(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) {
    const absl::Status status =
        ErrnoError(errno, absl::StrFormat("cannot open '%s'", path), "give a signal trace");
    return absl::InvalidArgumentError(status.message());
  }
  return ReadSignalTraces(file, path);
}

absl::StatusOr<std::vector<SignalTrace>> ReadSignalTraces(std::istream& file,
                                                          const std::string& path) {
  return Reader(file, path).Read();
}

}  // namespace ringside
