#include "command/line_writer.h"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include "base/sync.h"
#include "base/thread.h"

namespace ringside {

int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {  // somebody else who has it made it so
      pollfd ready = {fd, POLLOUT, 0};
      poll(&ready, 1, -1);
    } else if (written == 0 || errno != EINTR) {
      return written == 0 ? ENOSPC : errno;
    }
  }
  return 0;
}

struct LineWriter::State {
  const std::function<void(std::string_view)> write_all;
  const std::function<std::string(uint64_t)> about_dropped;

  Mutex mutex;
  std::condition_variable_any changed;
  std::string waiting ABSL_GUARDED_BY(mutex);
  uint64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  bool is_writing ABSL_GUARDED_BY(mutex) = false;
  bool has_thread ABSL_GUARDED_BY(mutex) = false;
  bool is_stuck ABSL_GUARDED_BY(mutex) = false;  // a flush was in vain
  bool is_over ABSL_GUARDED_BY(mutex) = false;

  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return waiting.empty() && !is_writing;
  }

  void Loop() {
    while (true) {
      std::string chunk;
      uint64_t lost = 0;
      {
        const MutexLock lock(mutex);
        is_writing = false;
        is_stuck = false;
        changed.notify_all();
        while (waiting.empty() && !is_over) changed.wait(mutex);
        if (waiting.empty()) return;
        is_writing = true;
        std::swap(chunk, waiting);
        lost = std::exchange(dropped, 0);
      }
      if (lost > 0) chunk += about_dropped(lost);  // they came after all that waited
      write_all(chunk);
    }
  }
};

LineWriter::LineWriter(int fd, std::function<std::string(uint64_t)> about_dropped,
                       absl::Duration patience)
    : LineWriter([fd](std::string_view text) { WriteAll(fd, text); }, std::move(about_dropped),
                 patience) {}

LineWriter::LineWriter(std::function<void(std::string_view)> write_all,
                       std::function<std::string(uint64_t)> about_dropped, absl::Duration patience)
    : patience_(patience),
      state_(std::make_shared<State>(std::move(write_all), std::move(about_dropped))) {}

LineWriter::~LineWriter() {
  const bool is_idle = Flush();
  {
    const MutexLock lock(state_->mutex);
    state_->is_over = true;
    state_->changed.notify_all();
  }
  if (!thread_.joinable()) return;
  is_idle ? thread_.join() : thread_.detach();
}

void LineWriter::Write(std::string_view line) {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  if (!std::exchange(state.has_thread, true)) {
    auto thread = StartThread("log", [state = state_] { state->Loop(); });
    if (thread.ok()) thread_ = *std::move(thread);
  }
  if (!thread_.joinable()) return state.write_all(line);  // better late than never
  // Once a line is dropped, so are those behind it: none is to seem to follow what it does not.
  if (state.dropped > 0 || state.waiting.size() + line.size() > kMostWaiting) {
    ++state.dropped;
    return;
  }
  state.waiting += line;
  state.changed.notify_all();
}

bool LineWriter::Flush() {
  State& state = *state_;
  const MutexLock lock(state.mutex);
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(patience_);
  while (!state.IsIdle() && !state.is_stuck) {
    const auto woken = state.changed.wait_until(state.mutex, deadline);
    if (woken == std::cv_status::timeout && !state.IsIdle()) state.is_stuck = true;
  }
  return state.IsIdle();
}

}  // namespace ringside
