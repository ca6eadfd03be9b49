// The lines above a message's body and what they mean for it: RFC 9112, without what it lets a
// recipient forgive. Two programs that read a message differently can be played off against each
// other, so whatever is doubtful is refused.
//
// Functions without state. Lines come without their CRLF and have been through CheckText.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "http/http_message.h"

namespace ringside {

// Why a message is refused: the status to answer with, and one line.
struct HttpFault {
  int status = 0;  // 0: there is no fault
  std::string reason;

  explicit operator bool() const { return status != 0; }
};

// No control characters but tabs: so no bare CR and no NUL, which section 2.2 has refused.
HttpFault CheckText(std::string_view line);

// Section 3. `minor_version` is 0 or 1; whatever is above 1 counts as 1 (RFC 9110, section 2.5).
HttpFault ParseRequestLine(std::string_view line, HttpRequest& request, int& minor_version);
// Section 4.
HttpFault ParseStatusLine(std::string_view line, int& status, int& minor_version);
// Section 5.
HttpFault ParseFieldLine(std::string_view line, HttpField& field);
// Section 7.1; extensions are ignored.
HttpFault ParseChunkSize(std::string_view line, uint64_t& size);

// What comes after the head: section 6.
struct HttpFraming {
  enum class Body { kLength, kChunked, kUntilClose };
  Body body = Body::kLength;
  uint64_t length = 0;
  bool keeps_alive = false;
  bool expects_continue = false;
};
HttpFault FrameRequest(const std::vector<HttpField>& fields, int minor_version,
                       HttpFraming& framing);
// `to_head`: the request was HEAD, so that no body follows.
HttpFault FrameResponse(const std::vector<HttpField>& fields, int status, int minor_version,
                        bool to_head, HttpFraming& framing);

}  // namespace ringside
