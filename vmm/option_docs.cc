// The tables of options as documentation: for help and documents, and as JSON Schema.
#include "vmm/disk_options.h"
#include "vmm/io_thread_options.h"
#include "vmm/machine_options.h"
#include "vmm/options.h"

namespace ringside {
namespace {

// A table with the object that has its defaults.
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

// Only a file and a namespace that Ringside drives can do without their type.
Json DiskSchema() {
  Json kinds = Json::array();
  for (const DiskKind& kind : DiskKinds()) {
    Json schema = ObjectSchema(kind.table, kind.make());
    Json properties = {{"type", {{"const", kind.name}, {"description", kind.doc}}}};
    properties.update(schema["properties"]);
    schema["properties"] = std::move(properties);
    if (!kind.type_is_optional) schema["required"].push_back("type");
    kinds.push_back(std::move(schema));
  }
  return {{"oneOf", std::move(kinds)}};
}

Json ItemSchema(const std::string& name) {
  if (name == "disks") return DiskSchema();
  if (name == "iothreads") return ObjectSchema(IoThreadOptions(), IoThreadConfig());
  if (name == "serial") {
    return {{"anyOf", Json::array({Json{{"enum", {"stdio", "none"}}},
                                   ObjectSchema(SerialFileOptions(), SerialOptions())})},
            {"default", "stdio"}};
  }
  return {{"anyOf", Json::array({Json{{"type", "string"}},
                                 ObjectSchema(AssignedOptions(), AssignedConfig())})}};
}

std::vector<OptionGroup::Part> Parts(const std::string& name) {
  if (name == "iothreads") return {{"", "", Document(IoThreadOptions(), IoThreadConfig())}};
  if (name == "serial") return {{"", "", Document(SerialFileOptions(), SerialOptions())}};
  if (name == "vfio") return {{"", "", Document(AssignedOptions(), AssignedConfig())}};
  std::vector<OptionGroup::Part> parts;
  for (const DiskKind& kind : DiskKinds()) {
    parts.push_back({kind.name, kind.doc, Document(kind.table, kind.make())});
  }
  return parts;
}

}  // namespace

std::vector<OptionGroup> OptionGroups() {
  std::vector<OptionGroup> groups = {
      {.parts = {{"", "", Document(MachineOwnOptions(), MachineOptions())}}}};
  for (const ObjectOption& option : ObjectOptions()) {
    groups.push_back({.flag = option.flag,
                      .json = option.json,
                      .doc = option.doc,
                      .forms = option.forms,
                      .repeats = option.repeats,
                      .parts = Parts(option.json)});
  }
  return groups;
}

Json OptionSchema() {
  Json schema = ObjectSchema(MachineOwnOptions(), MachineOptions());
  schema.erase("required");  // the kernel may come from the command line
  for (const ObjectOption& option : ObjectOptions()) {
    Json item = ItemSchema(option.json);
    Json& property = schema["properties"][option.json];
    property =
        option.repeats ? Json{{"type", "array"}, {"items", std::move(item)}} : std::move(item);
    property["description"] = option.doc;
  }
  Json whole = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                {"title", "A virtual machine of Ringside, as 'ringside run --config' reads it"}};
  whole.update(schema);
  return whole;
}

}  // namespace ringside
