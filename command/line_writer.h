// Lines on a descriptor that may be stuck (a pipe whose reader has stopped, a terminal, a file on a
// storage that hangs): a thread of their own writes them, so nobody who has something to say waits.
// What finds no room is dropped, whole lines of it, and once the descriptor takes bytes again a
// line says how many.
//
// Threads: any. Ownership: the descriptor stays its owner's. A writer that is stuck beyond the
// object's end is left behind, for the process's own end to take along.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/time/time.h"

namespace ringside {

// Blocks, also where somebody else who has the descriptor made it non-blocking. Returns 0, or the
// errno with which it has refused some for good (EPIPE, EBADF, ENOSPC), which is lost.
int WriteAll(int fd, std::string_view text);

class LineWriter {
 public:
  static constexpr size_t kMostWaiting = 64 << 10;  // bytes, beside those that are being written
  static constexpr absl::Duration kPatience = absl::Seconds(1);

  // `about_dropped` makes the line that says how many were; it runs on the writer's thread.
  LineWriter(int fd, std::function<std::string(uint64_t)> about_dropped,
             absl::Duration patience = kPatience);
  // The same for what is no plain descriptor: `write_all` gets whole lines on the writer's thread,
  // and may block. As that thread may be left behind, both functions own what they use.
  LineWriter(std::function<void(std::string_view)> write_all,
             std::function<std::string(uint64_t)> about_dropped,
             absl::Duration patience = kPatience);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Waits for nothing.
  void Write(std::string_view line);
  // Waits until all is written, or for `patience`; returns whether it is. Once that was in vain,
  // only if something has been written since. The destructor does it, too.
  bool Flush();

 private:
  struct State;

  const absl::Duration patience_;
  const std::shared_ptr<State> state_;  // the thread's, too
  std::thread thread_;                  // from the first line on
};

}  // namespace ringside
