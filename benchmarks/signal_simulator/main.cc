// The signal policy simulator: how a guest fares with each way of raising its interrupts.
// docs/signalling.md, "The simulator", tells what it models and reports.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_join.h"
#include "base/nearest.h"
#include "base/status.h"
#include "benchmarks/signal_simulator/check.h"
#include "benchmarks/signal_simulator/families.h"
#include "benchmarks/signal_simulator/options.h"
#include "benchmarks/signal_simulator/report.h"
#include "benchmarks/signal_simulator/trace_file.h"
#include "command/exit_codes.h"

namespace ringside {
namespace {

constexpr char kHelp[] =
    "A line has the first policy's kIOPS, and then of each policy its part of that and, in\n"
    "brackets, how many completions an interrupt brought.\n\n"
    "Examples:\n"
    "  signal_simulator\n"
    "  signal_simulator --family serial,shared --policies early,cost\n"
    "  signal_simulator --scenario 'mid, disk 20us, depth 32' --detail\n"
    "  signal_simulator --json result.json\n"
    "  signal_simulator --scenario 'mid, disk 20us, depth 8' --family serial --policies cost \\\n"
    "    --record trace.csv && signal_simulator --trace trace.csv\n"
    "  signal_simulator --check\n\n"
    "Exit codes: 0 done, 1 --check found a promise broken, 2 bad input.";

struct Command {
  SignalSimulatorOptions options;
  std::string json;
  std::string record;
  bool detail = false;
  bool check = false;
};

int Fail(std::string_view line) {
  std::fprintf(stderr, "signal_simulator: %.*s\n", static_cast<int>(line.size()), line.data());
  return kExitBadInput;
}

// Returns those that a check has no use for.
std::vector<CLI::Option*> AddOptions(CLI::App& app, Command& command) {
  SignalSimulatorOptions& options = command.options;
  app.add_option("--length", options.length, "of what is measured, after a quarter of it")
      ->type_name("TIME")
      ->default_str("60ms");
  app.add_option("--seed", options.seed, "of the random numbers")->default_str("1");
  app.add_flag("--check", command.check, "try what 'cost' promises, in all scenarios");
  return {
      app.add_option("--family", options.families, "of " + absl::StrJoin(SignalFamilyNames(), ", "))
          ->type_name("NAME,...")
          ->delimiter(',')
          ->default_str("all"),
      app.add_option("--scenario", options.scenario, "those with this in their name")
          ->type_name("TEXT"),
      app.add_option("--policies", options.policies,
                     "of early, batched, priced, busy, ladder, cost")
          ->type_name("NAME,...")
          ->delimiter(',')
          ->default_str("all"),
      app.add_option("--signal-cost", options.signal_cost,
                     "an interrupt's, for priced, for ladder and for traces")
          ->type_name("TIME")
          ->default_str("5us"),
      app.add_option("--silence", options.silence, "for busy and ladder: then a guest is idle")
          ->type_name("TIME")
          ->default_str("30us"),
      app.add_option("--price", options.price,
                     "of a completion's delay, against the cost of a signal: for traces")
          ->type_name("FACTOR")
          ->default_str("0.1"),
      app.add_option("--trace", options.trace, "a recorded one, instead of the scenarios")
          ->type_name("FILE"),
      app.add_option("--record", command.record, "write the trace of one scenario and one policy")
          ->type_name("FILE"),
      app.add_flag("--detail", command.detail, "a table for each scenario"),
      app.add_option("--json", command.json, "write everything to this file, too")
          ->type_name("FILE")};
}

int ReportParseError(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining();
  if (unknown.empty()) return Fail(error.what());
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) known.push_back(option->get_name());
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  return Fail(absl::StrFormat("'%s' is unknown; did you mean '%s'?", word, Nearest(word, known)));
}

int Check(const SignalSettings& settings) {
  const std::vector<CaseResult> cases =
      SimulateAll(settings.scenarios, kCheckedPolicies, settings.run);
  std::fputs(SignalSummary(kCheckedPolicies, cases).c_str(), stdout);
  const std::vector<std::string> offences = CheckPromises(cases);
  for (const std::string& offence : offences) std::printf("BROKEN: %s\n", offence.c_str());
  if (!offences.empty()) return kExitFailure;
  std::puts("All promises of cost were kept.");
  return kExitOk;
}

// Writes `text` to the file that `option` names.
int Write(const char* option, const std::string& path, const std::string& text) {
  std::ofstream file(path);
  if (!file.is_open()) {
    return Fail(Message(ErrnoError(errno, absl::StrFormat("%s cannot write '%s'", option, path))));
  }
  file << text;
  file.close();
  if (file.good()) return kExitOk;
  return Fail(absl::StrFormat("%s could not write all of '%s'", option, path));
}

int Record(const SignalSettings& settings, const std::string& path) {
  if (settings.scenarios.size() != 1 || settings.policies.size() != 1) {
    return Fail(absl::StrFormat(
        "--record is of one scenario and one policy, not of %d and %d; name them with --family, "
        "--scenario and --policies",
        settings.scenarios.size(), settings.policies.size()));
  }
  SignalTrace trace = {.queue = SignallerName(settings.policies[0])};
  Simulate(settings.scenarios[0], settings.policies[0], settings.run, &trace);
  return Write("--record", path, SignalTraceText(trace));
}

int Run(const Command& command) {
  const absl::StatusOr<SignalSettings> settings = ParseSignalOptions(command.options);
  if (!settings.ok()) return Fail(Message(settings.status()));
  if (command.check) return Check(*settings);
  if (!command.record.empty()) return Record(*settings, command.record);
  if (!settings->recorded.empty()) {
    std::fputs(SignalTraceTable(settings->policies, settings->run.signaller, settings->price,
                                settings->recorded)
                   .c_str(),
               stdout);
    return kExitOk;
  }
  const std::vector<CaseResult> cases =
      SimulateAll(settings->scenarios, settings->policies, settings->run);
  const std::string table = command.detail ? SignalTables(settings->policies, cases)
                                           : SignalSummary(settings->policies, cases);
  std::fputs(table.c_str(), stdout);
  if (command.json.empty()) return kExitOk;
  return Write("--json", command.json, SignalJson(settings->policies, settings->run, cases));
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  ringside::Command command;
  CLI::App app("How a guest fares with each way of raising its interrupts, in a model.",
               "signal_simulator");
  const std::vector<CLI::Option*> not_for_check = ringside::AddOptions(app, command);
  app.footer(ringside::kHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return ringside::ReportParseError(app, error);
  }
  for (const CLI::Option* option : not_for_check) {
    if (!command.check || option->count() == 0) continue;
    return ringside::Fail(option->get_name() + " does not go with --check; leave it out");
  }
  return ringside::Run(command);
}
