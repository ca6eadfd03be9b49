// Hostile drivers of networks, as hostile.h has them of disks: each behaviour runs against a
// network that is up; whatever it does, the network must work again after a reset, and another
// network must not notice. What they break: chains and headers of frames (hostile_net_frames.cc),
// rings and the control queue (hostile_net_rings.cc).

#ifndef RINGSIDE_TESTS_GUEST_HOSTILE_NET_H_
#define RINGSIDE_TESTS_GUEST_HOSTILE_NET_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "hostile.h"
#include "virtio_net.h"

namespace guest {

class HostileNet {
 public:
  HostileNet(VirtioNet& net, VirtioNet* other, const NetPeer& peer, std::string_view name)
      : net_(net), other_(other), peer_(peer), name_(name) {}

  // Of the behaviour, for what it says.
  std::string_view name() const { return name_; }
  VirtioNet& net() { return net_; }
  const NetPeer& peer() const { return peer_; }
  Virtqueue& receive() { return net_.pair().receive_rings(); }
  Virtqueue& transmit() { return net_.pair().transmit_rings(); }

  // The host answers through it; false after a FAIL line. There need be no other.
  bool ServeNet();
  bool ServeOther();
  // Makes the host send this network a few frames, whatever becomes of them.
  void Stimulate();
  // Makes the next available entry of one of the first three queues `head` and kicks.
  void Offer(uint16_t queue, uint16_t head);
  // Says what became of it, for which there is no right answer but to live.
  bool SayOutcome(Outcome outcome);

 private:
  VirtioNet& net_;
  VirtioNet* const other_;
  const NetPeer peer_;
  const std::string_view name_;
};

constexpr uint16_t kReceiveQueue = 0;
constexpr uint16_t kTransmitQueue = 1;
constexpr uint16_t kControlQueue = 2;

// 64 KiB for what hostile chains lead to.
uint64_t HostileNetMemory();

struct HostileChain;  // hostile_net_frames.cc

struct NetBehaviour {
  std::string_view name;
  // False after a FAIL line. `chain` is the one of that name, null for those that are no chain.
  bool (*run)(HostileNet& target, const HostileChain* chain);
  const HostileChain* chain = nullptr;
};

std::span<const NetBehaviour> NetFrameBehaviours();
std::span<const NetBehaviour> NetRingBehaviours();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_HOSTILE_NET_H_
