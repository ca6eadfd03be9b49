#include "command/run_options.h"

#include <CLI/CLI.hpp>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "vmm/options.h"

namespace ringside {
namespace {

CLI::Option* AddMachineOption(CLI::App& run, RunOptions& options, const std::string& flag,
                              bool repeats) {
  return run.add_option("--" + flag, options.machine[flag])
      ->expected(1)
      ->multi_option_policy(repeats ? CLI::MultiOptionPolicy::TakeAll
                                    : CLI::MultiOptionPolicy::Throw);
}

// What is said of an option in its line of the help.
std::string HelpLine(const OptionDoc& option) {
  std::string line = option.doc;
  if (!option.values.empty()) line += " (" + option.values + ')';
  return line;
}

void AddDocumentedOptions(CLI::App& run, RunOptions& options) {
  for (const OptionGroup& group : OptionGroups()) {
    if (!group.flag.empty()) {
      AddMachineOption(run, options, group.flag, group.repeats)
          ->description(group.doc + (group.repeats ? "; repeatable" : ""))
          ->type_name(group.forms);
      continue;
    }
    for (const OptionDoc& option : group.parts.front().options) {
      AddMachineOption(run, options, option.name, false)
          ->description(HelpLine(option))
          ->type_name(option.placeholder)
          ->default_str(option.unset);
    }
  }
}

void AddOwnOption(CLI::App& run, RunOptions& options, const RunOption& option) {
  const std::string flag = std::string("--") + option.name;
  if (option.text == nullptr) {
    run.add_flag(flag, options.*option.is_on, option.doc);
    return;
  }
  CLI::Option* added = run.add_option(flag, options.*option.text, option.doc);
  added->type_name(option.placeholder);
  if (option.choices.empty()) return;
  added->expected(0, 1)->default_str(option.choices.front());
}

}  // namespace

std::span<const RunOption> OwnRunOptions() {
  static const std::array<RunOption, 17> kOptions = {{
      {.name = "config",
       .placeholder = "FILE",
       .doc = "read the machine's options from this JSON file; those given here override them, "
              "and a flag that repeats replaces the file's whole list",
       .text = &RunOptions::config},
      {.name = "print-config",
       .placeholder = "",
       .doc = "print the machine's options as JSON for --config, and run nothing",
       .is_on = &RunOptions::print_config},
      {.name = "api-sock",
       .placeholder = "PATH",
       .doc =
           "make this Unix socket, over which 'ringside ctl' and other clients drive the machine "
           "(docs/control.md)",
       .text = &RunOptions::api_sock},
      {.name = "template",
       .placeholder = "DIR",
       .doc = "make machines that go on from the snapshot in this directory, as many as --forks "
              "says; {n} in their options and in --exec stands for a fork's number, from 1 on "
              "(docs/snapshots.md)",
       .text = &RunOptions::template_directory},
      {.name = "forks",
       .placeholder = "N",
       .doc = "how many, 1 to 65536; default: 1",
       .text = &RunOptions::forks},
      {.name = "forks-per-process",
       .placeholder = "N",
       .doc = "how many of them share a process, and so an address space; 1: none; default: 50",
       .text = &RunOptions::forks_per_process},
      {.name = "exec",
       .placeholder = "CMD",
       .doc = "run this command line in each fork by its agent, print what it says behind the "
              "fork's number, and end the fork with it",
       .text = &RunOptions::exec},
      {.name = "record-working-set",
       .placeholder = "",
       .doc = "of a machine that goes on from a snapshot, with forks of the first: note beside the "
              "snapshot at the end which pages it has used, so that later ones have them at once",
       .is_on = &RunOptions::record_working_set},
      {.name = "stats",
       .placeholder = "[FORMAT]",
       .choices = {"table", "json"},
       .doc = "print what was counted at the end: table or json",
       .text = &RunOptions::stats},
      {.name = "explain",
       .placeholder = "[FORMAT]",
       .choices = {"text", "json"},
       .doc =
           "print at the end why each --iothread polled, dozed or slept, and when it interrupted "
           "the guest: text or json",
       .text = &RunOptions::explain},
      {.name = "trace-latency",
       .placeholder = "FILE",
       .doc = "stamp each request of disks, networks and the vsock on its way, and write the "
              "newest 65536 of each queue at the end, for 'ringside report'",
       .text = &RunOptions::trace_latency},
      {.name = "poll-trace",
       .placeholder = "FILE",
       .doc = "write the newest 262144 waits of each --iothread at the end; with poll=always they "
              "are exact, other policies estimate those that were slept",
       .text = &RunOptions::poll_trace},
      {.name = "signal-trace",
       .placeholder = "FILE",
       .doc = "write at the end the newest 65536 events of each queue that have to do with its "
              "interrupts: requests taken, completions shown, interrupts held and raised",
       .text = &RunOptions::signal_trace},
      {.name = "metrics",
       .placeholder = "FILE",
       .doc = "write metrics for Prometheus into this file, as node_exporter's textfile collector "
              "reads them: at once, each --metrics-interval and at the end",
       .text = &RunOptions::metrics},
      {.name = "metrics-interval",
       .placeholder = "TIME",
       .doc = "how often, 1s to 1h; default: 60s",
       .text = &RunOptions::metrics_interval},
      {.name = "events",
       .placeholder = "FILE",
       .doc = "write a line of JSON for each event of the machine's life (started, disk error, "
              "ended, ...) as it happens; FILE may be a pipe that something reads",
       .text = &RunOptions::events},
      {.name = "timing",
       .placeholder = "",
       .doc = "print start-up time and resident memory at the end",
       .is_on = &RunOptions::timing},
  }};
  return kOptions;
}

RunOptions NumberedOptions(const RunOptions& options, uint32_t number) {
  RunOptions numbered = options;
  numbered.fork_number = number;
  numbered.record_working_set = options.record_working_set && number == 1;
  numbered.exec = Numbered(options.exec, number);
  for (auto& [flag, texts] : numbered.machine) {
    for (std::string& text : texts) text = Numbered(text, number);
  }
  return numbered;
}

std::string Numbered(const std::string& text, uint32_t number) {
  // Behind a '$' it is a variable of the guest's shell.
  return absl::StrReplaceAll(text, {{"${n}", "${n}"}, {"{n}", absl::StrCat(number)}});
}

void AddRunOptions(CLI::App& run, RunOptions& options, bool with_help) {
  if (with_help) {
    AddDocumentedOptions(run, options);
  } else {
    for (const OptionFlag& flag : OptionFlags()) {
      AddMachineOption(run, options, flag.name, flag.repeats);
    }
  }
  for (const RunOption& option : OwnRunOptions()) AddOwnOption(run, options, option);
}

}  // namespace ringside
