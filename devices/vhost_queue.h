// A queue of a network that the host's kernel serves (net/vhost_net.h). What is left of it here is
// its life: it is started and stopped, rests and moves as other queues do, hands the kernel the
// descriptor that interrupts the guest, and hears when the ring is broken or the tap is gone.
//
// A driver without MSI-X gets no interrupts, and its ISR status stays 0: the kernel tells nobody.
//
// Threads and ownership: as QueueWorker.
#pragma once

#include <sys/epoll.h>

#include "devices/net_port.h"
#include "devices/queue_worker.h"
#include "net/vhost_net.h"

namespace ringside {

class VhostQueue final : public QueueWorker, private InterruptLine::Observer {
 public:
  // `tap_fd` is asked whether the tap is still there: by the queue that receives, when interfaces
  // of the host change.
  struct Kernel {
    VhostNet& vhost;
    VhostNet::Ring ring;
    int tap_fd;
  };

  VhostQueue(const Parts& parts, const NetPort& port, const Kernel& kernel, const QueueSetup& setup,
             uint64_t features);
  // Goes on where `before` has left off.
  VhostQueue(const Parts& parts, const VhostQueue& before);

  void Resume() override;
  uint16_t position() const override { return next_; }
  // Its ring is not looked at here.
  bool HasWork() override { return false; }
  void Run() override {}
  void EnableNotify() override {}
  void DisableNotify() override {}
  // Perhaps with the kernel's word that the ring is broken.
  void Written() override;

 private:
  class Changes final : public FdWatch {
   public:
    explicit Changes(VhostQueue& queue)
        : FdWatch(queue.kernel_.vhost.changes_fd(), EPOLLIN), queue_(queue) {}
    void Ready() override { queue_.LookForTap(); }

   private:
    VhostQueue& queue_;
  };

  void Recall() override { End(); }
  void Drains() override { End(); }
  void EventChanged(const EventFd* event) override { kernel_.vhost.SetCall(kernel_.ring, event); }
  bool IsTapGone() const;
  void LookForTap();
  void End();

  const NetPort& port_;
  const Kernel kernel_;
  const QueueSetup setup_;
  const uint64_t features_;
  uint16_t next_;  // where it goes on while it is not started
  Changes changes_{*this};
};

}  // namespace ringside
