// What clients may take up of a server.
#pragma once

#include <cstddef>

#include "absl/time/time.h"
#include "http/http_reader.h"

namespace ringside {

struct HttpLimits {
  // At a time. Also counts connections whose client is gone while their request awaits its answer,
  // so no more requests than this are with the handler. Further clients wait in the socket's
  // backlog.
  size_t connections = 64;
  size_t followers = 16;  // of the connections
  HttpMessageLimits message;
  // Between two requests of a connection. One that is idle makes room for clients that wait.
  absl::Duration idle = absl::Seconds(60);
  // From a request's first byte (for the first request: from the connection) to its last.
  absl::Duration request = absl::Seconds(10);
  // In which a client has to take 16 KiB of its response, or what is left of it.
  absl::Duration response = absl::Seconds(10);
  // For a client that was refused to close its end. What it sends meanwhile is read and forgotten,
  // so that it can finish sending and then see why.
  absl::Duration linger = absl::Seconds(1);
};

}  // namespace ringside
