#include "benchmarks/poll_simulator/options.h"

#include <algorithm>
#include <cmath>

#include "absl/time/time.h"
#include "base/nearest.h"
#include "base/status.h"
#include "benchmarks/poll_simulator/trace_file.h"

namespace ringside {
namespace {

constexpr int64_t kMostWaits = 1'000'000;
constexpr double kLeastPrice = 0.001, kMostPrice = 1000;

absl::StatusOr<int64_t> ParseNs(const char* option, const std::string& text, absl::Duration least) {
  absl::Duration duration;
  if (!absl::ParseDuration(absl::string_view(text.data(), text.size()), &duration) ||
      duration < least || duration > absl::Seconds(1)) {
    return BadInput("%s '%s' cannot be; give a time from %s to 1s, such as 8us", option, text,
                    absl::FormatDuration(least));
  }
  return absl::ToInt64Nanoseconds(duration);
}

absl::Status Unknown(const char* option, const std::string& word,
                     const std::vector<std::string>& known) {
  return BadInput("%s '%s' is unknown; did you mean '%s'?", option, word, Nearest(word, known));
}

absl::StatusOr<std::vector<Host>> ParseHosts(const SimulatorOptions& options) {
  std::vector<Host> hosts;
  for (const Host& host : {kBareMetal, kSlow}) {
    if (options.host == host.name || options.host == "both") hosts.push_back(host);
  }
  if (hosts.empty()) {
    return Unknown("--host", options.host, {kBareMetal.name, kSlow.name, "both"});
  }
  if (options.wake.empty() && options.sleep_cpu.empty()) return hosts;
  // A sleep that costs nothing would make all else infinitely dear.
  Host own = {"own", hosts.front().sleep};
  if (!options.wake.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(own.sleep.wake_ns,
                              ParseNs("--wake", options.wake, absl::Nanoseconds(1)));
    own.sleep.kick_ns = own.sleep.wake_ns;
  }
  if (!options.sleep_cpu.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(own.sleep.cpu_ns,
                              ParseNs("--sleep-cpu", options.sleep_cpu, absl::Nanoseconds(1)));
  }
  return std::vector{own};
}

absl::StatusOr<std::vector<PollKind>> ParsePolicies(const std::vector<std::string>& words) {
  std::vector<PollKind> policies;
  std::vector<std::string> names;
  for (const PollKind kind : kAllPolicies) names.emplace_back(PollKindName(kind));
  for (const std::string& word : words) {
    const auto found = std::ranges::find(names, word);
    if (found == names.end()) return Unknown("--policies", word, names);
    const PollKind kind = kAllPolicies[found - names.begin()];
    if (std::ranges::find(policies, kind) == policies.end()) policies.push_back(kind);
  }
  return policies;
}

absl::StatusOr<std::vector<std::string>> ParseFamilies(const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    const std::vector<std::string>& names = FamilyNames();
    if (std::ranges::find(names, word) == names.end()) return Unknown("--family", word, names);
  }
  std::vector<std::string> families;  // each once, in the order of reports
  for (const std::string& name : FamilyNames()) {
    if (std::ranges::find(words, name) != words.end()) families.push_back(name);
  }
  return families;
}

}  // namespace

absl::StatusOr<SimulationSettings> ParseOptions(const SimulatorOptions& options) {
  SimulationSettings settings;
  RINGSIDE_ASSIGN_OR_RETURN(settings.hosts, ParseHosts(options));
  RINGSIDE_ASSIGN_OR_RETURN(settings.poll.max_ns,
                            ParseNs("--max", options.max, absl::ZeroDuration()));
  if (!(options.price >= kLeastPrice && options.price <= kMostPrice)) {
    return BadInput("--price %g cannot be; give %g to %g", options.price, kLeastPrice, kMostPrice);
  }
  settings.poll.price = options.price;
  if (options.waits < 1 || options.waits > kMostWaits) {
    return BadInput("--waits %d cannot be; give 1 to %d", options.waits, kMostWaits);
  }
  settings.made_up = {.waits = static_cast<size_t>(options.waits),
                      .seed = static_cast<uint64_t>(options.seed)};
  settings.sweep = options.sweep;
  if (!options.policies.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(settings.policies, ParsePolicies(options.policies));
  }
  if (!options.families.empty() || !options.trace.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(settings.families, ParseFamilies(options.families));
  }
  if (!options.trace.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(settings.recorded, ReadPollTrace(options.trace));
  }
  return settings;
}

}  // namespace ringside
