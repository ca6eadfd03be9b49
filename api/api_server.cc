#include "api/api_server.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "api/api_call.h"
#include "base/status.h"
#include "vmm/config_json.h"
#include "vmm/json_text.h"
#include "vmm/metrics.h"

namespace ringside {
namespace {

// Values in a path or a query are texts, as on a command line.
const OptionPlace kTexts = {.is_text = true};

int StatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return 200;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kCancelled:
      return 409;
    case absl::StatusCode::kUnavailable:
      return 502;
    case absl::StatusCode::kResourceExhausted:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

HttpResponse Respond(const absl::StatusOr<Json>& result) {
  if (!result.ok()) return JsonError(StatusOf(result.status().code()), Message(result.status()));
  if (result->is_null()) return {.status = 204};
  return {.body = JsonLine(*result)};
}

absl::StatusOr<Json> QueryJson(const HttpRequest& request) {
  RINGSIDE_ASSIGN_OR_RETURN(const std::vector<HttpField> query, ParseQuery(request.query));
  Json given = Json::object();
  for (const HttpField& field : query) {
    if (given.contains(field.name)) return BadInput("'%s' is given twice", field.name);
    given[field.name] = field.value;
  }
  return given;
}

absl::StatusOr<Json> BodyJson(const HttpRequest& request) {
  if (request.body.empty()) return Json::object();
  RINGSIDE_ASSIGN_OR_RETURN(Json body, ParseConfigJson(request.body));
  if (body.is_null()) return Json::object();
  return body;
}

// What the call was given, in path, query and body. `wait` is set where the call is an operation.
absl::StatusOr<Json> ReadCall(const ApiCall& call, const HttpCall& http, absl::Duration& wait) {
  Json in_path = Json::object();
  for (const auto& [name, value] : http.captures) in_path[name] = value;
  RINGSIDE_ASSIGN_OR_RETURN(Json given, ReadFields(call.in_path, kTexts, in_path));

  std::vector<ApiField> in_query;
  if (HasFieldsInQuery(call)) in_query = call.fields;
  if (call.kind == ApiKind::kOperation) in_query.push_back(WaitField());
  RINGSIDE_ASSIGN_OR_RETURN(const Json query_text, QueryJson(http.request));
  RINGSIDE_ASSIGN_OR_RETURN(const Json query, ReadFields(in_query, kTexts, query_text));
  if (call.kind == ApiKind::kOperation) wait = ApiArguments(query).Time(WaitField().spec.name);
  given.update(query);

  RINGSIDE_ASSIGN_OR_RETURN(const Json body, BodyJson(http.request));
  if (*call.body != '\0') {
    given["body"] = body;
    return given;
  }
  RINGSIDE_ASSIGN_OR_RETURN(
      const Json fields,
      ReadFields(HasFieldsInQuery(call) ? std::vector<ApiField>() : call.fields, {}, body));
  given.update(fields);
  return given;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ApiServer>> ApiServer::Start(UnixListener listener,
                                                            MachineControl& control, LogSink* log) {
  std::unique_ptr<ApiServer> server(new ApiServer(control, Logger(log)));
  for (const ApiCall& call : ApiCalls()) server->Route(call);
  RINGSIDE_ASSIGN_OR_RETURN(
      server->server_, HttpServer::Start(std::move(listener), server->router_, HttpLimits(), log));
  return server;
}

ApiServer::ApiServer(MachineControl& control, Logger log)
    : control_(control), operations_("/ringside/v1/operations/", Respond, log) {}

void ApiServer::Route(const ApiCall& call) {
  router_.Add(call.method, call.path,
              [this, &call](HttpCall http) { Serve(call, std::move(http)); });
}

void ApiServer::Serve(const ApiCall& call, HttpCall http) {
  absl::Duration wait;
  absl::StatusOr<Json> given = ReadCall(call, http, wait);
  if (!given.ok()) return std::move(http.answer).Send(Respond(given.status()));
  ApiArguments arguments(*std::move(given));
  switch (call.kind) {
    case ApiKind::kAtOnce:
      return std::move(http.answer).Send(Respond(call.serve(control_, arguments)));
    case ApiKind::kOperation: {
      std::shared_ptr<OperationProgress> progress;
      if (*call.progress != '\0') progress = std::make_shared<OperationProgress>();
      arguments.ReportTo(progress);
      return operations_.Begin(
          call.name, call.asks_guest ? Operations::Lane::kGuest : Operations::Lane::kMachine,
          [this, &call, arguments = std::move(arguments)] {
            return call.serve(control_, arguments);
          },
          wait, std::move(http.answer), std::move(progress));
    }
    case ApiKind::kOperations:
      return ServeOperations(call, arguments, std::move(http.answer));
    case ApiKind::kEvents:
      return control_.Follow(arguments.Has("from") ? arguments.Whole("from") : UINT64_MAX,
                             std::move(http.answer));
    case ApiKind::kMetrics:
      return ServeMetrics(std::move(http.answer));
  }
}

void ApiServer::ServeOperations(const ApiCall& call, const ApiArguments& given, HttpAnswer answer) {
  if (call.in_path.empty()) return std::move(answer).Send(Respond(operations_.List()));
  operations_.Await(given.Whole("operation"), given.Time("wait"), std::move(answer));
}

void ApiServer::ServeMetrics(HttpAnswer answer) {
  const absl::StatusOr<Machine*> machine = control_.machine();
  if (!machine.ok()) return std::move(answer).Send(Respond(machine.status()));
  std::move(answer).Send(
      {.content_type = std::string(kMetricsContentType), .body = MetricsText(**machine)});
}

}  // namespace ringside
