// The command line of `ringside run`: the options of the machine, which the library defines
// (vmm/options.h), and those that say what else the command does with it, which are defined here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace ringside {

// As given on the command line.
struct RunOptions {
  std::map<std::string, std::vector<std::string>> machine;  // by flag, "disk"
  std::string config;                                       // a file; empty: none
  std::optional<std::string> config_text;                   // what is in it; none: it is not read
  bool print_config = false;
  std::string stats;             // empty, table or json
  std::string explain;           // empty, text or json
  std::string trace_latency;     // a file; empty: no trace
  std::string poll_trace;        // likewise
  std::string signal_trace;      // likewise
  std::string events;            // likewise
  std::string metrics;           // a file; empty: none
  std::string metrics_interval;  // empty: 60 s
  bool timing = false;
  std::string api_sock;  // a path; empty: no control socket
  // Of many machines that go on from one (command/forks_command.h).
  std::string template_directory;   // empty: there is one machine
  std::string forks;                // a number; empty: 1
  std::string forks_per_process;    // likewise; empty: as ForkCounts
  std::string exec;                 // a command line for each guest's shell; empty: none
  bool record_working_set = false;  // of the machine at its end; of forks the first
  uint32_t fork_number = 0;         // see NumberedOptions; 0: it is none
  bool serve = false;               // the command is `serve`: clients have the machine started
};

// As they are for the fork of that number, which stands for "{n}" in all that is said of the
// machine, here and in the file `config`, and in its command.
RunOptions NumberedOptions(const RunOptions& options, uint32_t number);
std::string Numbered(const std::string& text, uint32_t number);

// One of the command's own: a switch without a value, or a text.
struct RunOption {
  const char* name;
  const char* placeholder;           // of its value; empty: a switch
  std::vector<const char*> choices;  // of its value, the first if there is none; empty: any text
  const char* doc;
  bool RunOptions::* is_on = nullptr;
  std::string RunOptions::* text = nullptr;
};

std::span<const RunOption> OwnRunOptions();
// `options` is filled when `run` parses, and until then has to stay where it is. Only with their
// help do options have documentation, which a start can do without.
void AddRunOptions(CLI::App& run, RunOptions& options, bool with_help);

}  // namespace ringside
