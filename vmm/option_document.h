// A table of options as documentation: for help and documents, and as JSON Schema.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "vmm/option_table.h"
#include "vmm/options.h"

namespace ringside {

// `defaults`: an object as it is made.
template <typename Object>
std::vector<OptionDoc> Document(const OptionTable<Object>& table, const Object& defaults) {
  std::vector<OptionDoc> docs;
  for (const Option<Object>& option : table.options) {
    const OptionSpec& spec = option.spec();
    const Json value = option.Get(defaults);
    const bool says_all =
        spec.type.kind == OptionKind::kChoice || spec.type.kind == OptionKind::kSwitch;
    docs.push_back({.name = spec.name,
                    .placeholder = ValuePlaceholder(spec),
                    .values = says_all ? "" : PossibleValues(spec),
                    .unset = *spec.unset != '\0' ? spec.unset : ValueText(spec, value),
                    .doc = spec.doc,
                    .is_required = spec.is_required});
  }
  return docs;
}

template <typename Object>
Json ObjectSchema(const OptionTable<Object>& table, const Object& defaults) {
  Json properties = Json::object(), required = Json::array();
  for (const Option<Object>& option : table.options) {
    const OptionSpec& spec = option.spec();
    Json schema = ValueSchema(spec);
    std::string doc = spec.doc;
    if (*spec.unset != '\0') doc += std::string("; default: ") + spec.unset;
    schema["description"] = doc;
    const Json value = PrintValue(spec, option.Get(defaults));
    if (!value.is_null()) schema["default"] = value;
    properties[spec.name] = std::move(schema);
    if (spec.is_required) required.push_back(spec.name);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  schema["additionalProperties"] = false;
  return schema;
}

}  // namespace ringside
