// What answers a server's requests.
#pragma once

#include <string_view>

#include "http/http_answer.h"
#include "http/http_message.h"

namespace ringside {

// Threads: both functions are called on the server's, and must not wait: the server does nothing
// else meanwhile.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Answers at once or later, with what comes back from `answer`.
  virtual void Handle(HttpRequest request, HttpAnswer answer) = 0;
  // The response to what is no request that it could handle. `path` is as far as it was read, and
  // may be empty.
  virtual HttpResponse Refuse(int status, [[maybe_unused]] std::string_view path,
                              std::string_view reason) {
    return JsonError(status, reason);
  }
};

}  // namespace ringside
