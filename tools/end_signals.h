// The signals that ask the command to end (SIGHUP, SIGINT, SIGQUIT, SIGTERM), as reads of a
// descriptor: there is no handler. From the constructor on they do nothing by themselves, in this
// thread and in those that it starts.
//
// Threads: the main thread, before it has started any other.
#pragma once

#include <csignal>
#include <functional>

#include "absl/status/status.h"
#include "base/fd.h"

namespace ringside {

class EndSignals {
 public:
  EndSignals();

  // Readable when there is one to take.
  int fd() const { return fd_.get(); }
  // 0: there is none.
  int Take() const;
  // Does `work` on a thread of its own, and meanwhile tells `arrived` of each signal, on this one.
  absl::Status Attend(const std::function<void()>& work,
                      const std::function<void(int signal)>& arrived) const;
  // Ends the process as the signal would have by itself.
  [[noreturn]] void Deliver(int signal) const;

 private:
  sigset_t set_;
  UniqueFd fd_;
};

}  // namespace ringside
