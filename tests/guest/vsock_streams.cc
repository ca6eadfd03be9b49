// See vsock_streams.h.

#include "vsock_streams.h"

#include <bit>

#include "allocator.h"

namespace guest {

VsockStreams::VsockStreams(VirtioVsock& vsock, uint32_t most_streams)
    : vsock_(vsock),
      cid_(vsock.cid()),
      buckets_(AllocateArray<VsockStream*>(std::bit_ceil(most_streams))),
      bucket_mask_(std::bit_ceil(most_streams) - 1) {
  auto* const streams = AllocateArray<VsockStream>(most_streams);
  for (uint32_t i = most_streams; i > 0; --i) {
    streams[i - 1].next = unused_;
    unused_ = &streams[i - 1];
  }
  for (uint16_t i = 0; i < vsock.pair().slots(); ++i) free_[free_count_++] = i;
}

// Ports are given in turn by either side, so their lowest bits spread well.
VsockStream*& VsockStreams::Bucket(uint32_t host_port, uint32_t guest_port) {
  return buckets_[(host_port ^ guest_port) & bucket_mask_];
}

VsockStream* VsockStreams::Find(uint32_t host_port, uint32_t guest_port) {
  VsockStream* stream = Bucket(host_port, guest_port);
  while (stream != nullptr &&
         (stream->host_port != host_port || stream->guest_port != guest_port)) {
    stream = stream->next;
  }
  return stream;
}

VsockStream* VsockStreams::Add(uint32_t host_port, uint32_t guest_port) {
  VsockStream* const stream = unused_;
  if (stream == nullptr) return nullptr;
  unused_ = stream->next;
  VsockStream*& bucket = Bucket(host_port, guest_port);
  *stream = {.host_port = host_port, .guest_port = guest_port, .next = bucket};
  bucket = stream;
  ++count_;
  return stream;
}

void VsockStreams::Close(VsockStream& stream, VsockUser& user) {
  user.Closed(stream);
  VsockStream** link = &Bucket(stream.host_port, stream.guest_port);
  while (*link != &stream) link = &(*link)->next;
  *link = stream.next;
  stream.next = unused_;
  unused_ = &stream;
  --count_;
}

VsockStream* VsockStreams::Connect(uint32_t host_port) {
  VsockStream* const stream = Add(host_port, next_port_++);
  if (stream != nullptr) Say(*stream, VsockOp::kRequest);
  return stream;
}

void VsockStreams::TakeSlotsBack() {
  uint16_t slot = 0;
  while (vsock_.pair().TakeTransmitted(slot)) {
    if (free_count_ == vsock_.pair().slots()) {
      ++faults_;  // it gives back what it has not got
      return;
    }
    sent_packets_ += vsock_.pair().header(slot).op == VsockOp::kData;
    free_[free_count_++] = slot;
  }
}

void VsockStreams::Turn(VsockUser& user) {
  TakeSlotsBack();
  VsockPacket packet;
  while (has_slot() && vsock_.pair().TakeReceived(packet)) Hear(packet, user);
}

VsockHeader VsockStreams::HeaderOf(const VsockStream& stream, VsockOp op) const {
  return {.source_cid = cid_,
          .destination_cid = kVsockHostCid,
          .source_port = stream.guest_port,
          .destination_port = stream.host_port,
          .op = op,
          .buf_alloc = kRoom,
          .fwd_cnt = stream.forwarded};
}

void VsockStreams::Post(const VsockHeader& header, uint32_t length) {
  const uint16_t slot = free_[--free_count_];
  vsock_.pair().header(slot) = header;
  vsock_.pair().header(slot).length = length;
  vsock_.pair().Transmit(slot);
}

void VsockStreams::Say(VsockStream& stream, VsockOp op, uint32_t flags) {
  VsockHeader header = HeaderOf(stream, op);
  header.flags = flags;
  Post(header, 0);
}

uint8_t* VsockStreams::Prepare(const VsockStream& stream, uint32_t length) {
  if (!has_slot() || stream.credit() < length) return nullptr;
  return vsock_.pair().data(free_[free_count_ - 1]);
}

void VsockStreams::Send(VsockStream& stream, uint32_t length) {
  stream.sent += length;
  Post(HeaderOf(stream, VsockOp::kData), length);
}

void VsockStreams::Release(VsockStream& stream, const VsockPacket& packet) {
  stream.forwarded += packet.header.length;
  vsock_.pair().GiveBack(packet);
}

void VsockStreams::Refuse(const VsockHeader& header) {
  Post({.source_cid = cid_,
        .destination_cid = kVsockHostCid,
        .source_port = header.destination_port,
        .destination_port = header.source_port},
       0);
}

void VsockStreams::Hear(const VsockPacket& packet, VsockUser& user) {
  const VsockHeader& header = packet.header;
  if (header.source_cid != kVsockHostCid || header.destination_cid != cid_ ||
      header.type != kVsockStreamType || (header.length > 0 && header.op != VsockOp::kData)) {
    ++faults_;
    return vsock_.pair().GiveBack(packet);
  }
  VsockStream* const stream = Find(header.source_port, header.destination_port);
  if (stream != nullptr) {
    stream->peer_room = header.buf_alloc;
    stream->peer_forwarded = header.fwd_cnt;
    if (header.op == VsockOp::kData) return HearData(*stream, packet, user);
  }
  vsock_.pair().GiveBack(packet);
  if (stream == nullptr) return HearOfNone(header, user);
  switch (header.op) {
    case VsockOp::kResponse:
      faults_ += stream->open;
      stream->open = true;
      return user.Opened(*stream);
    case VsockOp::kShutdown:
      stream->host_ended = stream->host_ended || (header.flags & kVsockNoSend) != 0;
      if (header.flags != (kVsockNoReceive | kVsockNoSend)) return user.HostEnded(*stream);
      Say(*stream, VsockOp::kReset);
      return Close(*stream, user);
    case VsockOp::kReset:
      return Close(*stream, user);
    case VsockOp::kCreditRequest:
      return Say(*stream, VsockOp::kCreditUpdate);
    case VsockOp::kCreditUpdate:
      return;
    default:
      ++faults_;
  }
}

void VsockStreams::HearOfNone(const VsockHeader& header, VsockUser& user) {
  if (header.op == VsockOp::kReset) return;
  VsockStream* stream = nullptr;
  if (header.op == VsockOp::kRequest && user.Accepts(header.destination_port)) {
    stream = Add(header.source_port, header.destination_port);
  }
  if (stream == nullptr) return Refuse(header);
  stream->peer_room = header.buf_alloc;
  stream->peer_forwarded = header.fwd_cnt;
  stream->open = true;
  Say(*stream, VsockOp::kResponse);
  user.Opened(*stream);
}

void VsockStreams::HearData(VsockStream& stream, const VsockPacket& packet, VsockUser& user) {
  stream.received += packet.header.length;
  if (!stream.open || stream.host_ended || stream.received - stream.forwarded > kRoom) ++faults_;
  if (user.Take(stream, packet)) Release(stream, packet);
}

}  // namespace guest
