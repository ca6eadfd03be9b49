// Descriptors of every kind a test hands to the product.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <pty.h>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "tests/support/wait.h"

namespace ringside::testing {

inline int Must(int result, const char* what) {
  if (result >= 0) return result;
  std::perror(what);
  std::abort();
}

inline bool IsOpen(int fd) {
  return fcntl(fd, F_GETFD) != -1;
}
inline bool IsNonBlocking(int fd) {
  return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0;
}

struct Pipe {
  Pipe() {
    int ends[2];
    Must(pipe2(ends, O_CLOEXEC), "pipe2");
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
  UniqueFd read_end, write_end;
};

// A terminal that changes nothing of what passes through it.
struct RawTerminal {
  RawTerminal() {
    termios raw{};
    cfmakeraw(&raw);
    int ends[2];
    Must(openpty(&ends[0], &ends[1], nullptr, &raw, nullptr), "openpty");
    user = UniqueFd(ends[0]);
    program = UniqueFd(ends[1]);
  }
  UniqueFd user;     // where a person would sit: the master
  UniqueFd program;  // the slave
};

// Epoll refuses it, as it does any regular file.
inline UniqueFd RegularFile(std::string_view content = {}) {
  UniqueFd file(Must(memfd_create("test", MFD_CLOEXEC), "memfd_create"));
  Must(static_cast<int>(pwrite(file.get(), content.data(), content.size(), 0)), "pwrite");
  return file;
}

inline UniqueFd DevNull() {
  return UniqueFd(Must(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null"));
}

inline void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    text.remove_prefix(
        static_cast<size_t>(Must(static_cast<int>(write(fd, text.data(), text.size())), "write")));
  }
}

// Reads until there are `count` bytes, the end, or nothing for too long.
inline std::string ReadExactly(int fd, size_t count, size_t at_once = 4096) {
  std::string text;
  std::string chunk(at_once, '\0');
  while (text.size() < count && WaitForFd(fd, POLLIN)) {
    const ssize_t got = read(fd, chunk.data(), std::min(chunk.size(), count - text.size()));
    if (got <= 0) break;
    text.append(chunk, 0, static_cast<size_t>(got));
  }
  return text;
}

// What can be read at once.
inline std::string ReadAvailable(int fd) {
  std::string text;
  char chunk[4096];
  while (WaitForFd(fd, POLLIN, absl::ZeroDuration())) {
    const ssize_t got = read(fd, chunk, sizeof chunk);
    if (got <= 0) break;
    text.append(chunk, static_cast<size_t>(got));
  }
  return text;
}

}  // namespace ringside::testing
