#include "http/http_message.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/printable.h"
#include "base/status.h"

namespace ringside {
namespace {

struct Phrase {
  int status;
  const char* text;
};

// RFC 9110, section 15; 431 is of RFC 6585.
constexpr Phrase kPhrases[] = {
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {304, "Not Modified"},
    {400, "Bad Request"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
};

int HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(digit));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

absl::StatusOr<std::string> DecodeFormText(std::string_view text) {
  std::string with_spaces(text);
  std::ranges::replace(with_spaces, '+', ' ');
  return PercentDecode(with_spaces);
}

}  // namespace

std::string_view HttpRequest::Field(std::string_view name) const {
  const HttpField* found = FindField(fields, name);
  return found == nullptr ? std::string_view() : found->value;
}

const char* ReasonPhrase(int status) {
  const auto* found = std::ranges::find(kPhrases, status, &Phrase::status);
  return found == std::end(kPhrases) ? "Unknown" : found->text;
}

HttpResponse JsonError(int status, std::string_view reason) {
  const nlohmann::json error = {{"error", Printable(reason)}};
  return {.status = status, .body = error.dump() + "\n"};
}

const HttpField* FindField(const std::vector<HttpField>& fields, std::string_view name) {
  const auto found = std::ranges::find_if(fields, [name](const HttpField& field) {
    return absl::EqualsIgnoreCase(field.name, {name.data(), name.size()});
  });
  return found == fields.end() ? nullptr : &*found;
}

absl::StatusOr<std::vector<HttpField>> ParseQuery(std::string_view query) {
  std::vector<HttpField> parameters;
  if (query.empty()) return parameters;
  for (const absl::string_view part :
       absl::StrSplit(absl::string_view(query.data(), query.size()), '&')) {
    const std::string_view parameter(part.data(), part.size());
    const size_t equals = parameter.find('=');
    if (parameter.empty() || equals == 0) {
      return BadInput("the query '%s' has a parameter without a name; write 'name=value'", query);
    }
    if (parameters.size() == kMostParameters) {
      return BadInput("the query has more than %d parameters; send fewer", kMostParameters);
    }
    HttpField& added = parameters.emplace_back();
    RINGSIDE_ASSIGN_OR_RETURN(added.name, DecodeFormText(parameter.substr(0, equals)));
    if (equals == std::string_view::npos) continue;
    RINGSIDE_ASSIGN_OR_RETURN(added.value, DecodeFormText(parameter.substr(equals + 1)));
  }
  return parameters;
}

absl::StatusOr<std::string> PercentDecode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 1 < text.size() ? HexDigit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? HexDigit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || high + low == 0) {
      return BadInput(
          "'%s' is no encoded byte; write two hexadecimal digits, not both zero, after '%%'",
          text.substr(i, 3));
    }
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

}  // namespace ringside
