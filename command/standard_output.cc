#include "command/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_format.h"

namespace ringside {

absl::Status WriteToStdout(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written == text.size() && std::fflush(stdout) == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("cannot write to stdout (%s): not all is there", std::strerror(errno)));
}

}  // namespace ringside
