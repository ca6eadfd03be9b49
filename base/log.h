// What the library says to its embedder's LogSink. Names in a line may be anybody's: each is made
// one line that no terminal obeys.
#pragma once

#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "ringside/log.h"

namespace ringside {

// A LogSink that may be absent.
class Logger {
 public:
  explicit Logger(LogSink* sink = nullptr) : sink_(sink) {}

  template <typename... Args>
  void Log(Severity severity, const absl::FormatSpec<Args...>& format, const Args&... args) const {
    if (sink_ != nullptr) sink_->Log(severity, Printable(absl::StrFormat(format, args...)));
  }

 private:
  LogSink* sink_;
};

}  // namespace ringside
