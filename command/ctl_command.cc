#include "command/ctl_command.h"

#include <CLI/CLI.hpp>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>

#include "absl/time/clock.h"
#include "api/api_call.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/thread.h"
#include "command/ctl_answer.h"
#include "command/exit_codes.h"
#include "command/json_table.h"
#include "command/progress_bar.h"
#include "command/run_config.h"
#include "command/standard_output.h"
#include "http/http_client.h"
#include "vmm/json_text.h"

namespace ringside {
namespace {

// For an answer that is no operation's end.
constexpr absl::Duration kPatience = absl::Seconds(90);
constexpr char kNoWait[] = "wait=0";
constexpr char kWait[] = "wait=60s";
constexpr char kWaitBeforeBar[] = "wait=200ms";
constexpr absl::Duration kBetweenBars = absl::Milliseconds(200);
constexpr absl::Duration kBetweenQuestions = absl::Milliseconds(100);
constexpr size_t kMostOfAnEvent = 1 << 20;  // bytes
const OptionPlace kFlags = {.prefix = "--", .between = " ", .is_text = true};
const OptionPlace kWords = {.between = " ", .is_text = true};

// What goes over the socket.
struct CtlRequest {
  std::string target;
  std::string body;
};

std::string PercentEncoded(std::string_view text) {
  std::string encoded;
  for (const unsigned char c : text) {
    const bool is_plain = std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_' || c == '~';
    if (is_plain) {
      encoded += static_cast<char>(c);
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", c);
    }
  }
  return encoded;
}

// Of these fields those that were given, as their texts.
Json Given(const std::vector<ApiField>& fields, const std::map<std::string, std::string>& texts) {
  Json given = Json::object();
  for (const ApiField& field : fields) {
    const std::string& text = texts.at(field.spec.name);
    if (!text.empty()) given[field.spec.name] = text;
  }
  return given;
}

// Those that were given, checked: what is unset the server knows.
absl::StatusOr<Json> Checked(const std::vector<ApiField>& fields, const OptionPlace& place,
                             const std::map<std::string, std::string>& texts) {
  const Json given = Given(fields, texts);
  RINGSIDE_ASSIGN_OR_RETURN(Json values, ReadFields(fields, place, given));
  Json checked = Json::object();
  for (const ApiField& field : fields) {
    if (given.contains(field.spec.name)) checked[field.spec.name] = values[field.spec.name];
  }
  return checked;
}

// The path with its fields filled in.
std::string FillPath(const ApiCall& call, const std::map<std::string, std::string>& texts) {
  std::string path = call.path;
  for (const ApiField& field : call.in_path) {
    const std::string name = std::string("{") + field.spec.name + '}';
    path.replace(path.find(name), name.size(), PercentEncoded(texts.at(field.spec.name)));
  }
  return path;
}

absl::StatusOr<std::string> Dump(const Json& body) {
  try {
    return body.dump();
  } catch (const Json::exception&) {
    return BadInput("an argument is not UTF-8, and so has no place in JSON: give another");
  }
}

bool HasBar(const ApiCall& call) {
  return *call.progress != '\0' && isatty(STDERR_FILENO) != 0;
}

std::string OperationTarget(uint64_t id, const char* query) {
  return absl::StrFormat("/ringside/v1/operations/%d?%s", id, query);
}

absl::StatusOr<CtlRequest> MakeRequest(const ApiCall& call, const CtlOptions& options) {
  const std::map<std::string, std::string>& texts = options.fields.at(call.name);
  RINGSIDE_RETURN_IF_ERROR(Checked(call.in_path, kWords, texts).status());
  RINGSIDE_ASSIGN_OR_RETURN(const Json fields, Checked(call.fields, kFlags, texts));
  CtlRequest request = {.target = FillPath(call, texts)};
  std::string query;
  if (call.kind == ApiKind::kOperation) {
    query = options.no_wait ? kNoWait : HasBar(call) ? kWaitBeforeBar : kWait;
  }
  Json body = Json::object();
  for (const ApiField& field : call.fields) {
    const char* const name = field.spec.name;
    if (!fields.contains(name)) continue;
    if (HasFieldsInQuery(call)) {
      absl::StrAppendFormat(&query, "%s%s=%s", query.empty() ? "" : "&", name,
                            PercentEncoded(texts.at(name)));
    } else {
      body[name] = PrintValue(field.spec, fields[name]);
    }
  }
  if (!query.empty()) request.target += '?' + query;
  if (!body.empty()) {
    RINGSIDE_ASSIGN_OR_RETURN(request.body, Dump(body));
  }
  if (*call.body != '\0') {
    RINGSIDE_ASSIGN_OR_RETURN(request.body, ReadConfigText("set-config", texts.at("FILE")));
  }
  return request;
}

// What stays as it came is for programs.
absl::Status Print(const ApiCall& call, const CtlOptions& options, const std::string& body) {
  if (isatty(STDOUT_FILENO) == 0) return WriteToStdout(body);
  const bool as_table = !options.json && call.kind != ApiKind::kMetrics;
  const absl::StatusOr<Json> json = as_table ? ReadAnswer(body) : Json();
  return WriteToStdout(as_table && json.ok() ? JsonTable(*json) : ForTerminal(body));
}

// Shows how far an operation is, by a thread and a connection of its own: whoever waits for its end
// has to be waiting when it comes, as the server may be gone right after. Without an answer there
// is no bar, and nothing else is amiss.
class OperationBar {
 public:
  OperationBar(const std::string& socket, const ApiCall& call, uint64_t id) {
    thread_ = StartThread("bar", [this, socket, &call, id] { Show(socket, call, id); });
  }
  ~OperationBar() {
    over_.Notify();
    if (thread_.ok()) thread_->join();
  }
  OperationBar(const OperationBar&) = delete;
  OperationBar& operator=(const OperationBar&) = delete;

 private:
  void Show(const std::string& socket, const ApiCall& call, uint64_t id) {
    absl::StatusOr<HttpClient> client = HttpClient::Connect(socket, kBetweenBars);
    if (!client.ok()) return;
    ProgressBar bar(STDERR_FILENO);
    bool has_begun = false;
    do {
      const auto response = client->Call("GET", OperationTarget(id, kNoWait));
      if (!response.ok() || response->status != 200) return;
      const auto operation = ReadOperation(response->body);
      if (!operation.ok() || operation->has_ended) return;
      if (operation->of > 0 && !std::exchange(has_begun, true)) {
        bar.Begin(call.progress, operation->of);
      }
      if (has_begun) bar.At(operation->done);
    } while (!over_.WaitUntil(DeadlineIn(kBetweenBars)));
  }

  Event over_;
  absl::StatusOr<std::thread> thread_;
};

// Until it has ended, with a bar if it tells how far it is.
absl::StatusOr<CtlOperation> Await(HttpClient& client, const ApiCall& call,
                                   const CtlOptions& options, CtlOperation operation) {
  std::optional<OperationBar> bar;
  if (HasBar(call) && !operation.has_ended) bar.emplace(options.socket, call, operation.id);
  while (!operation.has_ended) {
    RINGSIDE_ASSIGN_OR_RETURN(const HttpResponse response,
                              client.Call("GET", OperationTarget(operation.id, kWait)));
    if (response.status != 200) return ErrorOf(response);
    RINGSIDE_ASSIGN_OR_RETURN(operation, ReadOperation(response.body));
    // A server that does not wait as it was asked to is not asked without end.
    if (!operation.has_ended) absl::SleepFor(kBetweenQuestions);
  }
  return operation;
}

// Waits for what the server has begun, and prints its result.
absl::Status AwaitOperation(HttpClient& client, const ApiCall& call, const CtlOptions& options,
                            const std::string& begun) {
  RINGSIDE_ASSIGN_OR_RETURN(CtlOperation operation, ReadOperation(begun));
  RINGSIDE_ASSIGN_OR_RETURN(operation, Await(client, call, options, std::move(operation)));
  RINGSIDE_RETURN_IF_ERROR(operation.status);
  if (operation.result.is_null()) return absl::OkStatus();
  return Print(call, options, JsonLine(operation.result));
}

absl::Status FollowEvents(HttpClient& client, const CtlOptions& options,
                          const std::string& target) {
  const bool on_terminal = isatty(STDOUT_FILENO) != 0;
  const auto shown = [&](const std::string& line) {
    if (!on_terminal) return line;
    return options.json ? ForTerminal(line) : EventText(line);
  };
  std::string rest;
  absl::Status result;
  RINGSIDE_RETURN_IF_ERROR(client.Follow(target, [&](std::string_view text) {
    rest += text;
    for (size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n')) {
      const std::string line = rest.substr(0, end + 1);
      rest.erase(0, end + 1);
      result = WriteToStdout(shown(line));
      if (!result.ok()) return false;
    }
    if (rest.size() <= kMostOfAnEvent) return true;
    result = absl::UnavailableError(
        absl::StrFormat("the server sends an event of more than %d bytes", kMostOfAnEvent));
    return false;
  }));
  return result;
}

absl::Status Call(const ApiCall& call, const CtlOptions& options) {
  RINGSIDE_ASSIGN_OR_RETURN(const CtlRequest request, MakeRequest(call, options));
  RINGSIDE_ASSIGN_OR_RETURN(HttpClient client, HttpClient::Connect(options.socket, kPatience));
  if (call.kind == ApiKind::kEvents) return FollowEvents(client, options, request.target);
  RINGSIDE_ASSIGN_OR_RETURN(const HttpResponse response,
                            client.Call(call.method, request.target, request.body));
  if (response.status == 202 && !options.no_wait) {
    return AwaitOperation(client, call, options, response.body);
  }
  if (response.status >= 300) return ErrorOf(response);
  return response.body.empty() ? absl::OkStatus() : Print(call, options, response.body);
}

}  // namespace

int CtlCommand(const CLI::App& ctl, const CtlOptions& options, LogSink& log) {
  const ApiCall* const call = FindApiCall(ctl.get_subcommands().front()->get_name());
  return Finish(Call(*call, options), log);
}

}  // namespace ringside
