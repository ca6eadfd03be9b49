// The control interface, as one table: what can be asked of a machine over its socket, with which
// words, and what answers. From it come the routes and their checks (api/api_server.h), the OpenAPI
// document (api/openapi.h), the subcommands of `ringside ctl` and their completion.
//
// A field is an option of a call, with the types, ranges and messages that options of a machine
// have (vmm/option_type.h). Fields of GET and DELETE stand in the query, since their bodies mean
// nothing (RFC 9110 sections 9.3.1 and 9.3.5), those of other calls in a JSON object as the body.
//
// Threads: any; the table does not change.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "api/operation_progress.h"
#include "vmm/option_type.h"

namespace ringside {

class MachineControl;

struct ApiField {
  OptionSpec spec;
  Json unset = {};       // what holds if it is not given, canonical; null: it is absent then
  bool is_word = false;  // for `ringside ctl`: one of its words, and no option
};

// What a call was given: canonical values by name, those that are unset included.
class ApiArguments {
 public:
  explicit ApiArguments(Json values = Json::object()) : values_(std::move(values)) {}

  bool Has(const char* name) const { return values_.contains(name); }
  const Json& Get(const char* name) const { return values_.at(name); }
  std::string Text(const char* name) const { return values_.at(name).get<std::string>(); }
  uint64_t Whole(const char* name) const { return values_.at(name).get<uint64_t>(); }
  bool Switch(const char* name) const { return values_.at(name).get<bool>(); }
  absl::Duration Time(const char* name) const { return absl::Nanoseconds(Whole(name)); }

  // Where the call reports how far it is, if it has ApiCall::progress.
  void ReportTo(std::shared_ptr<OperationProgress> progress) { progress_ = std::move(progress); }
  void Report(uint64_t done, uint64_t of) const {
    if (progress_ != nullptr) progress_->Report(done, of);
  }

 private:
  Json values_;
  std::shared_ptr<OperationProgress> progress_;
};

// Where and how a call is served.
enum class ApiKind {
  kAtOnce,      // on the server's thread: waits for nothing
  kOperation,   // may take long: on a thread of its own, and answers 202 if it does
  kOperations,  // is about such operations
  kEvents,      // a line for each event, until the machine's end
  kMetrics,     // Prometheus text
};

struct ApiCall {
  using Serve = absl::StatusOr<Json> (*)(MachineControl& control, const ApiArguments& given);

  const char* name;  // "move-queue": a word of `ringside ctl`, and the document's operationId
  const char* method;
  const char* path;  // "/ringside/v1/devices/{device}/queues/{queue}"
  const char* doc;   // one line
  ApiKind kind = ApiKind::kAtOnce;
  std::vector<ApiField> in_path = {};
  std::vector<ApiField> fields = {};
  const char* body = "";    // the name of the body's schema, where that is not made of fields
  const char* result = "";  // that of the answer's; empty: there is nothing to say (204)
  // Of kOperation: it waits for the guest's agent, and holds up no call that does not.
  bool asks_guest = false;
  // Of kOperation: what it is doing while it reports how far it is, "saving"; empty: it does not.
  const char* progress = "";
  Serve serve = nullptr;  // of kAtOnce and kOperation. A body without fields is given as "body"
};

inline bool HasFieldsInQuery(const ApiCall& call) {
  const std::string_view method = call.method;
  return method == "GET" || method == "DELETE";
}

const std::vector<ApiCall>& ApiCalls();
// Null if there is none.
const ApiCall* FindApiCall(std::string_view name);
// Of each call of kOperation, in the query: how long its answer may be waited for before it is 202.
const ApiField& WaitField();

// The canonical values of what stands in `place`, a JSON object. InvalidArgument: a field is
// unknown, missing or out of range.
absl::StatusOr<Json> ReadFields(std::span<const ApiField> fields, const OptionPlace& place,
                                const Json& given);

}  // namespace ringside
