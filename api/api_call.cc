#include "api/api_call.h"

#include "base/status.h"
#include "vmm/option_table.h"

namespace ringside {
namespace {

constexpr char kOwner[] = "the call";

const ApiField* Find(std::span<const ApiField> fields, const std::string& name) {
  for (const ApiField& field : fields) {
    if (name == field.spec.name) return &field;
  }
  return nullptr;
}

std::vector<std::string> Names(std::span<const ApiField> fields) {
  std::vector<std::string> names;
  names.reserve(fields.size());
  for (const ApiField& field : fields) names.emplace_back(field.spec.name);
  return names;
}

}  // namespace

const ApiCall* FindApiCall(std::string_view name) {
  for (const ApiCall& call : ApiCalls()) {
    if (name == call.name) return &call;
  }
  return nullptr;
}

absl::StatusOr<Json> ReadFields(std::span<const ApiField> fields, const OptionPlace& place,
                                const Json& given) {
  if (!given.is_object())
    return BadInput("the body is no JSON object: give {\"name\": value, ...}");
  Json values = Json::object();
  for (const auto& [key, value] : given.items()) {
    const ApiField* field = Find(fields, key);
    if (field == nullptr) {
      if (fields.empty()) return BadInput("'%s' is unknown: this call takes nothing", key);
      return UnknownKey(place, key, Names(fields));
    }
    RINGSIDE_ASSIGN_OR_RETURN(values[key], ReadValue(field->spec, kOwner, place, value));
  }
  for (const ApiField& field : fields) {
    if (values.contains(field.spec.name)) continue;
    if (field.spec.is_required) return MissingKey(place, kOwner, field.spec);
    if (!field.unset.is_null()) values[field.spec.name] = field.unset;
  }
  return values;
}

}  // namespace ringside
