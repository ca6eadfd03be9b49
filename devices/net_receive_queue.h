// A receive queue of virtio-net: frames of the host go into buffers of the guest, from the kernel
// straight into guest memory.
//
// Each of both sides is left alone while the other has nothing. While buffers are there the host is
// watched, and read until it has no more frames, and the driver is asked for no kicks. When the
// buffers are used up the driver is asked for one, and the host is not looked at; it keeps what it
// has, or drops it, as it does for any program that is slow.
//
// How long a frame is nobody knows before it is read. So it is read into as many buffers as the
// last ones have needed, and for what is longer there is a buffer of the queue's own behind them,
// from which the rest is copied. With merged buffers a frame that is longer than all there are is
// kept, for kKeepNs, until the driver brings more; without, it is dropped. What is kept is the
// channel's, and so outlives the queue.
//
// Threads and ownership: as QueueWorker.
// Spec: VIRTIO 1.2, sections 5.1.6.3 and 5.1.6.4.
#pragma once

#include <array>

#include "devices/net_port.h"
#include "devices/queue_worker.h"

namespace ringside {

class NetReceiveQueue final : public QueueWorker {
 public:
  static constexpr int64_t kKeepNs = 500'000'000;

  // `gate`: of this queue and those before it.
  NetReceiveQueue(const Parts& parts, const NetPort& port, FrameChannel& channel, NetGate& gate,
                  const QueueSetup& setup, uint64_t features);
  // Goes on where `before` has left off.
  NetReceiveQueue(const Parts& parts, const NetPort& port, FrameChannel& channel,
                  const NetReceiveQueue& before);

  // Buffers are wanted, and there.
  bool HasWork() override { return hungry_ && !gone_ && QueueWorker::HasWork(); }
  void Run() override;
  // Not for buffers that are not wanted.
  void EnableNotify() override {
    if (hungry_) QueueWorker::EnableNotify();
  }

 private:
  // The host's side as a source: its descriptor tells of each frame that it did not have.
  class Frames final : public Source {
   public:
    Frames(NetReceiveQueue& queue, int fd) : Source(fd), queue_(queue) {}
    bool HasWork() override { return queue_.readable_ && !queue_.hungry_ && !queue_.waits_; }
    void Run() override { queue_.ReceiveAll(); }
    void EnableNotify() override {}
    void DisableNotify() override {}
    void Written() override;

   private:
    NetReceiveQueue& queue_;
  };
  // A chain that was taken, to have it ready.
  struct Buffer {
    DescriptorChain chain;
    uint16_t parts = 0;
    uint64_t size = 0;  // bytes
  };
  // More than the smallest that frames without segmentation need: a mergeable buffer or two.
  static constexpr uint64_t kSmallFrame = kNetHeaderSize + 18 + 1500;

  void Recall() override { LetGoOfAll(); }
  void Drains() override { LetGoOfAll(); }

  bool Watch();
  void Unwatch();
  void ReceiveAll();
  uint64_t ReceiveOne();
  ssize_t ReadFrame();
  ssize_t ReceiveBeyond(size_t end, uint64_t room);
  std::span<const iovec> PartsUpTo(size_t end) const {
    return std::span(parts_of_them_).subspan(first_part_, end - first_part_);
  }
  void Expect(uint64_t size);
  bool MakeRoom(uint64_t size);
  bool AddBuffer();
  bool IsHungry();
  bool WantsKept() const;
  uint64_t DeliverKept();
  bool Keep(uint64_t size, uint64_t in_buffers);
  void Deliver(uint64_t size);
  void FillIn(uint64_t at, std::span<const std::byte> bytes);
  void CopyToBuffers(uint64_t from, uint64_t to);
  void CopyFromBuffers(uint64_t to);
  template <typename Function>
  void ForBytes(uint64_t from, uint64_t to, Function function);
  void DropKept(int64_t now_ns);
  bool WaitsForLimits();
  void AskAgain(int64_t now_ns);
  void LetGoOfAll();

  const NetPort& port_;
  FrameChannel& channel_;
  NetGate& gate_;
  Frames frames_;
  bool watching_ = false;  // frames_ is attached
  bool readable_ = false;  // the host may have a frame
  bool hungry_ = true;     // there are too few buffers, and the driver is asked for more
  bool waits_ = false;     // for its limits
  bool gone_ = false;      // the network is
  uint64_t expected_ = kSmallFrame;
  uint32_t small_in_a_row_ = 0;

  // Buffers that are ready, in order, and the pieces of all of them.
  std::array<Buffer, Virtqueue::kMaxSize> buffers_;
  size_t first_ = 0, end_ = 0;
  std::array<iovec, kMaxFrameParts> parts_of_them_;
  size_t first_part_ = 0, end_part_ = 0;
  uint64_t room_ = 0;         // bytes of all
  bool full_ = false;         // as they have so many pieces that there is no place for another
  FrameChannel::Kept& kept_;  // a whole frame, or what of one is beyond the buffers

  ChainBuffers walked_;
  TimerTo<NetReceiveQueue, &NetReceiveQueue::AskAgain> limit_timer_{*this};
  TimerTo<NetReceiveQueue, &NetReceiveQueue::DropKept> keep_timer_{*this};
};

}  // namespace ringside
