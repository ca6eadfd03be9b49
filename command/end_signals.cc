#include "command/end_signals.h"

#include <array>
#include <poll.h>
#include <sys/signalfd.h>
#include <thread>
#include <unistd.h>

#include "base/thread.h"

namespace ringside {

EndSignals::EndSignals() {
  sigemptyset(&set_);
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM}) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&set_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  fd_ = UniqueFd(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
}

EndSignals::Taken EndSignals::TakeWithSender() const {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof info) != sizeof info) return {};
  return {.signal = static_cast<int>(info.ssi_signo), .sender = static_cast<int>(info.ssi_pid)};
}

void EndSignals::Attend(const std::function<void()>& work,
                        const std::function<void(int signal)>& arrived) const {
  const absl::StatusOr<EventFd> over = EventFd::Create();
  std::thread watcher;
  if (over.ok()) {
    auto started = StartThread("signals", [&] { Watch(*over, arrived); });
    if (started.ok()) watcher = *std::move(started);
  }
  if (!watcher.joinable()) Release();
  work();
  if (watcher.joinable()) {
    over->Signal();
    watcher.join();
  } else {
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
}

void EndSignals::Watch(const EventFd& over, const std::function<void(int signal)>& arrived) const {
  std::array<pollfd, 2> fds = {pollfd{over.fd(), POLLIN, 0}, pollfd{fd(), POLLIN, 0}};
  while ((fds[0].revents & POLLIN) == 0) {
    poll(fds.data(), fds.size(), -1);
    const int signal = (fds[1].revents & POLLIN) != 0 ? Take() : 0;
    if (signal != 0) arrived(signal);
  }
}

void EndSignals::Release() const {
  pthread_sigmask(SIG_UNBLOCK, &set_, nullptr);
}

void EndSignals::Deliver(int signal) const {
  std::signal(signal, SIG_DFL);
  Release();
  raise(signal);
  _exit(128 + signal);
}

}  // namespace ringside
