// The user's terminal in raw mode, so that every key reaches the guest, and back as it was on every
// way out that a process can notice, crashes included.
//
// Threads: the main thread. One at a time in a process (the crash handler needs a global; this is
// the command, not the library).
#pragma once

#include <memory>

namespace ringside {

class RawTerminal {
 public:
  // Whether it can be changed: not if `fd` is no terminal, nor while we are in the background.
  static bool IsOurs(int fd);
  // Null if it is not.
  static std::unique_ptr<RawTerminal> Enter(int fd);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  RawTerminal();
};

}  // namespace ringside
