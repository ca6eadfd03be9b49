#include "api/openapi.h"

#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "api/api_call.h"
#include "api/api_schemas.h"

namespace ringside {
namespace {

Json Reference(const char* schema) {
  std::string name = schema;
  const bool is_list = name.ends_with("[]");
  if (is_list) name.resize(name.size() - 2);
  Json reference = {{"$ref", "#/components/schemas/" + name}};
  return is_list ? Json{{"type", "array"}, {"items", reference}} : reference;
}

Json FieldSchema(const ApiField& field) {
  Json schema = ValueSchema(field.spec);
  if (!field.unset.is_null()) schema["default"] = PrintValue(field.spec, field.unset);
  return schema;
}

std::string FieldDoc(const ApiField& field) {
  std::string doc = field.spec.doc;
  if (*field.spec.unset != '\0') doc += std::string("; default: ") + field.spec.unset;
  return doc;
}

Json Parameter(const ApiField& field, const char* in) {
  return {{"name", field.spec.name},
          {"in", in},
          {"required", field.spec.is_required},
          {"description", FieldDoc(field)},
          {"schema", FieldSchema(field)}};
}

Json Parameters(const ApiCall& call) {
  Json parameters = Json::array();
  for (const ApiField& field : call.in_path) parameters.push_back(Parameter(field, "path"));
  if (HasFieldsInQuery(call)) {
    for (const ApiField& field : call.fields) parameters.push_back(Parameter(field, "query"));
  }
  if (call.kind == ApiKind::kOperation) parameters.push_back(Parameter(WaitField(), "query"));
  return parameters;
}

Json Content(const char* type, Json schema) {
  return {{type, {{"schema", std::move(schema)}}}};
}

Json Body(const ApiCall& call) {
  if (*call.body != '\0') {
    return {{"required", true}, {"content", Content("application/json", Reference(call.body))}};
  }
  Json properties = Json::object(), required = Json::array();
  for (const ApiField& field : call.fields) {
    Json schema = FieldSchema(field);
    schema["description"] = FieldDoc(field);
    properties[field.spec.name] = std::move(schema);
    if (field.spec.is_required) required.push_back(field.spec.name);
  }
  Json schema = {
      {"type", "object"}, {"properties", std::move(properties)}, {"additionalProperties", false}};
  const bool is_required = !required.empty();
  if (is_required) schema["required"] = std::move(required);
  return {{"required", is_required}, {"content", Content("application/json", std::move(schema))}};
}

// What calls fail with.
struct Failure {
  const char* status;
  const char* name;
  const char* doc;
};
constexpr std::array<Failure, 7> kFailures = {{
    {"400", "Wrong", "What was given is wrong"},
    {"404", "NotThere", "There is no such thing"},
    {"409", "WrongState", "The machine's state does not allow it, or another call came first"},
    {"502", "NoAgent", "The guest's agent does not answer, or breaks its protocol"},
    {"503", "TooMuch", "Too many operations wait already"},
    {"504", "TooLate", "It was not done within its patience"},
    {"default", "Failed", "Anything else that failed"},
}};

bool MayFailWith(const ApiCall& call, std::string_view status) {
  if (status == "404") return !call.in_path.empty() || call.kind == ApiKind::kOperation;
  if (status == "502") return call.asks_guest;
  if (status == "503" || status == "504") return call.kind == ApiKind::kOperation;
  return true;
}

Json FailureResponses() {
  Json responses = Json::object();
  for (const Failure& failure : kFailures) {
    responses[failure.name] = {{"description", failure.doc},
                               {"content", Content("application/json", Reference("Error"))}};
  }
  return responses;
}

Json Answer(const ApiCall& call) {
  Json answer = {{"description", call.doc}};
  if (call.kind == ApiKind::kMetrics) {
    answer["content"] = Content("text/plain", {{"type", "string"}});
  } else if (call.kind == ApiKind::kEvents) {
    answer["content"] = Content("application/x-ndjson", Reference(call.result));
  } else if (*call.result != '\0') {
    answer["content"] = Content("application/json", Reference(call.result));
  }
  return answer;
}

Json Responses(const ApiCall& call) {
  const bool says_nothing = *call.result == '\0' && call.kind != ApiKind::kMetrics;
  Json responses = {{says_nothing ? "204" : "200", Answer(call)}};
  if (call.kind == ApiKind::kOperation) {
    responses["202"] = {{"description", "It is under way; Location is where to ask for it"},
                        {"headers", {{"Location", {{"schema", {{"type", "string"}}}}}}},
                        {"content", Content("application/json", Reference("Operation"))}};
  }
  for (const Failure& failure : kFailures) {
    if (!MayFailWith(call, failure.status)) continue;
    responses[failure.status] = {{"$ref", std::string("#/components/responses/") + failure.name}};
  }
  return responses;
}

Json OperationOf(const ApiCall& call) {
  Json operation = {{"operationId", call.name}, {"summary", call.doc}};
  Json parameters = Parameters(call);
  if (!parameters.empty()) operation["parameters"] = std::move(parameters);
  if (*call.body != '\0' || (!HasFieldsInQuery(call) && !call.fields.empty())) {
    operation["requestBody"] = Body(call);
  }
  operation["responses"] = Responses(call);
  return operation;
}

}  // namespace

Json OpenApiDocument() {
  Json paths = Json::object();
  for (const ApiCall& call : ApiCalls()) {
    std::string method = call.method;
    for (char& letter : method) letter = absl::ascii_tolower(letter);
    paths[call.path][method] = OperationOf(call);
  }
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Ringside: a machine's control socket"},
            {"version", RINGSIDE_VERSION},
            {"license", {{"name", "Apache-2.0"}, {"identifier", "Apache-2.0"}}}}},
          {"servers", Json::array({Json{{"url", "http://localhost"}}})},
          {"paths", std::move(paths)},
          {"components", {{"schemas", ApiSchemas()}, {"responses", FailureResponses()}}}};
}

}  // namespace ringside
