#include "command/standard_output.h"

#include <cerrno>
#include <cstdio>

#include "base/status.h"

namespace ringside {

absl::Status WriteToStdout(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return absl::OkStatus();
  return ErrnoError(errno, "cannot write all of it to stdout");
}

}  // namespace ringside
