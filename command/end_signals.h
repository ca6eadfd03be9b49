// The signals that ask the command to end (SIGHUP, SIGINT, SIGQUIT, SIGTERM), as reads of a
// descriptor: there is no handler. From the constructor until Release they do nothing by
// themselves, in this thread and in those that it starts. Those that are ignored at first, as nohup
// has it, stay ignored.
//
// Threads: the main thread, before it has started any other.
#pragma once

#include <csignal>
#include <functional>

#include "base/fd.h"

namespace ringside {

class EndSignals {
 public:
  EndSignals();

  // Readable when there is one to take.
  int fd() const { return fd_.get(); }
  // 0: there is none.
  int Take() const { return TakeWithSender().signal; }
  struct Taken {
    int signal = 0;
    int sender = 0;  // the id of a process; 0: the kernel, as for a key of the terminal
  };
  Taken TakeWithSender() const;
  // Runs `work` on this thread, because KVM names what it shows of a machine in debugfs after the
  // id of the thread that made it. Another thread calls `arrived` for each signal meanwhile. If
  // that thread, or the descriptor that it needs, cannot be had, signals act by default until
  // `work` returns: a machine ends as it should, however many descriptors it has.
  void Attend(const std::function<void()>& work,
              const std::function<void(int signal)>& arrived) const;
  // From now on they do by themselves what they did before.
  void Release() const;
  // Ends the process as the signal would have by itself.
  [[noreturn]] void Deliver(int signal) const;

 private:
  void Watch(const EventFd& over, const std::function<void(int signal)>& arrived) const;

  sigset_t set_;
  UniqueFd fd_;
};

}  // namespace ringside
