// The queues of a virtio-vsock device. Packets that go to the guest and come from it are the hub's
// (vsock_hub.h), which has what both have in common.
//
// Each side is left alone while the other has nothing: a driver is asked for no kicks for receive
// buffers until a packet finds none.
//
// Threads and ownership: as QueueWorker; the hub outlives them.
// Spec: VIRTIO 1.2, sections 5.10.2 and 5.10.6.
#pragma once

#include "devices/queue_worker.h"
#include "devices/vsock_hub.h"

namespace ringside {

class VsockReceiveQueue final : public QueueWorker, private VsockQueueSide {
 public:
  VsockReceiveQueue(const Parts& parts, VsockHub& hub, const QueueSetup& setup, uint64_t features)
      : QueueWorker(parts, setup, features, QueueSignal::Hold::kNever), hub_(hub) {}
  VsockReceiveQueue(const Parts& parts, const VsockReceiveQueue& before)
      : QueueWorker(parts, before), hub_(before.hub_) {}

  bool HasWork() override { return hub_.works() && hub_.HasForGuest() && QueueWorker::HasWork(); }
  void Run() override;
  void Resume() override;
  // Not for buffers that are not wanted.
  void EnableNotify() override {
    if (hub_.works() && hub_.HasForGuest()) QueueWorker::EnableNotify();
  }

 private:
  void Recall() override { hub_.Left(VsockHub::Side::kReceive); }
  void Drains() override { hub_.Left(VsockHub::Side::kReceive); }
  void Forget() override { hub_.CloseAll(); }
  void LookAgain() override;
  bool IsUsable();

  VsockHub& hub_;
  bool asked_ = false;    // for kicks, while the I/O thread did not
  ChainBuffers buffers_;  // of the chain at hand
};

class VsockTransmitQueue final : public QueueWorker, private VsockQueueSide {
 public:
  VsockTransmitQueue(const Parts& parts, VsockHub& hub, const QueueSetup& setup, uint64_t features)
      : QueueWorker(parts, setup, features, QueueSignal::Hold::kNever), hub_(hub) {}
  VsockTransmitQueue(const Parts& parts, const VsockTransmitQueue& before)
      : QueueWorker(parts, before), hub_(before.hub_) {}

  bool HasWork() override { return hub_.works() && hub_.TakesPackets() && QueueWorker::HasWork(); }
  void Run() override;
  void Resume() override;

 private:
  void Recall() override { hub_.Left(VsockHub::Side::kTransmit); }
  void Drains() override { hub_.Left(VsockHub::Side::kTransmit); }
  void Forget() override { hub_.CloseAll(); }
  void LookAgain() override { Written(); }
  bool TakePacket(VsockHeader& header);

  VsockHub& hub_;
  ChainBuffers buffers_;  // of the chain at hand
  VsockPayload payload_;  // likewise
};

}  // namespace ringside
