#include "devices/vsock_connection.h"

namespace ringside {

// Each packet tells of credit (section 5.10.6.3), so none needs a word of its own then.
VsockHeader VsockConnection::Header(VsockOp op, uint32_t length) {
  pending_ &= static_cast<uint8_t>(~kCreditUpdate);
  return {.src_cid = kVsockHostCid,
          .src_port = ports_.host,
          .dst_port = ports_.guest,
          .length = length,
          .op = op,
          .buf_alloc = from_guest_.room(),
          .fwd_cnt = from_guest_.Tell()};
}

VsockConnection::Outcome VsockConnection::Receive(const VsockHeader& header) {
  to_guest_.Heard(header.buf_alloc, header.fwd_cnt);
  if (to_guest_.available() > 0) asked_ = false;
  if (header.op == VsockOp::kReset) return Outcome::kReset;
  if (header.op == VsockOp::kResponse) {
    if (is_open_ || !is_known()) return Outcome::kBroken;
    is_open_ = true;
    return Outcome::kOpened;
  }
  if (!is_open_) return Outcome::kBroken;
  switch (header.op) {
    case VsockOp::kData:
      if (!guest_sends_ || !from_guest_.Receive(header.length)) return Outcome::kBroken;
      return Outcome::kData;
    case VsockOp::kShutdown:
      return Shutdown(header.flags);
    case VsockOp::kCreditRequest:
      pending_ |= kCreditUpdate;
      return Outcome::kNothing;
    case VsockOp::kCreditUpdate:
      return Outcome::kNothing;
    default:
      return Outcome::kBroken;  // also a request for what there is already
  }
}

// What has ended does not begin again, whatever a later packet says.
VsockConnection::Outcome VsockConnection::Shutdown(uint32_t flags) {
  if ((flags & kVsockNoSend) != 0) guest_sends_ = false;
  if ((flags & kVsockNoReceive) != 0) guest_receives_ = false;
  if (!guest_sends_ && !guest_receives_) return Outcome::kFinished;
  // What the guest does not take the host need not send.
  if (!guest_receives_) HostSendsNoMore();
  EndIfNobodySends();
  return Outcome::kEnded;
}

void VsockConnection::Forward(uint32_t length) {
  from_guest_.Forward(length);
  if (is_open_ && guest_sends_ && from_guest_.IsUpdateDue()) pending_ |= kCreditUpdate;
}

void VsockConnection::HostSendsNoMore() {
  if (!host_sends_) return;
  host_sends_ = false;
  pending_ |= kShutdown;
  EndIfNobodySends();
}

void VsockConnection::HostReceivesNoMore() {
  if (!host_receives_) return;
  host_receives_ = false;
  pending_ |= kShutdown;
}

// Where neither sends any more there is nothing left to receive: it ends as a whole.
void VsockConnection::EndIfNobodySends() {
  if (!host_sends_ && !guest_sends_) HostReceivesNoMore();
}

bool VsockConnection::WaitsForCredit() {
  if (asked_) return false;
  asked_ = true;
  pending_ |= kCreditRequest;
  return true;
}

VsockHeader VsockConnection::TakeControl() {
  // In this order: the guest hears of a connection before it hears anything about it.
  if ((pending_ & kRequest) != 0) {
    pending_ &= static_cast<uint8_t>(~kRequest);
    return Header(VsockOp::kRequest, 0);
  }
  if ((pending_ & kResponse) != 0) {
    pending_ &= static_cast<uint8_t>(~kResponse);
    return Header(VsockOp::kResponse, 0);
  }
  if ((pending_ & kShutdown) != 0) {
    pending_ &= static_cast<uint8_t>(~kShutdown);
    VsockHeader header = Header(VsockOp::kShutdown, 0);
    header.flags = (host_sends_ ? 0 : kVsockNoSend) | (host_receives_ ? 0 : kVsockNoReceive);
    return header;
  }
  if ((pending_ & kCreditRequest) != 0) {
    pending_ &= static_cast<uint8_t>(~kCreditRequest);
    return Header(VsockOp::kCreditRequest, 0);
  }
  return Header(VsockOp::kCreditUpdate, 0);
}

VsockHeader VsockConnection::Send(uint32_t length) {
  to_guest_.Sent(length);
  if (to_guest_.IsHalfWay()) pending_ |= kCreditRequest;
  return Header(VsockOp::kData, length);
}

}  // namespace ringside
