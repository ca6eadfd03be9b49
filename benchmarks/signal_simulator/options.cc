#include "benchmarks/signal_simulator/options.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/nearest.h"
#include "base/status.h"
#include "benchmarks/signal_simulator/families.h"
#include "benchmarks/signal_simulator/trace_file.h"

namespace ringside {
namespace {

constexpr double kMostPrice = 1000;

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

// Each once, in the order of reports.
absl::StatusOr<std::vector<SignallerKind>> ParsePolicies(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const SignallerKind kind : kAllSignallers) names.emplace_back(SignallerName(kind));
  for (const std::string& word : words) {
    if (std::ranges::find(names, word) == names.end()) return Unknown("--policies", word, names);
  }
  std::vector<SignallerKind> policies;
  for (const SignallerKind kind : kAllSignallers) {
    const bool wanted =
        words.empty() || std::ranges::find(words, SignallerName(kind)) != words.end();
    if (wanted) policies.push_back(kind);
  }
  return policies;
}

absl::StatusOr<std::vector<Scenario>> ParseScenarios(const SignalSimulatorOptions& options) {
  const std::vector<std::string>& names = SignalFamilyNames();
  for (const std::string& word : options.families) {
    if (std::ranges::find(names, word) == names.end()) return Unknown("--family", word, names);
  }
  std::vector<Scenario> scenarios;
  for (const std::string& name : names) {
    const std::vector<std::string>& words = options.families;
    if (!words.empty() && std::ranges::find(words, name) == words.end()) continue;
    std::ranges::copy_if(MakeSignalFamily(name), std::back_inserter(scenarios),
                         [&](const Scenario& scenario) {
                           return absl::StrContains(scenario.name, options.scenario);
                         });
  }
  if (!scenarios.empty()) return scenarios;
  return BadInput("--scenario '%s' is in no scenario's name; leave it out to see all names",
                  options.scenario);
}

}  // namespace

absl::StatusOr<SignalSettings> ParseSignalOptions(const SignalSimulatorOptions& options) {
  SignalSettings settings;
  RINGSIDE_ASSIGN_OR_RETURN(settings.policies, ParsePolicies(options.policies));
  RINGSIDE_ASSIGN_OR_RETURN(settings.scenarios, ParseScenarios(options));
  RINGSIDE_ASSIGN_OR_RETURN(settings.run.length_ns,
                            ParseNs("--length", options.length, absl::Milliseconds(1)));
  settings.run.warm_up_ns = settings.run.length_ns / 4;
  RINGSIDE_ASSIGN_OR_RETURN(settings.run.signaller.signal_cost_ns,
                            ParseNs("--signal-cost", options.signal_cost, absl::Nanoseconds(1)));
  RINGSIDE_ASSIGN_OR_RETURN(settings.run.signaller.silence_ns,
                            ParseNs("--silence", options.silence, absl::Nanoseconds(1)));
  if (!(options.price >= 0 && options.price <= kMostPrice)) {
    return BadInput("--price %g cannot be; give 0 to %g", options.price, kMostPrice);
  }
  settings.price = {.signal_ns = static_cast<double>(settings.run.signaller.signal_cost_ns),
                    .per_ns = options.price};
  settings.run.seed = static_cast<uint64_t>(options.seed);
  if (!options.trace.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(settings.recorded, ReadSignalTraces(options.trace));
  }
  return settings;
}

}  // namespace ringside
