// See virtio_vsock.h.

#include "virtio_vsock.h"

#include <algorithm>
#include <array>

#include "allocator.h"
#include "console.h"
#include "processors.h"
#include "virtio_search.h"

namespace guest {
namespace {

constexpr uint16_t kEventQueueSize = 16;
constexpr uint16_t kEvents = 4;  // buffers
constexpr uint32_t kEventBytes = 4;

constinit std::array<VirtioVsock, 1> vsocks;

}  // namespace

bool VsockPair::Start(VirtioTransport& transport, const VsockOptions& options) {
  const QueuePairOptions pair = {
      .queue_size = options.queue_size,
      .receive_bytes = kReceiveBytes,
      .transmit_bytes = static_cast<uint32_t>(sizeof(VsockHeader)) + options.most_sent,
      .wait = options.wait,
      .buffers = options.buffers};
  return QueuePair::Start(transport, VirtioVsock::kReceive, ProcessorOf(0), pair);
}

bool VsockPair::TakeReceived(VsockPacket& packet) {
  uint32_t length = 0;
  if (!TakeBuffer(packet.slot, length)) return false;
  const uint64_t buffer = ReceiveBuffer(packet.slot);
  packet.header = *reinterpret_cast<const VsockHeader*>(buffer);
  packet.data = reinterpret_cast<const uint8_t*>(buffer + sizeof(VsockHeader));
  if (length != sizeof(VsockHeader) + packet.header.length) {
    AddFault();
    packet.header.length = 0;
  }
  return true;
}

bool VirtioVsock::Open(const PciFunction& function, int) {
  transport_ = &pci_;
  return pci_.Open(function);
}

bool VirtioVsock::Open(const MmioDevice& device, int) {
  transport_ = &mmio_;
  return mmio_.Open(device);
}

uint64_t VirtioVsock::cid() const {
  return transport_->Config<uint32_t>(0) | uint64_t{transport_->Config<uint32_t>(4)} << 32;
}

bool VirtioVsock::Start(const VsockOptions& options) {
  VirtioTransport& transport = *transport_;
  if (!transport.Reset()) return false;
  // Without VIRTIO_VSOCK_F_STREAM there are streams, too (section 5.10.3).
  if (!transport.Negotiate(options.event_idx ? kFeatureEventIdx : 0)) return false;
  transport.EnableInterrupts();
  if (!pair_.Start(transport, options) || !StartEvents()) return false;
  transport.SetDriverOk();
  pair_.Flush();
  return true;
}

bool VirtioVsock::StartEvents() {
  const uint16_t size = std::min(kEventQueueSize, transport_->MaxQueueSize(kEvent));
  if (size < kEvents) return Expect("vsock: the event queue is there", kEvents, size);
  events_.Init(size, (transport_->features() & kFeatureEventIdx) != 0, /*indirect=*/false);
  if (event_buffers_ == 0) event_buffers_ = AllocatePages(kPageSize);
  for (uint16_t i = 0; i < kEvents; ++i) {
    const std::array<Buffer, 1> chain = {
        Buffer{event_buffers_ + i * kEventBytes, kEventBytes, Access::kDeviceWrites}};
    if (events_.Add(chain) < 0) return Expect("vsock: event buffers", kEvents, i);
  }
  events_.Publish();
  return transport_->EnableQueue(kEvent, events_, ProcessorOf(0));
}

VirtioVsock* FindVsock() {
  static bool searched = false;
  static size_t count = 0;
  if (!searched) count = OpenAll<VirtioVsock>(VirtioId::kVsock, vsocks);
  searched = true;
  if (count == 0) Say("FAIL vsock: expected a vsock got none");
  return count == 0 ? nullptr : &vsocks[0];
}

}  // namespace guest
