// Operations on a ring, as tests push them.
#pragma once

#include <cstddef>
#include <liburing.h>
#include <vector>

#include "poll/uring.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// Counts its completions.
class TestOp final : public UringOp {
 public:
  void Complete(int32_t result) override { results.push_back(result); }
  bool done() const { return !results.empty(); }
  std::vector<int32_t> results;
};

// Set when its eventfd was written to.
class Fired final : public EventfdListener {
 public:
  void Written() override { value_ = true; }
  void Clear() { value_ = false; }
  operator bool() const { return value_; }

 private:
  bool value_ = false;
};

inline io_uring_sqe ReadEntry(int file, void* data, size_t size, uint64_t offset = 0) {
  io_uring_sqe entry = {};
  io_uring_prep_read(&entry, file, data, static_cast<unsigned>(size), offset);
  return entry;
}

inline io_uring_sqe WriteEntry(int file, const void* data, size_t size, uint64_t offset = 0) {
  io_uring_sqe entry = {};
  io_uring_prep_write(&entry, file, data, static_cast<unsigned>(size), offset);
  return entry;
}

// Turns the ring, as an I/O thread that never sleeps does.
template <typename Condition>
bool TurnUntil(Uring& uring, Condition condition) {
  return SpinUntil([&] {
    uring.Enter();
    uring.Reap();
    return condition();
  });
}

}  // namespace ringside::testing
