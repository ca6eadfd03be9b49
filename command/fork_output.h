// What the commands of forks say, on descriptors that other processes write to as well: each line
// behind its fork's number, and none torn by another's. What a guest says is shown, not obeyed: its
// control characters but tabs are "\xNN". A line that is longer than a pipe takes at once goes on
// in the next, behind the number again.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

namespace ringside {

class ForkOutput {
 public:
  // Blocks as WriteAll does, and returns what it returns.
  int Write(int fd, uint32_t number, std::string_view text);

 private:
  std::mutex mutex_;  // so that the lines of one fork stay together
};

}  // namespace ringside
