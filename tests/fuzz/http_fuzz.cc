// Anybody's bytes as a request, as a response and as a query. However they are split the reader
// makes the same of them, within its limits; and what it has taken can be written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fuzzer/FuzzedDataProvider.h>
#include <string>
#include <string_view>

#include "http/http_reader.h"
#include "http/http_writer.h"

namespace ringside {
namespace {

constexpr HttpMessageLimits kLimits = {.line = 256, .header = 1024, .fields = 8, .body = 512};

void Require(bool holds) {
  if (!holds) std::abort();
}

// In pieces of the size.
size_t Feed(HttpReader& reader, std::string_view text, size_t piece) {
  size_t taken = 0;
  while (taken < text.size() && !reader.is_complete() && !reader.fault()) {
    taken += reader.Feed(text.substr(taken, piece));
  }
  if (taken == text.size()) reader.End();
  return taken;
}

void CheckFields(const std::vector<HttpField>& fields) {
  Require(fields.size() <= kLimits.fields);
  for (const HttpField& field : fields) {
    Require(!field.name.empty() && !CheckText(field.name) && !CheckText(field.value));
    Require(field.name.size() + field.value.size() <= kLimits.line);
  }
}

void CheckRequest(const HttpRequest& request) {
  Require(!request.method.empty());
  Require(request.path == "*" || request.path.starts_with('/'));
  Require((request.path + "/").find("/../") == std::string::npos);
  Require(!CheckText(request.path));
  Require(request.body.size() <= kLimits.body);
  CheckFields(request.fields);
}

void ReadRequest(const std::string& text, size_t piece) {
  HttpRequestReader whole(kLimits);
  HttpRequestReader split(kLimits);
  const size_t taken = Feed(whole, text, text.size());
  const size_t split_taken = Feed(split, text, piece);
  Require(whole.fault().reason == split.fault().reason);
  Require(whole.fault().status == split.fault().status);
  Require(whole.is_complete() == split.is_complete());
  if (!whole.is_complete()) {
    Require(whole.fault().status >= 400 && !whole.fault().reason.empty());
    return;
  }
  Require(taken == split_taken);
  const HttpRequest request = whole.Take();
  const HttpRequest again = split.Take();
  Require(request.path == again.path && request.query == again.query);
  Require(request.body == again.body && request.fields.size() == again.fields.size());
  CheckRequest(request);
}

void ReadResponse(const std::string& text, size_t piece, bool to_head) {
  HttpResponseReader whole(kLimits, to_head);
  HttpResponseReader split(kLimits, to_head);
  Feed(whole, text, text.size());
  Feed(split, text, piece);
  Require(whole.is_complete() == split.is_complete());
  if (!whole.is_complete()) return;
  const HttpResponse response = whole.Take();
  CheckFields(response.fields);
  Require(response.body.size() <= kLimits.body);
  Require(response.body == split.Take().body);
  if (response.status == 204 || response.status < 200 || response.status == 304) return;
  // What it says can be said again; its own fields would contradict those that the writer sets.
  HttpResponseReader reader({}, false);
  reader.Feed(WriteResponse(
      {.status = response.status, .content_type = response.content_type, .body = response.body},
      HttpBodyForm::kWhole, true, absl::UnixEpoch()));
  Require(reader.is_complete() && reader.Take().body == response.body);
}

}  // namespace
}  // namespace ringside

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringside;
  FuzzedDataProvider input(data, size);
  const auto kind = input.ConsumeIntegralInRange<int>(0, 3);
  const auto piece = input.ConsumeIntegralInRange<size_t>(1, 64);
  const std::string text = input.ConsumeRemainingBytesAsString();
  switch (kind) {
    case 0:
      ReadRequest(text, piece);
      break;
    case 1:
      // A beginning that most bytes would not find.
      ReadRequest("PUT / HTTP/1.1\r\nHost: a\r\n" + text, piece);
      break;
    case 2:
      ReadResponse(text, piece, piece % 2 == 0);
      break;
    default:
      if (const auto parameters = ParseQuery(text); parameters.ok()) {
        Require(parameters->size() <= kMostParameters);
      }
  }
  return 0;
}
