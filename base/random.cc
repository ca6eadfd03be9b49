#include "base/random.h"

#include <cerrno>
#include <sys/random.h>

#include "base/status.h"

namespace ringside {

absl::Status FillRandom(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return ErrnoError(errno, "the host gives no random bytes");
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

}  // namespace ringside
