// A transmit queue of virtio-net: each chain is a frame, header and all, and goes from guest memory
// to the host with one system call. What the host does not want is dropped, as on any Ethernet, and
// counted as an error; while it takes none, as a full socket, frames wait in the guest's ring.
//
// Threads and ownership: as QueueWorker.
// Spec: VIRTIO 1.2, section 5.1.6.2.
#pragma once

#include <array>

#include "devices/net_port.h"
#include "devices/queue_worker.h"

namespace ringside {

class NetTransmitQueue final : public QueueWorker {
 public:
  NetTransmitQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                   const QueueSetup& setup, uint64_t features);
  // Goes on where `before` has left off.
  NetTransmitQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                   const NetTransmitQueue& before);

  void Run() override;
  void Resume() override;

 private:
  // The host takes frames again.
  class Writable final : public FdWatch {
   public:
    explicit Writable(NetTransmitQueue& queue)
        : FdWatch(queue.channel_.send_fd(), EPOLLOUT), queue_(queue) {}
    void Ready() override { queue_.SendUnsent(); }

   private:
    NetTransmitQueue& queue_;
  };

  void Recall() override { EndWait(); }
  void Drains() override { EndWait(); }
  template <typename Observer>
  void SendAll(Observer observer);
  FrameChannel::Sent Send(uint64_t bytes);
  bool IsFrame(uint64_t bytes);
  void SendUnsent();
  void AskAgain(int64_t now_ns);
  void EndWait();

  const NetPort& port_;
  FrameChannel& channel_;
  NetGate gate_;
  bool paid_ = false;                              // the next frame has been admitted before
  ChainBuffers buffers_;                           // of the chain at hand
  std::array<iovec, kMaxFrameParts> parts_of_it_;  // likewise
  Writable writable_{*this};
  TimerTo<NetTransmitQueue, &NetTransmitQueue::AskAgain> timer_{*this};
};

}  // namespace ringside
