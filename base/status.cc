#include "base/status.h"

#include <cstring>

namespace ringside {

absl::Status ErrnoError(int error, std::string_view what, std::string_view remedy) {
  char buffer[128];
  const char* text = strerror_r(error, buffer, sizeof buffer);
  std::string line = absl::StrFormat("%s: %s", what, text);
  if (!remedy.empty()) line += absl::StrFormat("; %s", remedy);
  return {absl::ErrnoToStatusCode(error), line};
}

}  // namespace ringside
