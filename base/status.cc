#include "base/status.h"

#include <cerrno>
#include <cstring>
#include <sys/resource.h>

namespace ringside {

absl::Status ErrnoError(int error, std::string_view what, std::string_view remedy) {
  char buffer[128];
  const char* text = strerror_r(error, buffer, sizeof buffer);
  std::string line = absl::StrFormat("%s: %s", what, text);
  rlimit limit;
  if (error == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    // Whatever it was for, the cause is this one.
    absl::StrAppendFormat(&line, "; raise 'ulimit -n', which is %d", limit.rlim_cur);
  } else if (!remedy.empty()) {
    line += absl::StrFormat("; %s", remedy);
  }
  return {absl::ErrnoToStatusCode(error), line};
}

}  // namespace ringside
