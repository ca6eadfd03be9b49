// Messages as bytes: the other direction of http_reader.h.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "http/http_message.h"

namespace ringside {

// How a response's body goes out.
enum class HttpBodyForm {
  kWhole,       // with its length
  kHeadOnly,    // to HEAD: the length, and no body
  kChunked,     // the head alone; chunks follow
  kUntilClose,  // the head alone; the body follows, and its end is the connection's
};
std::string WriteResponse(const HttpResponse& response, HttpBodyForm form, bool keeps_alive,
                          absl::Time now);
// With Content-Length where there is a body, or where the method is one that has bodies.
std::string WriteRequest(std::string_view method, std::string_view target, std::string_view body,
                         std::string_view content_type);

// Not for an empty text: that would be the last chunk.
std::string WriteChunk(std::string_view text);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace ringside
