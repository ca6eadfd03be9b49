// What an option is called, which values it takes, and how they are written.
//
// A value has three forms. Users write the text of a command line, or JSON. What is read from
// either is the canonical value: JSON with one form for each type, which the tables of options
// (vmm/option_table.h) move into a configuration and out of it.
//
//   type               command line      JSON                     canonical
//   kText ...          root.img          "root.img"               the same string
//   kWhole, kReal      4                 4                        4
//   kShare             20%               "20%"                    0.2
//   kSize              512M              "512M" or 536870912      536870912, bytes
//   kTime              32us              "32us"                   32000, nanoseconds
//   kSwitch            on, off           true, false              true, false
//   kCpus              0-2+5             [0, 1, 2, 5] or the text [0, 1, 2, 5]
//   kDescriptors       3+4               [3, 4] or the text       [3, 4]
//   kNodes             0,2-3             [0, 2, 3] or the text    [0, 2, 3]
//   kAffinity          0:2,1:3-4+6       [[2], [3, 4, 6]]         the same, by vCPU
//   kPaths             a.img+b.cow       ["a.img", "b.cow"] or the text   ["a.img", "b.cow"]
//   kWords             ls -l a\ b        ["ls", "-l", "a b"]      the same
//   kIoThreads         a+b               ["a", "b"]               [{"id": "a", "queues": []}, ...]
//                      a:0+3/b:1-2       [{"id": "a", "queues": [0, 3]}, ...]
//
// Errors: InvalidArgument, in one line: the key as the user wrote it, the value, and what is
// possible.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

using Json = nlohmann::ordered_json;

enum class OptionKind {
  kText,
  kPath,
  kPaths,
  kId,       // letters, digits, '.', '-' and '_'
  kNvmeUrl,  // nvme/nvme_url.h
  kWhole,
  kReal,
  kShare,  // of a CPU
  kSize,
  kTime,
  kSwitch,
  kChoice,
  kCpus,         // of the host
  kDescriptors,  // that this process was given
  kNodes,        // of the host: NUMA
  kAffinity,
  kWords,      // of a command: at spaces, unless behind a backslash
  kIoThreads,  // and the queues of each
};

struct OptionType {
  OptionKind kind = OptionKind::kText;
  // Of whole numbers, sizes in bytes, times in nanoseconds, and of a text's bytes.
  uint64_t least = 0;
  uint64_t most = UINT64_MAX;
  uint64_t multiple = 1;
  double real_most = 0;              // of kReal and kShare, which are more than 0
  std::vector<const char*> choices;  // of kChoice
};

struct OptionSpec {
  const char* name = "";  // as on the command line, and in JSON
  OptionType type;
  // What a whole number counts, for its range: "queues".
  const char* unit = "";
  const char* doc = "";
  // What holds if it is not given, where its default cannot be written as a value.
  const char* unset = "";
  // The value that leaves it to somebody else: "auto". Canonical: null.
  const char* unset_name = "";
  bool is_required = false;
};

// Where a value stands, for messages: "--disk queues=0", "--cpus 0", "disks[0].queues=0".
struct OptionPlace {
  std::string prefix;         // of the key
  const char* between = "=";  // key and value
  bool is_text = false;       // its values are the command line's
};

// The canonical form of what a user has written. `owner`: who has the option, "a disk".
absl::StatusOr<Json> ReadValue(const OptionSpec& spec, const char* owner, const OptionPlace& place,
                               const Json& given);
// Of a canonical value that is not null: OK, or what is wrong with it.
absl::Status CheckValue(const OptionSpec& spec, const char* owner, const OptionPlace& place,
                        const Json& value);
// As JSON is written: what ReadValue makes the canonical value of.
Json PrintValue(const OptionSpec& spec, const Json& value);
// As a command line is written.
std::string ValueText(const OptionSpec& spec, const Json& value);

// "1 to 16", "on or off", "10ms to 1h". Empty: the type says it all.
std::string PossibleValues(const OptionSpec& spec);
// What stands for a value in a usage line: "N", "SIZE", "on|off".
std::string ValuePlaceholder(const OptionSpec& spec);
// JSON Schema of a value, without its documentation.
Json ValueSchema(const OptionSpec& spec);

// "a, b or c".
std::string JoinChoices(const std::vector<const char*>& choices);

}  // namespace ringside
