// Where the library says what its user should know: a sink that the embedder sets. The library has
// no global state and never writes to stdout or stderr by itself.
#pragma once

#include <string_view>

#include "ringside/export.h"

namespace ringside {

enum class Severity { kDebug, kInfo, kWarning, kError };

// Threads: Log is called from any thread of a machine, also by several at once. It must not block
// for long: a vCPU may be waiting for it. Ownership: the sink is the embedder's and outlives the
// machine.
class RINGSIDE_EXPORT LogSink {
 public:
  virtual ~LogSink() = default;
  // `line` is one line without its end. Names of files and devices in it may have been chosen by
  // anybody; what a terminal would obey is replaced before it gets here.
  virtual void Log(Severity severity, std::string_view line) = 0;
};

}  // namespace ringside
