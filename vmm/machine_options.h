// The tables of a machine's own options, and of those that are objects of their own.
#pragma once

#include <span>

#include "vmm/option_table.h"
#include "vmm/options.h"

namespace ringside {

const OptionTable<MachineConfig>& MachineOwnOptions();
const OptionTable<SerialOptions>& SerialFileOptions();
const OptionTable<AssignedConfig>& AssignedOptions();

// An option whose value is an object, or a list of them.
struct ObjectOption {
  const char* flag;
  const char* json;
  const char* doc;
  const char* forms;
  bool repeats;
  void (*clear)(MachineOptions& options);
  // One object of a text: its fields, or a word that stands for them.
  absl::StatusOr<Json> (*parse)(const std::string& text);
  absl::Status (*add)(const OptionPlace& place, const Json& given, MachineOptions& options);
  Json (*print)(const MachineOptions& options);
  // For help and documents.
  std::vector<OptionGroup::Part> (*parts)();
  Json (*schema)();
};

std::span<const ObjectOption> ObjectOptions();

}  // namespace ringside
