// A stream between a port of the guest and one of the host, as a state machine: what each side has
// said, and what is next to be said to the guest. It has no descriptors and moves no bytes.
//
//   guest asks:  Accepted at once, as the host's socket has been connected before; RESPONSE is next
//   host asks:   REQUEST is next, and the guest's RESPONSE opens it
//   either ends: SHUTDOWN tells of a half; who has both halves ended gets or gives RST, and that is
//                the end. RSTs are whoever has the connection's to send, as it is gone by then.
//
// Threads: one at a time. Spec: VIRTIO 1.2, section 5.10.6.
#pragma once

#include <cstdint>

#include "devices/vsock_credit.h"
#include "devices/vsock_packet.h"

namespace ringside {

class VsockConnection {
 public:
  struct Ports {
    uint32_t host = 0;
    uint32_t guest = 0;
    bool operator==(const Ports&) const = default;
  };
  // What the guest's last packet came to.
  enum class Outcome {
    kNothing,
    kOpened,    // its answer to our request
    kData,      // the payload is the host's
    kEnded,     // one of the guest's halves: see guest_sends() and guest_receives()
    kFinished,  // both ends agree: answer with RST, deliver what is left
    kReset,     // by the guest: no answer
    kBroken,    // it breaks the rules: answer with RST
  };

  // How much of the guest's data one connection holds for a host that is slow.
  static constexpr uint32_t kRoom = 256 << 10;

  static VsockConnection AskedByHost(Ports ports) { return {ports, kRequest, /*is_open=*/false}; }
  // `request`: of the guest.
  static VsockConnection AskedByGuest(const VsockHeader& request) {
    VsockConnection connection({.host = request.dst_port, .guest = request.src_port}, kResponse,
                               /*is_open=*/true);
    connection.to_guest_.Heard(request.buf_alloc, request.fwd_cnt);
    return connection;
  }

  const Ports& ports() const { return ports_; }
  bool is_open() const { return is_open_; }
  // The guest has heard of it: if it goes, it needs a RST.
  bool is_known() const { return (pending_ & kRequest) == 0; }
  bool guest_sends() const { return guest_sends_; }
  bool guest_receives() const { return guest_receives_; }
  bool host_receives() const { return host_receives_; }
  // The guest was told that both halves have ended, or will be: its RST is to come.
  bool is_ending() const { return !host_sends_ && !host_receives_; }

  // A packet of the guest for these ports.
  Outcome Receive(const VsockHeader& header);
  // The host has taken so much of the guest's data, or never will.
  void Forward(uint32_t length);

  // The host will send no more, that is what it has sent has gone to the guest.
  void HostSendsNoMore();
  void HostReceivesNoMore();

  // Data of the host is the guest's.
  bool WantsData() const { return is_open_ && host_sends_; }
  // Bytes of the next packet of data at most.
  uint32_t MaySend() const { return WantsData() ? to_guest_.available() : 0; }
  // Data waits and may not go. Whether the guest is asked for credit now: once, until AskAgain.
  bool WaitsForCredit();
  void AskAgain() { asked_ = false; }

  // Something other than data is to be said.
  bool HasControl() const { return pending_ != 0; }
  // What that is, after which it has been said. Only if there is some.
  VsockHeader TakeControl();
  // The header of a packet of data, which goes.
  VsockHeader Send(uint32_t length);

 private:
  enum Pending : uint8_t {
    kRequest = 1,
    kResponse = 2,
    kCreditUpdate = 4,
    kCreditRequest = 8,
    kShutdown = 16,
  };

  VsockConnection(Ports ports, Pending pending, bool is_open)
      : ports_(ports), pending_(pending), is_open_(is_open) {}
  VsockHeader Header(VsockOp op, uint32_t length);
  Outcome Shutdown(uint32_t flags);
  void EndIfNobodySends();

  Ports ports_;
  uint8_t pending_;  // Pending
  bool is_open_;
  bool host_sends_ = true, host_receives_ = true;
  bool guest_sends_ = true, guest_receives_ = true;
  bool asked_ = false;  // for credit, since data has begun to wait
  VsockReceiveCredit from_guest_{kRoom};
  VsockSendCredit to_guest_;
};

}  // namespace ringside
