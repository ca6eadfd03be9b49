#include "command/latency_file.h"

#include <cerrno>
#include <fstream>
#include <optional>

#include "base/bad_input_errno.h"
#include "base/status.h"
#include "devices/latency_trace.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

constexpr char kFormat[] = "ringside latency trace";
constexpr uint64_t kVersion = 2;
constexpr size_t kColumns = 3 + kLatencyPoints;
constexpr size_t kMaxLine = 1 << 16;  // more than the longest path takes

Json Columns() {
  Json columns = {"queue", "kind", "bytes"};
  for (size_t point = 0; point < kLatencyPoints; ++point) {
    columns.push_back(LatencyPointName(static_cast<LatencyPoint>(point)));
  }
  return columns;
}

// Reads line by line and trusts none of them.
class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), file_(path), line_(kMaxLine) {}

  absl::StatusOr<std::vector<QueueLatencies>> Read() {
    if (!file_.is_open()) {
      return BadInputErrno(errno, absl::StrFormat("cannot open '%s'", path_),
                           "give a file that --trace-latency wrote");
    }
    const Json header = Next();
    if (Text(header, "format") != kFormat) {
      return BadInput("'%s' is no latency trace; give a file that --trace-latency wrote", path_);
    }
    if (Number(header, "version") != kVersion) {
      return BadInput("'%s' is a latency trace of another version; this ringside reads version %d",
                      path_, kVersion);
    }
    const auto queues = Number(header, "queues");
    const auto records = Number(header, "records");
    if (!queues || !records) return Damaged();
    for (uint64_t i = 0; i < *queues; ++i) {
      if (!ReadQueue()) return Damaged();
    }
    for (uint64_t i = 0; i < *records; ++i) {
      if (!ReadRecord()) return Damaged();
    }
    if (file_.peek() != std::ifstream::traits_type::eof()) return Damaged();
    return std::move(queues_);
  }

 private:
  // Discarded if there is none or it is no JSON.
  Json Next() {
    file_.getline(line_.data(), static_cast<std::streamsize>(line_.size()));
    ++number_;
    // Without its end a line may be cut short, and look whole.
    if (!file_.good()) return Json(Json::value_t::discarded);
    return Json::parse(line_.data(), line_.data() + file_.gcount() - 1, nullptr,
                       /*allow_exceptions=*/false);
  }
  absl::Status Damaged() const {
    return BadInput("'%s' is damaged or truncated at line %d; record it again", path_, number_);
  }

  static std::optional<uint64_t> Number(const Json& json) {
    if (!json.is_number_unsigned() || json.get<uint64_t>() > INT64_MAX) return std::nullopt;
    return json.get<uint64_t>();
  }
  static std::optional<uint64_t> Number(const Json& object, const char* key) {
    return object.is_object() && object.contains(key) ? Number(object[key]) : std::nullopt;
  }
  static std::optional<std::string> Text(const Json& object, const char* key) {
    if (!object.is_object() || !object.contains(key)) return std::nullopt;
    const Json& value = object[key];
    return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
  }

  bool ReadQueue() {
    const Json json = Next();
    const auto device = Text(json, "device");
    const auto path = Text(json, "path");
    const auto queue = Number(json, "queue");
    const auto overwritten = Number(json, "overwritten");
    if (!device || !path || !queue || *queue > UINT16_MAX || !overwritten) return false;
    queues_.push_back({.device = *device,
                       .path = *path,
                       .queue = static_cast<uint16_t>(*queue),
                       .overwritten = *overwritten});
    return true;
  }

  bool ReadRecord() {
    const Json json = Next();
    if (!json.is_array() || json.size() != kColumns) return false;
    const auto queue = Number(json[0]);
    const auto kind = Kind(json[1]);
    const auto bytes = Number(json[2]);
    if (!queue || *queue >= queues_.size() || !kind || !bytes) return false;
    LatencyRecord record = {.kind = *kind, .bytes = *bytes};
    for (size_t point = 0; point < kLatencyPoints; ++point) {
      const auto at_ns = Number(json[3 + point]);
      if (!at_ns) return false;
      record.at_ns[point] = static_cast<int64_t>(*at_ns);
    }
    queues_[*queue].records.push_back(record);
    return true;
  }

  static std::optional<RequestKind> Kind(const Json& json) {
    for (size_t i = 0; i < kRequestKinds; ++i) {
      const auto kind = static_cast<RequestKind>(i);
      if (json == RequestKindName(kind)) return kind;
    }
    return std::nullopt;
  }

  const std::string path_;
  std::ifstream file_;
  std::vector<char> line_;
  uint64_t number_ = 0;
  std::vector<QueueLatencies> queues_;
};

}  // namespace

void WriteLatencies(const std::vector<QueueLatencies>& queues, std::ostream& file) {
  size_t total = 0;
  for (const QueueLatencies& queue : queues) total += queue.records.size();
  file << JsonLine({{"format", kFormat},
                    {"version", kVersion},
                    {"queues", queues.size()},
                    {"records", total},
                    {"columns", Columns()}});
  for (const QueueLatencies& queue : queues) {
    file << JsonLine({{"device", queue.device},
                      {"path", queue.path},
                      {"queue", queue.queue},
                      {"records", queue.records.size()},
                      {"overwritten", queue.overwritten}});
  }
  for (size_t i = 0; i < queues.size(); ++i) {
    for (const LatencyRecord& record : queues[i].records) {
      file << '[' << i << ",\"" << RequestKindName(record.kind) << "\"," << record.bytes;
      for (const int64_t at_ns : record.at_ns) file << ',' << at_ns;
      file << "]\n";
    }
  }
}

absl::StatusOr<std::vector<QueueLatencies>> ReadLatencies(const std::string& path) {
  return Reader(path).Read();
}

}  // namespace ringside
