#include "command/ctl_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/status.h"
#include "http/http_client.h"
#include "vmm/config_json.h"

namespace ringside {
namespace {

// More than any answer of ours has.
constexpr JsonBounds kBounds = {.bytes = HttpClient::kMostBody, .depth = 32, .members = 512};
constexpr size_t kMostShown = 1024;  // bytes of a reason

// Empty if it is missing, or no text.
std::string TextOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// 0 if it is missing, or no whole number.
uint64_t WholeOf(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

absl::Status Failure(int status, const std::string& said) {
  const std::string reason = said.empty()
                                 ? absl::StrFormat("the server answered with status %d", status)
                                 : said.substr(0, kMostShown);
  const bool is_ours = status >= 400 && status < 500;
  return is_ours ? absl::InvalidArgumentError(reason) : absl::UnavailableError(reason);
}

}  // namespace

absl::StatusOr<Json> ReadAnswer(std::string_view text) {
  absl::StatusOr<Json> json = ParseJson(text, kBounds);
  if (json.ok()) return json;
  return absl::UnavailableError(
      absl::StrFormat("the server's answer is not taken: %s", Message(json.status())));
}

absl::Status ErrorOf(const HttpResponse& response) {
  const absl::StatusOr<Json> json = ReadAnswer(response.body);
  const bool is_object = json.ok() && json->is_object();
  return Failure(response.status, is_object ? TextOf(*json, "error") : "");
}

absl::StatusOr<CtlOperation> ReadOperation(std::string_view text) {
  RINGSIDE_ASSIGN_OR_RETURN(Json json, ReadAnswer(text));
  const std::string state = json.is_object() ? TextOf(json, "state") : "";
  const bool has_ended = state == "done" || state == "failed";
  if ((!has_ended && state != "waiting" && state != "running") || !json.contains("id") ||
      !json["id"].is_number_unsigned()) {
    return absl::UnavailableError("the server's answer is no operation");
  }
  CtlOperation operation = {.id = json["id"].get<uint64_t>(), .has_ended = has_ended};
  if (const auto found = json.find("progress"); found != json.end() && found->is_object()) {
    operation.done = WholeOf(*found, "done");
    operation.of = WholeOf(*found, "of");
  }
  if (state == "failed") {
    const bool has_status = json.contains("status") && json["status"].is_number_unsigned();
    const uint64_t status = has_status ? json["status"].get<uint64_t>() : 500;
    operation.status =
        Failure(static_cast<int>(std::min<uint64_t>(status, 999)), TextOf(json, "error"));
  } else if (has_ended && json.contains("result")) {
    operation.result = std::move(json["result"]);
  }
  return operation;
}

std::string EventText(std::string_view line) {
  const absl::StatusOr<Json> event = ReadAnswer(line);
  if (!event.ok() || !event->is_object()) return ForTerminal(line);
  std::string shown;
  for (const char* name : {"time", "event", "device", "detail"}) {
    const std::string word = TextOf(*event, name);
    if (!word.empty()) shown += (shown.empty() ? "" : "  ") + Printable(word);
  }
  return shown + '\n';
}

std::string ForTerminal(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t length = std::min(text.find('\n'), text.size());
    shown += Printable(text.substr(0, length));
    if (length == text.size()) break;
    shown += '\n';
    text.remove_prefix(length + 1);
  }
  return shown;
}

}  // namespace ringside
