// Every option of a machine that can be written down, by name: what `ringside run` takes on its
// command line and in the JSON of `--config`.
//
//   MachineOptions options;
//   absl::StatusOr<Json> file = ParseConfigJson(text);
//   if (file.ok() && ReadOptions(*file, options).ok()) { ... options.machine ... }
//
// Names, types, ranges, defaults and a line of documentation stand in tables (vmm/option_table.h);
// the command line, its help, the JSON, its schema and docs/options.md are made from them. What is
// out of range is refused where it is read, and again where a machine is made of a struct.
//
// Threads: any, each with its own objects. Errors: as in vmm/option_type.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ringside/config.h"
#include "vmm/option_type.h"

namespace ringside {

// A text that a file may begin with: where its schema is, for the editor it is written in.
inline constexpr char kSchemaKey[] = "$schema";

// Where COM1 leads; whoever runs the machine opens it, and fills MachineConfig::console.
struct SerialOptions {
  enum class Target { kStdio, kNone, kFile };

  Target target = Target::kStdio;
  // Of kFile. What would make the file longer than its limit is dropped.
  std::string file;
  uint64_t limit = 64 << 20;  // bytes
  bool truncate = false;      // else what the guest says is appended
};

struct MachineOptions {
  MachineConfig machine;
  SerialOptions serial;
};

// Sets the option `flag`, "cpus", to what the command line gives for it: one text, or for an option
// that repeats any number, which replace all that it had.
absl::Status SetOption(const std::string& flag, std::span<const std::string> texts,
                       MachineOptions& options);
// Sets those that the JSON object has; a list replaces what was there.
absl::Status ReadOptions(const Json& json, MachineOptions& options);
// InvalidArgument: text that is not UTF-8 has no place in JSON.
absl::StatusOr<Json> PrintOptions(const MachineOptions& options);

// Whether it says what to run: a kernel, a snapshot, or a template.
inline bool HasBeginning(const MachineConfig& config) {
  return !config.kernel.empty() || !config.restore.empty() || config.from != nullptr;
}

// Whether a machine that is restored has its memory as a copy of its own.
bool IsMemoryCopied(const MachineConfig& config);

// All ranges of all options, and that no two devices have the same id.
absl::Status CheckOptions(const MachineConfig& config);
absl::Status CheckOptions(const MachineOptions& options);

// What SetOption takes.
struct OptionFlag {
  const char* name;  // "cpus"
  bool repeats = false;
};
std::vector<OptionFlag> OptionFlags();

// ---- For help and documents ----

struct OptionDoc {
  std::string name;
  std::string placeholder;  // "SIZE"
  std::string values;       // "1 to 16"; empty: the placeholder says it
  std::string unset;        // the default: a value, or what holds
  std::string doc;
  bool is_required = false;
};

// The options of one object: the machine's own, or those of a flag that takes keys.
struct OptionGroup {
  std::string flag;  // "disk"; empty: each option is a flag of its own
  std::string json;  // "disks"
  std::string doc;
  std::string forms;  // of the flag's text
  bool repeats = false;
  // By kind, for the options that only one has; else one part without a kind.
  struct Part {
    std::string kind;  // "file"
    std::string doc;
    std::vector<OptionDoc> options;
  };
  std::vector<Part> parts;
};

// The machine's own options first.
std::vector<OptionGroup> OptionGroups();
// JSON Schema, draft 2020-12, of what ReadOptions takes.
Json OptionSchema();

}  // namespace ringside
