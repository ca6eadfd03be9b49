// Work on an I/O thread that a test waits for.
#pragma once

#include "poll/io_thread.h"
#include "tests/support/wait.h"

namespace ringside::testing {

// Runs `function` on the I/O thread and waits for its end.
template <typename Function>
void RunOn(IoThread& io_thread, Function function) {
  BoundedEvent done;
  TaskOf task([&] {
    function();
    done.Notify();
  });
  io_thread.Post(task);
  done.WaitOrAbort();
}

// Waits while the I/O thread looks `turns` times at its mailbox and, though it may be awake all the
// time and so look at them in every 64th turn only, at its descriptors: what has not happened by
// then does not happen by itself.
inline void LetTurn(IoThread& io_thread, int turns = 200) {
  for (int i = 0; i < turns; ++i) RunOn(io_thread, [] {});
}

}  // namespace ringside::testing
