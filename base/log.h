// Where the library says things: a sink that its embedder sets. The library has no global state
// and never writes to stdout or stderr by itself. Names in a line may be anybody's: each is one line
// that no terminal obeys.
#pragma once

#include <string_view>

#include "absl/strings/str_format.h"
#include "base/printable.h"

namespace ringside {

enum class Severity { kDebug, kInfo, kWarning, kError };

// Threads: Log is called from any thread of a machine, also at once. It must not block for long:
// a vCPU may be waiting for it. Ownership: the embedder's; it outlives the machine.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Log(Severity severity, std::string_view line) = 0;
};

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
