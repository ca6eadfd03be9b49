// Configurations of anybody: JSON as --config reads it, and the text of each flag. Whatever is
// taken prints as JSON that is taken, too, and prints the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fuzzer/FuzzedDataProvider.h>
#include <string>
#include <vector>

#include "vmm/config_json.h"
#include "vmm/options.h"

namespace ringside {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string> Flags() {
  std::vector<std::string> flags;
  for (const OptionGroup& group : OptionGroups()) {
    if (!group.flag.empty()) {
      flags.push_back(group.flag);
      continue;
    }
    for (const OptionDoc& option : group.parts.front().options) flags.push_back(option.name);
  }
  return flags;
}

void CheckPrintsTheSame(const MachineOptions& options) {
  const absl::StatusOr<Json> printed = PrintOptions(options);
  if (!printed.ok()) return;  // it has text that is not UTF-8
  const absl::StatusOr<Json> parsed = ParseConfigJson(printed->dump());
  Require(parsed.ok());
  MachineOptions again;
  Require(ReadOptions(*parsed, again).ok());
  Require(*PrintOptions(again) == *printed);
}

void ReadFile(const std::string& text) {
  const absl::StatusOr<Json> json = ParseConfigJson(text);
  MachineOptions options;
  if (json.ok() && ReadOptions(*json, options).ok()) CheckPrintsTheSame(options);
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  static const std::vector<std::string> flags = Flags();
  FuzzedDataProvider input(data, size);
  const size_t choice = input.ConsumeIntegralInRange<size_t>(0, flags.size());
  const std::string text = input.ConsumeRemainingBytesAsString();
  if (choice == flags.size()) {
    ReadFile(text);
    return 0;
  }
  MachineOptions options;
  if (SetOption(flags[choice], std::vector<std::string>{text}, options).ok()) {
    CheckPrintsTheSame(options);
  }
  return 0;
}
