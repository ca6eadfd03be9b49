// The guest's end of the streams of a vsock: which there are, what credit each has, and what is
// answered to the host's packets. What the streams carry is their user's.
//
// A packet that comes may need one in answer, so none is taken while there is no slot for that.
//
// Source: VIRTIO 1.2, section 5.10.6.

#ifndef RINGSIDE_TESTS_GUEST_VSOCK_STREAMS_H_
#define RINGSIDE_TESTS_GUEST_VSOCK_STREAMS_H_

#include <array>
#include <cstdint>

#include "virtio_vsock.h"

namespace guest {

struct VsockStream {
  uint32_t host_port = 0;
  uint32_t guest_port = 0;
  bool open = false;        // both sides have agreed
  bool host_ended = false;  // the host sends no more
  bool has_ended = false;   // nor does the guest
  uint32_t peer_room = 0, peer_forwarded = 0;
  uint32_t sent = 0;                     // bytes of data, as all that follow
  uint32_t received = 0, forwarded = 0;  // forwarded: the user is done with it
  VsockStream* next = nullptr;           // in its bucket, or of those that are free

  // The user's: bytes of the message at hand, and when it has begun.
  uint64_t bytes = 0;
  uint64_t since = 0;

  uint32_t credit() const {
    const uint32_t under_way = sent - peer_forwarded;
    return under_way < peer_room ? peer_room - under_way : 0;
  }
};

class VsockUser {
 public:
  // Whether the host may connect to this port.
  virtual bool Accepts(uint32_t guest_port) = 0;
  virtual void Opened(VsockStream& stream) = 0;
  // Data has come. True: the user is done with it; false: it calls Release when it is.
  virtual bool Take(VsockStream& stream, const VsockPacket& packet) = 0;
  // The host sends no more.
  virtual void HostEnded(VsockStream& stream) = 0;
  // It is over, and `stream` will be another.
  virtual void Closed(VsockStream& stream) = 0;

 protected:
  ~VsockUser() = default;
};

class VsockStreams {
 public:
  // What the guest says that it has room for, for each stream.
  static constexpr uint32_t kRoom = 256 << 10;

  VsockStreams(VirtioVsock& vsock, uint32_t most_streams);

  // Asks the host for a connection to its port; null if there are too many streams.
  VsockStream* Connect(uint32_t host_port);

  // Takes what has come, and has `user` deal with it. Then Flush.
  void Turn(VsockUser& user);

  // Where `length` bytes of data are to be written, to be sent by Send; null if there is no credit
  // or no slot now.
  uint8_t* Prepare(const VsockStream& stream, uint32_t length);
  void Send(VsockStream& stream, uint32_t length);
  // A packet without data, for which there is a slot: in answer to a packet, or if has_slot().
  void Say(VsockStream& stream, VsockOp op, uint32_t flags = 0);
  bool has_slot() const { return free_count_ > 0; }
  // All packets out have come back.
  bool is_idle() const { return free_count_ == vsock_.pair().slots(); }
  void Release(VsockStream& stream, const VsockPacket& packet);

  // How many packets of data have left the ring, and how many rules the host has broken.
  uint64_t sent_packets() const { return sent_packets_; }
  uint64_t faults() const { return faults_ + vsock_.pair().faults(); }
  uint32_t open() const { return count_; }

 private:
  static constexpr uint32_t kFirstOwnPort = 1 << 20;

  VsockStream*& Bucket(uint32_t host_port, uint32_t guest_port);
  VsockStream* Find(uint32_t host_port, uint32_t guest_port);
  VsockStream* Add(uint32_t host_port, uint32_t guest_port);
  void Close(VsockStream& stream, VsockUser& user);
  void TakeSlotsBack();
  void Post(const VsockHeader& header, uint32_t length);
  VsockHeader HeaderOf(const VsockStream& stream, VsockOp op) const;
  void Hear(const VsockPacket& packet, VsockUser& user);
  void HearOfNone(const VsockHeader& header, VsockUser& user);
  void HearData(VsockStream& stream, const VsockPacket& packet, VsockUser& user);
  void Refuse(const VsockHeader& header);

  VirtioVsock& vsock_;
  const uint64_t cid_;
  std::array<uint16_t, QueuePair::kMaxSlots> free_ = {};
  uint16_t free_count_ = 0;
  VsockStream* unused_ = nullptr;
  VsockStream** buckets_;
  uint32_t bucket_mask_;
  uint32_t count_ = 0;
  uint32_t next_port_ = kFirstOwnPort;
  uint64_t sent_packets_ = 0;
  uint64_t faults_ = 0;
};

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VSOCK_STREAMS_H_
