#include "devices/virtio_vsock.h"

#include <utility>

#include "base/status.h"
#include "block/segment_cursor.h"
#include "devices/vsock_queues.h"

namespace ringside {
namespace {

// The driver's buffers stay in it until there is an event, and there is one only after a restore
// (section 5.10.6.7).
class VsockEventQueue final : public QueueWorker {
 public:
  VsockEventQueue(const Parts& parts, VsockResetNotice& notice, const QueueSetup& setup,
                  uint64_t features)
      : QueueWorker(parts, setup, features, QueueSignal::Hold::kNever), notice_(notice) {
    notice.Begin();
  }
  VsockEventQueue(const Parts& parts, const VsockEventQueue& before)
      : QueueWorker(parts, before), notice_(before.notice_) {}

  bool HasWork() override { return notice_.is_owed() && QueueWorker::HasWork(); }
  void EnableNotify() override {
    if (notice_.is_owed()) QueueWorker::EnableNotify();
  }
  // All connections are gone: VIRTIO_VSOCK_EVENT_TRANSPORT_RESET, which is zero.
  void Run() override {
    constexpr std::array<std::byte, 4> kTransportReset = {};
    DescriptorChain chain;
    if (TakeChains(std::span(&chain, 1)) == 0 || !queue().Walk(chain, buffers_)) {
      return ReportIfBroken();
    }
    if (TotalLength(buffers_.writable()) < kTransportReset.size()) {
      queue().Break("an event buffer has no room for an event");
      return ReportIfBroken();
    }
    CopyToSegments(buffers_.writable(), {}, kTransportReset);
    notice_.Told(queue());
    Answer(std::move(chain), kTransportReset.size());
  }

 private:
  VsockResetNotice& notice_;
  ChainBuffers buffers_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<VirtioVsock>> VirtioVsock::Create(VsockHost& host,
                                                                 const GuestMemory& memory,
                                                                 IoThread& io_thread,
                                                                 const VirtioVsockConfig& config) {
  RINGSIDE_ASSIGN_OR_RETURN(std::unique_ptr<VsockHub> hub, VsockHub::Create(host, config));
  return std::unique_ptr<VirtioVsock>(new VirtioVsock(std::move(hub), memory, io_thread, config));
}

// Section 5.10.4.
void VirtioVsock::ReadConfig(uint64_t offset, std::span<std::byte> data) {
  for (size_t i = 0; i < data.size(); ++i) {
    const bool is_there = offset < sizeof cid_ && i < sizeof cid_ - offset;
    data[i] = is_there ? static_cast<std::byte>(cid_ >> (8 * (offset + i))) : std::byte{0};
  }
}

// One after the other. While some are there and others here nothing is lost: the hub rests.
void VirtioVsock::MoveQueue(uint16_t /*queue*/, IoThread& to, QueueLife::MoveDone done) {
  MoveFrom(0, &io_thread(0), to, std::move(done));
}

// `from`: where those before this one come back to if it cannot be watched there.
void VirtioVsock::MoveFrom(uint16_t queue, IoThread* from, IoThread& to, QueueLife::MoveDone done) {
  QueuedDevice::MoveQueue(
      queue, to, [this, queue, from, &to, done = std::move(done)](const absl::Status& status) {
        if (status.ok() && queue + 1 < kQueues) {
          return MoveFrom(static_cast<uint16_t>(queue + 1), from, to, done);
        }
        if (status.ok() || queue == 0 || from == nullptr) return done(status);
        MoveFrom(0, nullptr, *from, [done, status](const absl::Status&) { done(status); });
      });
}

std::unique_ptr<QueueWorker> VirtioVsock::NewWorker(uint16_t queue, const QueueWorker::Parts& parts,
                                                    const QueueSetup& setup, uint64_t features) {
  if (queue == kReceive) {
    return std::make_unique<VsockReceiveQueue>(parts, *hub_, setup, features);
  }
  if (queue == kTransmit) {
    return std::make_unique<VsockTransmitQueue>(parts, *hub_, setup, features);
  }
  return std::make_unique<VsockEventQueue>(parts, hub_->reset_notice(), setup, features);
}

std::unique_ptr<QueueWorker> VirtioVsock::NextWorker(uint16_t queue,
                                                     const QueueWorker::Parts& parts,
                                                     QueueWorker& before) {
  if (queue == kReceive) {
    return std::make_unique<VsockReceiveQueue>(parts, static_cast<VsockReceiveQueue&>(before));
  }
  if (queue == kTransmit) {
    return std::make_unique<VsockTransmitQueue>(parts, static_cast<VsockTransmitQueue&>(before));
  }
  return std::make_unique<VsockEventQueue>(parts, static_cast<VsockEventQueue&>(before));
}

}  // namespace ringside
