#include "command/fork_results.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "command/exit_codes.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

constexpr size_t kMostErrors = 10;  // that are said one by one
constexpr double kNsPerMs = 1e6;

Json TimeOf(const std::optional<int64_t>& ns) {
  return ns.has_value() ? Json(*ns) : Json(nullptr);
}

std::optional<int64_t> TimeOf(const Json& ns) {
  if (ns.is_null()) return std::nullopt;
  return ns.get<int64_t>();
}

std::string MsText(const std::optional<int64_t>& ns) {
  return ns.has_value() ? absl::StrFormat("%.2f", static_cast<double>(*ns) / kNsPerMs) : "-";
}

// " in 1.20 ms (median; longest 3.40)", or nothing of none.
std::string TimesText(const std::vector<ForkResult>& results,
                      std::optional<int64_t> ForkResult::* time) {
  std::vector<int64_t> times;
  for (const ForkResult& result : results) {
    if ((result.*time).has_value()) times.push_back(*(result.*time));
  }
  if (times.empty()) return "";
  std::ranges::sort(times);
  return absl::StrFormat(" in %s ms (median; longest %s)", MsText(times[(times.size() - 1) / 2]),
                         MsText(times.back()));
}

Json JsonOf(const ForkResult& result) {
  return {{"fork", result.number},         {"process", result.process},
          {"up_ns", TimeOf(result.up_ns)}, {"ended_ns", TimeOf(result.ended_ns)},
          {"exit_code", result.code},      {"error", result.error}};
}

}  // namespace

std::string LineOf(const ForkResult& result) {
  return JsonLine(JsonOf(result));
}

std::optional<ForkResult> ReadForkLine(std::string_view line) {
  try {
    const Json json = Json::parse(line);
    return ForkResult{.number = json.at("fork").get<uint32_t>(),
                      .process = json.at("process").get<pid_t>(),
                      .up_ns = TimeOf(json.at("up_ns")),
                      .ended_ns = TimeOf(json.at("ended_ns")),
                      .code = json.at("exit_code").get<int>(),
                      .error = json.at("error").get<std::string>()};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void ForkResults::Take(const ForkResult& result) {
  if (result.number == 0 || result.number > results_.size()) return;
  ForkResult& known = results_[result.number - 1];
  const auto is_over = [](const ForkResult& it) { return it.ended_ns || !it.error.empty(); };
  if (!known.up_ns && result.up_ns) ++up_;
  if (!is_over(known) && is_over(result)) ++over_;
  known = result;
}

void ForkResults::Lost(uint32_t first, uint32_t last, pid_t process, const std::string& why) {
  for (uint32_t number = first; number <= last; ++number) {
    ForkResult result = results_[number - 1];
    if (result.ended_ns || !result.error.empty()) continue;
    result.number = number;
    result.process = process;
    result.code = kExitFailure;
    result.error = why;
    Take(result);
  }
}

int ForkResults::exit_code() const {
  const auto failed = std::ranges::find_if(results_, [](auto& result) { return result.code != 0; });
  return failed == results_.end() ? kExitOk : failed->code;
}

std::vector<std::string> ForkResults::Errors() const {
  std::vector<std::string> errors;
  size_t more = 0;
  for (const ForkResult& result : results_) {
    if (result.error.empty()) continue;
    if (errors.size() < kMostErrors) {
      errors.push_back(absl::StrFormat("fork %d: %s", result.number, result.error));
    } else {
      ++more;
    }
  }
  if (more > 0) errors.push_back(absl::StrFormat("%d more forks failed (see --stats json)", more));
  return errors;
}

std::string ForkResults::Summary(uint32_t processes) const {
  const auto failed =
      std::ranges::count_if(results_, [](auto& result) { return !result.error.empty(); });
  return absl::StrFormat("%d of %d forks came up%s in %d process%s, were over%s; %d failed", up_,
                         results_.size(), TimesText(results_, &ForkResult::up_ns), processes,
                         processes == 1 ? "" : "es", TimesText(results_, &ForkResult::ended_ns),
                         failed);
}

Json ForkResults::ToJson() const {
  Json list = Json::array();
  for (const ForkResult& result : results_) list.push_back(JsonOf(result));
  return {{"forks", std::move(list)}};
}

std::string ForkResults::Table() const {
  std::string table =
      absl::StrFormat("%6s %9s %10s %10s %6s\n", "fork", "process", "up, ms", "over, ms", "code");
  for (const ForkResult& result : results_) {
    absl::StrAppendFormat(&table, "%6d %9d %10s %10s %6d  %s\n", result.number, result.process,
                          MsText(result.up_ns), MsText(result.ended_ns), result.code,
                          Printable(result.error));
  }
  return table;
}

}  // namespace ringside
