#include "base/read_text.h"

#include <cerrno>
#include <unistd.h>

namespace ringside {

std::optional<std::string> ReadText(int fd, size_t most) {
  std::string text(most + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(fd, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace ringside
