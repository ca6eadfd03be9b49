// The poll policy simulator: what each policy of an I/O thread would cost on given waits, and what
// it could have cost at best. docs/polling.md, "The simulator", tells what it models and reports.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_join.h"
#include "base/nearest.h"
#include "base/status.h"
#include "benchmarks/poll_simulator/check.h"
#include "benchmarks/poll_simulator/options.h"
#include "benchmarks/poll_simulator/report.h"
#include "command/exit_codes.h"

namespace ringside {
namespace {

constexpr char kHelp[] =
    "A cost is the latency added + price x CPU time burnt. 'best' is that of a clairvoyant who\n"
    "looks until the event or sleeps at once; 'dozing' of one who may also wake just in time.\n\n"
    "Examples:\n"
    "  poll_simulator\n"
    "  poll_simulator --host slow --family poisson,periodic --policies never,grow-shrink,cost\n"
    "  poll_simulator --wake 12us --sleep-cpu 5us --price 0.5\n"
    "  ringside run --kernel vmlinuz --disk path=root.img --poll-trace waits.csv\n"
    "  poll_simulator --trace waits.csv --host slow\n"
    "  poll_simulator --sweep --json result.json && benchmarks/poll_simulator/plot.py result.json\n"
    "  poll_simulator --check\n\n"
    "Exit codes: 0 done, 1 --check found a promise broken, 2 bad input.";

struct Command {
  SimulatorOptions options;
  std::string json;
  bool check = false;
};

int Fail(std::string_view line) {
  std::fprintf(stderr, "poll_simulator: %.*s\n", static_cast<int>(line.size()), line.data());
  return kExitBadInput;
}

// Returns those that a check has no use for.
std::vector<CLI::Option*> AddOptions(CLI::App& app, Command& command) {
  SimulatorOptions& options = command.options;
  app.add_option("--waits", options.waits, "of each trace that is made up")->default_str("20000");
  app.add_option("--seed", options.seed, "of the random numbers")->default_str("1");
  app.add_flag("--check", command.check,
               "try what 'cost' promises: all families, both hosts, price 1");
  return {app.add_option("--host", options.host, "what a sleep costs: bare-metal, slow or both")
              ->type_name("NAME")
              ->default_str("both"),
          app.add_option("--wake", options.wake,
                         "from an event until a sleeping thread runs, on a host of your own")
              ->type_name("TIME")
              ->default_str("6us"),
          app.add_option("--sleep-cpu", options.sleep_cpu, "CPU time of a sleep there")
              ->type_name("TIME")
              ->default_str("4us"),
          app.add_option("--price", options.price, "what CPU time is worth, in latency")
              ->type_name("FACTOR")
              ->default_str("1"),
          app.add_option("--max", options.max, "limit of fixed, grow-shrink and weighted")
              ->type_name("TIME")
              ->default_str("32us"),
          app.add_option("--policies", options.policies,
                         "of never, always, fixed, grow-shrink, weighted, cost")
              ->type_name("NAME,...")
              ->delimiter(',')
              ->default_str("all"),
          app.add_option("--family", options.families, "of " + absl::StrJoin(FamilyNames(), ", "))
              ->type_name("NAME,...")
              ->delimiter(',')
              ->default_str("all"),
          app.add_option("--trace", options.trace,
                         "what 'ringside run --poll-trace' wrote, instead of the families")
              ->type_name("FILE"),
          app.add_flag("--sweep", options.sweep, "fixed with limits from 0 to 128 us as well"),
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

int Check(const SimulatorOptions& options) {
  absl::StatusOr<SimulationSettings> parsed = ParseOptions(options);
  if (!parsed.ok()) return Fail(Message(parsed.status()));
  const Verdict verdict = CheckPromises(Simulate(CheckSettings(parsed->made_up)));
  std::fputs(verdict.table.c_str(), stdout);
  for (const std::string& offence : verdict.offences) std::printf("BROKEN: %s\n", offence.c_str());
  if (!verdict.offences.empty()) return kExitFailure;
  std::puts("All promises of cost were kept.");
  return kExitOk;
}

int Run(const Command& command) {
  const absl::StatusOr<SimulationSettings> settings = ParseOptions(command.options);
  if (!settings.ok()) return Fail(Message(settings.status()));
  std::ofstream json;
  if (!command.json.empty()) {
    json.open(command.json);
    if (!json.is_open()) {
      return Fail(
          Message(ErrnoError(errno, absl::StrFormat("--json cannot write '%s'", command.json))));
    }
  }
  const std::vector<HostResult> hosts = Simulate(*settings);
  std::fputs(SimulationTable(*settings, hosts).c_str(), stdout);
  if (command.json.empty()) return kExitOk;
  json << SimulationJson(*settings, hosts);
  json.close();
  return json.good() ? kExitOk
                     : Fail(absl::StrFormat("--json could not write all of '%s'", command.json));
}

}  // namespace
}  // namespace ringside

int main(int argc, char** argv) {
  ringside::Command command;
  CLI::App app("What each way of waiting costs an I/O thread, on waits recorded or made up.",
               "poll_simulator");
  const std::vector<CLI::Option*> not_for_check = ringside::AddOptions(app, command);
  app.footer(ringside::kHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return ringside::ReportParseError(app, error);
  }
  if (!command.check) return ringside::Run(command);
  for (const CLI::Option* option : not_for_check) {
    if (option->count() == 0) continue;
    return ringside::Fail(option->get_name() + " does not go with --check; leave it out");
  }
  return ringside::Check(command.options);
}
