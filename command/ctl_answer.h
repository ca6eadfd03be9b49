// What the server of a control socket answers, for `ringside ctl`: read as a stranger's, who may
// send anything, and shown so that a terminal obeys none of it.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "http/http_message.h"
#include "vmm/option_type.h"

namespace ringside {

// Unavailable: it is no JSON, or nested so deep that whoever walks it would run out of stack.
absl::StatusOr<Json> ReadAnswer(std::string_view text);

// What went wrong, as an error that leads to the right exit code.
absl::Status ErrorOf(const HttpResponse& response);

struct CtlOperation {
  uint64_t id = 0;
  bool has_ended = false;
  uint64_t done = 0, of = 0;  // bytes; 0 of 0: it does not say
  absl::Status status;        // how it ended
  Json result;                // null: there is none
};
// Unavailable: it is none.
absl::StatusOr<CtlOperation> ReadOperation(std::string_view text);

// An event's line for people: what happened when, to what. What is no event stays as it is.
std::string EventText(std::string_view line);

// Lines stay lines; what else a terminal would obey is spelt out.
std::string ForTerminal(std::string_view text);

}  // namespace ringside
