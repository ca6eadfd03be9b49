// The flow control of a vsock connection, one object for each direction: who receives says how much
// room it has and how much it has passed on, and who sends keeps within that. All counters count
// bytes from the connection's beginning, modulo 2^32.
//
// Threads: one at a time. Spec: VIRTIO 1.2, section 5.10.6.3.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace ringside {

// What the guest may send.
class VsockReceiveCredit {
 public:
  explicit VsockReceiveCredit(uint32_t room) : room_(room) {}

  uint32_t room() const { return room_; }
  // Whether the guest kept within what it was told. Otherwise nothing is counted.
  bool Receive(uint32_t length) {
    if (length > room_ - (received_ - forwarded_)) return false;
    received_ += length;
    return true;
  }
  // The host has taken so much of it.
  void Forward(uint32_t length) { forwarded_ += length; }
  // The counter for a packet's header: the guest knows it from now on.
  uint32_t Tell() { return told_ = forwarded_; }
  // The guest sees less than half of our room, and would see a good piece more. Not before: an
  // update for each packet would double their number. The piece makes a host that reads byte by
  // byte cost eight updates per room, and if less than that is untold and unsent, the rest is still
  // with us, and its way to the host brings the update.
  bool IsUpdateDue() const {
    return room_ - (received_ - told_) < room_ / 2 && forwarded_ - told_ >= room_ / 8;
  }

 private:
  uint32_t room_;
  uint32_t received_ = 0;
  uint32_t forwarded_ = 0;
  uint32_t told_ = 0;  // forwarded_ as the guest knows it
};

// What the guest has room for.
//
// Linux also limits how many packets wait for its reader, each of which costs it memory beside its
// bytes: from 6.12.92 on it resets a connection whose packets are small and many, while their bytes
// are within the credit. So packets under way are counted, too, and what a host program writes in
// small pieces goes in larger ones once there are many.
class VsockSendCredit {
 public:
  static constexpr uint16_t kMaxPackets = 256;
  // Of the guest's room a packet is counted as this much at least.
  static constexpr uint32_t kLeastShare = 1024;

  // From any packet's header. What a guest says of itself wrongly stops its own connection.
  void Heard(uint32_t buf_alloc, uint32_t fwd_cnt) {
    peer_room_ = buf_alloc;
    peer_forwarded_ = fwd_cnt;
    const uint32_t under_way = sent_ - fwd_cnt;
    while (count_ > 0 && sent_ - ends_[first_] >= under_way) {
      first_ = static_cast<uint16_t>((first_ + 1) % kMaxPackets);
      --count_;
    }
  }
  // Bytes of the next packet at most; 0: none may go.
  uint32_t available() const {
    const uint32_t under_way = sent_ - peer_forwarded_;
    return under_way < peer_room_ && count_ < limit() ? peer_room_ - under_way : 0;
  }
  void Sent(uint32_t length) {
    sent_ += length;
    ends_[(first_ + count_) % kMaxPackets] = sent_;
    ++count_;
  }
  // Half of the packets that may be under way are: the guest is better asked now than when all are,
  // since it tells of small ones rarely by itself.
  bool IsHalfWay() const { return count_ == (limit() + 1) / 2; }
  uint32_t limit() const { return std::clamp<uint32_t>(peer_room_ / kLeastShare, 1, kMaxPackets); }

 private:
  uint32_t peer_room_ = 0;
  uint32_t peer_forwarded_ = 0;
  uint32_t sent_ = 0;
  uint16_t first_ = 0, count_ = 0;
  std::array<uint32_t, kMaxPackets> ends_;  // sent_ behind each packet under way, oldest at first_
};

}  // namespace ringside
