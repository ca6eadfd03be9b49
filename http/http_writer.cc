#include "http/http_writer.h"

#include "absl/strings/str_format.h"
#include "http/http_head.h"

namespace ringside {
namespace {

// RFC 9110, section 5.6.7.
std::string HttpDate(absl::Time time) {
  return absl::FormatTime("%a, %d %b %Y %H:%M:%S GMT", time, absl::UTCTimeZone());
}

void AppendField(std::string& text, std::string_view name, std::string_view value) {
  // A value may have been put together from what somebody sent: it must not become a field more.
  if (CheckText(name) || CheckText(value)) return;
  absl::StrAppendFormat(&text, "%s: %s\r\n", name, value);
}

}  // namespace

std::string WriteResponse(const HttpResponse& response, HttpBodyForm form, bool keeps_alive,
                          absl::Time now) {
  std::string text =
      absl::StrFormat("HTTP/1.1 %d %s\r\n", response.status, ReasonPhrase(response.status));
  AppendField(text, "Date", HttpDate(now));
  const bool goes_on = form == HttpBodyForm::kChunked || form == HttpBodyForm::kUntilClose;
  const bool may_have_body = response.status != 204;  // RFC 9110, section 8.6: nor a length
  if (goes_on || (may_have_body && !response.body.empty())) {
    AppendField(text, "Content-Type", response.content_type);
  }
  if (!goes_on && may_have_body) {
    AppendField(text, "Content-Length", absl::StrFormat("%d", response.body.size()));
  }
  if (form == HttpBodyForm::kChunked) AppendField(text, "Transfer-Encoding", "chunked");
  if (!keeps_alive) AppendField(text, "Connection", "close");
  for (const HttpField& field : response.fields) AppendField(text, field.name, field.value);
  text += "\r\n";
  if (form == HttpBodyForm::kWhole && may_have_body) text += response.body;
  return text;
}

std::string WriteRequest(std::string_view method, std::string_view target, std::string_view body,
                         std::string_view content_type) {
  std::string text = absl::StrFormat("%s %s HTTP/1.1\r\nHost: localhost\r\n", method, target);
  const bool has_body = !body.empty() || method == "PUT" || method == "POST" || method == "PATCH";
  if (!body.empty()) AppendField(text, "Content-Type", content_type);
  if (has_body) AppendField(text, "Content-Length", absl::StrFormat("%d", body.size()));
  text += "\r\n";
  text += body;
  return text;
}

std::string WriteChunk(std::string_view text) {
  return absl::StrFormat("%x\r\n%s\r\n", text.size(), text);
}

}  // namespace ringside
