#include "vmm/machine_options.h"
#include "vmm/option_document.h"

namespace ringside {

std::vector<OptionGroup> OptionGroups() {
  std::vector<OptionGroup> groups = {
      {.parts = {{"", "", Document(MachineOwnOptions(), MachineConfig())}}}};
  for (const ObjectOption& option : ObjectOptions()) {
    groups.push_back({.flag = option.flag,
                      .json = option.json,
                      .doc = option.doc,
                      .forms = option.forms,
                      .repeats = option.repeats,
                      .parts = option.parts()});
  }
  return groups;
}

Json OptionSchema() {
  Json schema = ObjectSchema(MachineOwnOptions(), MachineConfig());
  schema.erase("required");  // the kernel may come from the command line
  for (const ObjectOption& option : ObjectOptions()) {
    Json item = option.schema();
    Json& property = schema["properties"][option.json];
    property =
        option.repeats ? Json{{"type", "array"}, {"items", std::move(item)}} : std::move(item);
    property["description"] = option.doc;
  }
  schema["properties"][kSchemaKey] = {
      {"type", "string"}, {"description", "where this schema is, for editors; it is not read"}};
  Json whole = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                {"title", "A virtual machine of Ringside, as 'ringside run --config' reads it"}};
  whole.update(schema);
  return whole;
}

}  // namespace ringside
