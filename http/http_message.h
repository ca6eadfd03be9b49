// What an HTTP request and its response say, whatever way they came: RFC 9110.
//
// Plain values. Whoever has one owns it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace ringside {

// A header field; or a parameter of a query.
struct HttpField {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // as it was sent: methods are case-sensitive
  // Decoded, without the query: begins with '/', has no part "." or "..", and any bytes but control
  // characters, so it may be no UTF-8. "*" for OPTIONS of the whole server.
  std::string path;
  std::string query;              // as it was sent, without the '?'; see ParseQuery
  std::vector<HttpField> fields;  // in the order of the message
  std::string body;

  // The first field of this name, in whatever case; empty if there is none.
  std::string_view Field(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // left out where there is no body
  std::string body;
  // Besides those that the server sets itself: Content-Length, Content-Type, Connection, Date.
  std::vector<HttpField> fields;
};

// "Not Found" for 404; "Unknown" for a status that it does not know.
const char* ReasonPhrase(int status);

// {"error": "<reason>"}, with the reason made one line.
HttpResponse JsonError(int status, std::string_view reason);

// The first field of this name, in whatever case; nullptr if there is none.
const HttpField* FindField(const std::vector<HttpField>& fields, std::string_view name);

// "a=b&c=d", as forms send it: '+' is a space, %XX any byte but NUL. At most kMostParameters, each
// with a name.
inline constexpr size_t kMostParameters = 64;
absl::StatusOr<std::vector<HttpField>> ParseQuery(std::string_view query);

// Each %XX becomes its byte; an error if one is no hexadecimal number, or zero.
absl::StatusOr<std::string> PercentDecode(std::string_view text);

}  // namespace ringside
