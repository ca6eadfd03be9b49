#include "api/api_schemas.h"

#include <initializer_list>
#include <utility>

#include "api/api_handlers.h"
#include "devices/latency_trace.h"
#include "vmm/event_json.h"
#include "vmm/explanation_json.h"
#include "vmm/options.h"
#include "vmm/statistics_json.h"

namespace ringside {
namespace {

constexpr char kAnyKey[] = "*";

Json SchemaOf(const Json& sample);

Json ObjectSchemaOf(const Json& sample) {
  if (sample.contains(kAnyKey)) {
    return {{"type", "object"}, {"additionalProperties", SchemaOf(sample[kAnyKey])}};
  }
  Json properties = Json::object(), required = Json::array();
  for (const auto& [key, value] : sample.items()) {
    properties[key] = SchemaOf(value);
    required.push_back(key);
  }
  Json schema = {{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

// Of values like this one.
Json SchemaOf(const Json& sample) {
  switch (sample.type()) {
    case Json::value_t::object:
      return ObjectSchemaOf(sample);
    case Json::value_t::array:
      return {{"type", "array"}, {"items", sample.empty() ? Json::object() : SchemaOf(sample[0])}};
    case Json::value_t::string:
      return {{"type", "string"}};
    case Json::value_t::boolean:
      return {{"type", "boolean"}};
    case Json::value_t::number_float:
      return {{"type", "number"}};
    case Json::value_t::number_unsigned:
      return {{"type", "integer"}, {"minimum", 0}};
    case Json::value_t::number_integer:
      return {{"type", "integer"}};
    default:
      return Json::object();
  }
}

Json OneOf(std::initializer_list<const char*> names) {
  return {{"type", "string"}, {"enum", names}};
}

// One of everything.
MachineStatistics SampleStatistics() {
  const QueueStatistics queue;
  return {.disks = {{.counters = {{kAnyKey, 0}}, .queues = {queue}}},
          .networks = {{.queues = {queue}}},
          .vsocks = {{.queues = {queue}}},
          .throttle_groups = {{}},
          .devices = {{.queues = {queue}}},
          .assigned = {{}},
          .io_threads = {{}},
          .vcpus = {{.exits = {{kAnyKey, 0}}, .kernel_exits = {{kAnyKey, 0}}}}};
}

// `device` and `detail` are there where they say something.
Json EventSchema() {
  Json schema = SchemaOf(EventJson({.device = "disk0", .detail = "an error"}));
  schema["required"] = {"event", "sequence", "time", "monotonic_ns"};
  return schema;
}

Json MachineSchema() {
  using enum ControlState;
  Json schema = SchemaOf({{"state", ""}, {"kernel", ""}, {"cpus", 1U}, {"memory", 1U}});
  Json states = Json::array();
  for (const ControlState state : {kNotStarted, kStarting, kRunning, kPaused, kEnded}) {
    states.push_back(ControlStateName(state));
  }
  schema["properties"]["state"]["enum"] = std::move(states);
  return schema;
}

Json OperationSchema() {
  Json schema = SchemaOf({{"id", 1U}, {"call", ""}, {"state", ""}});
  Json& properties = schema["properties"];
  properties["state"] = OneOf({"waiting", "running", "done", "failed"});
  properties["result"] = {
      {"description", "what the call would have answered; absent if nothing, and in a list"}};
  properties["progress"] = SchemaOf({{"done", 0U}, {"of", 0U}});
  properties["progress"]["description"] =
      "bytes that are done, and of how many; there while a call runs that knows";
  properties["error"] = {{"type", "string"}};
  properties["status"] = {{"type", "integer"},
                          {"description", "what the call would have failed with"}};
  return schema;
}

Json LatenciesSchema() {
  Json at = Json::object();
  for (size_t point = 0; point < kLatencyPoints; ++point) {
    at[LatencyPointName(static_cast<LatencyPoint>(point))] = 0;
  }
  return SchemaOf(
      {{"queue", 0U}, {"records", Json::array({{{"kind", ""}, {"bytes", 0U}, {"at_ns", at}}})}});
}

Json ConfigSchema() {
  Json schema = OptionSchema();
  schema.erase("$schema");
  return schema;
}

}  // namespace

Json ApiSchemas() {
  Json statistics = SchemaOf(StatisticsJson(SampleStatistics()));
  // What stands in a list, whose items the document then has by a name.
  const auto take = [](Json& schema, const char* list, const char* name) {
    return std::exchange(schema["properties"][list]["items"],
                         Json{{"$ref", std::string("#/components/schemas/") + name}});
  };
  Json disk = take(statistics, "disks", "Disk");
  Json network = take(statistics, "networks", "Network");
  Json vsock = take(statistics, "vsocks", "Vsock");
  Json device = take(statistics, "devices", "Device");
  const Json queue = take(disk, "queues", "Queue");
  take(network, "queues", "Queue");
  take(vsock, "queues", "Queue");
  take(device, "queues", "Queue");
  const Json group = take(statistics, "throttle_groups", "ThrottleGroup");
  const Json io_thread = take(statistics, "io_threads", "IoThread");
  return {{"Error", SchemaOf({{"error", ""}})},
          {"Version", SchemaOf({{"version", ""}})},
          {"Document", {{"type", "object"}}},
          {"Machine", MachineSchema()},
          {"Config", ConfigSchema()},
          {"Event", EventSchema()},
          {"Statistics", statistics},
          {"Disk", disk},
          {"DiskSize", SchemaOf({{"size", 0U}})},
          {"Network", network},
          {"Vsock", vsock},
          {"Device", device},
          {"Queue", queue},
          {"Agent", SchemaOf({{"protocol", 1U}, {"capabilities", 1U}})},
          {"CommandEnd", SchemaOf(CommandEndSample())},
          {"ThrottleGroup", group},
          {"IoThread", io_thread},
          {"AddedIoThread", SchemaOf({{"id", ""}})},
          {"Explanation", SchemaOf(ExplanationJson({}, {}))},
          {"Latencies", LatenciesSchema()},
          {"Operation", OperationSchema()}};
}

}  // namespace ringside
