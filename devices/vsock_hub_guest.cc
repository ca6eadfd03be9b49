// The hub's packets from and to the guest.
#include <sys/socket.h>

#include "block/segment_cursor.h"
#include "devices/vsock_hub.h"

namespace ringside {

uint32_t VsockHub::Fill(std::span<const Segment> buffer) {
  if (!resets_.empty()) {
    Put(resets_.front(), buffer);
    resets_.pop_front();
    // A transmit queue that has waited for that is looked at again.
    if (resets_.size() == kMaxResets - 1) transmitter_->LookAgain();
    return kVsockHeaderSize;
  }
  for (int looks = 0; looks < kLooksPerPacket && !ready_.empty(); ++looks) {
    VsockClient& client = *ready_.front();
    ready_.Remove(client);
    const uint32_t written = FillFrom(client, buffer);
    Update(client);  // behind all others, if it has more
    if (written > 0) return written;
  }
  return 0;
}

uint32_t VsockHub::FillFrom(VsockClient& client, std::span<const Segment> buffer) {
  VsockConnection& connection = *client.connection;
  if (connection.HasControl()) {
    Put(connection.TakeControl(), buffer);
    return kVsockHeaderSize;
  }
  if (!client.readable || connection.MaySend() == 0) return 0;
  const uint32_t length = Read(client, buffer);
  if (length == 0) return 0;
  Put(connection.Send(length), buffer);
  return kVsockHeaderSize + length;
}

void VsockHub::Put(const VsockHeader& header, std::span<const Segment> buffer) const {
  VsockHeader addressed = header;
  addressed.dst_cid = cid_;
  CopyToSegments(buffer, {}, EncodeVsockHeader(addressed));
}

bool VsockHub::Receive(const VsockHeader& header, std::span<const iovec> payload) {
  // Section 5.10.6.4.1: nobody else sends with this device, and an answer would go to the wrong
  // one.
  if (header.src_cid != cid_) return false;
  const bool is_for_us = header.dst_cid == kVsockHostCid && header.type == kVsockStream;
  VsockClient* const client =
      is_for_us ? table_.Find({.host = header.dst_port, .guest = header.src_port}) : nullptr;
  // Nothing overtakes data.
  if (client != gathered_.client || header.op != VsockOp::kData) SendGathered();
  if (client != nullptr) return ReceiveFor(*client, header, payload);
  // An answer to a RST would have two devices answer each other for ever.
  if (header.op == VsockOp::kReset) return is_for_us;
  if (is_for_us && header.op == VsockOp::kRequest && Ask(header)) return true;
  Reset({.src_cid = header.dst_cid,
         .src_port = header.dst_port,
         .dst_port = header.src_port,
         .type = header.type});
  // Of what was just closed the guest may still send.
  return is_for_us;
}

// The guest connects. Whether somebody takes it.
bool VsockHub::Ask(const VsockHeader& request) {
  UniqueFd fd;
  VsockClient* client = nullptr;
  // Nobody on the host is to hear of one for which there is no room.
  const VsockHost::Got got =
      HasRoom() ? host_.Connect(request.dst_port, fd) : VsockHost::Got::kNothing;
  if (got == VsockHost::Got::kConnection) client = Add(std::move(fd));
  if (got == VsockHost::Got::kNoDescriptors) LogOnce(logged_descriptors_, kShortOfDescriptors);
  if (client == nullptr) {
    counts_.refused.Add();
    return false;
  }
  client->connection.emplace(VsockConnection::AskedByGuest(request));
  client->stage = VsockClient::Stage::kJoined;
  table_.Add(*client);
  counts_.made.Add();
  Update(*client);
  return true;
}

bool VsockHub::ReceiveFor(VsockClient& client, const VsockHeader& header,
                          std::span<const iovec> payload) {
  VsockConnection& connection = *client.connection;
  using Outcome = VsockConnection::Outcome;
  const bool was_open = connection.is_open();
  switch (connection.Receive(header)) {
    case Outcome::kNothing:
      break;
    case Outcome::kOpened:
      if (!Opened(client)) {
        Break(client);
        return true;
      }
      break;
    case Outcome::kData: {
      uint64_t length = 0;
      for (const iovec& part : payload) length += part.iov_len;
      if (length < header.length) {
        SendGathered();
        Break(client);
        return false;
      }
      if (header.length > 0) Write(client, payload, header.length);
      if (gathered_.client == &client) return true;  // SendGathered has the rest
      break;
    }
    case Outcome::kEnded:
      if (!connection.guest_receives()) shutdown(client.fd.get(), SHUT_RD);
      if (!connection.guest_sends() && client.backlog.empty()) AfterFlush(client);
      break;
    case Outcome::kFinished:
      ResetKnown(connection.ports());
      Linger(client);
      return true;
    case Outcome::kReset:
      if (!was_open) counts_.refused.Add();
      // After both have ended it is the guest's word for having understood.
      connection.is_ending() ? Linger(client) : Remove(client);
      return true;
    case Outcome::kBroken:
      SendGathered();
      Break(client);
      return false;
  }
  Update(client);
  return true;
}

}  // namespace ringside
