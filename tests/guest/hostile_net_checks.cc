// hostile-net=NAME. See hostile_net.h.

#include <algorithm>

#include "allocator.h"
#include "checks.h"
#include "clock.h"
#include "console.h"
#include "deadline.h"
#include "hostile_net.h"

namespace guest {
namespace {

// Has the host answer one question, which takes both queues.
bool Serve(VirtioNet& net, NetPeer peer) {
  peer.own_mac = net.mac();
  peer.host_mac = {};
  return Expect("ordinary frames get through", 1, Resolve(net.pair(), peer)) &
         Expect("ordinary frames: rules broken", 0, net.pair().faults());
}

// A device that has come back from a reset does all it did before.
bool ServeInEveryWay(HostileNet& target) {
  const bool control = target.net().Offers(kNetFeatureControl);
  for (const bool event_idx : {true, false}) {
    if (!target.net().Start({.event_idx = event_idx, .control = control})) return false;
    for (int i = 0; i < 3; ++i) {
      if (!target.ServeNet()) return false;
    }
    if (!control) continue;
    const NetAnswer answer = target.net().Command(kNetPromiscuous, {0});
    if (!Expect("ordinary command", static_cast<uint8_t>(NetAnswer::kOk),
                static_cast<uint8_t>(answer))) {
      return false;
    }
  }
  return true;
}

bool Run(const NetBehaviour& behaviour, HostileNet target) {
  const bool control = target.net().Offers(kNetFeatureControl);
  if (!target.net().Start({.control = control, .buffers = false})) return false;
  const bool ok = behaviour.run(target, behaviour.chain) & target.ServeOther();
  return SayHarmless(behaviour.name, ServeInEveryWay(target) && target.ServeOther() && ok);
}

}  // namespace

bool HostileNet::ServeNet() {
  return Serve(net_, peer_);
}

bool HostileNet::ServeOther() {
  return other_ == nullptr || Serve(*other_, peer_);
}

// The last slots, which no behaviour uses.
void HostileNet::Stimulate() {
  constexpr uint16_t kQuestions = 4;
  NetPair& pair = net_.pair();
  NetPeer peer = peer_;
  peer.own_mac = net_.mac();
  for (uint16_t i = 1; i <= kQuestions; ++i) {
    const auto slot = static_cast<uint16_t>(pair.slots() - i);
    pair.Transmit(slot, WriteArpRequest(pair.frame(slot), peer));
  }
  transmit().Publish();
  net_.transport().Notify(kTransmitQueue).Kick();
}

void HostileNet::Offer(uint16_t queue, uint16_t head) {
  Virtqueue& rings = queue == kReceiveQueue    ? receive()
                     : queue == kTransmitQueue ? transmit()
                                               : net_.control();
  rings.AddHead(head);
  rings.Publish();
  net_.transport().Notify(queue).Kick();
}

bool HostileNet::SayOutcome(Outcome outcome) {
  const bool other_served = ServeOther();
  Say("hostile ", name_, " outcome=", Name(outcome));
  return other_served;
}

uint64_t HostileNetMemory() {
  constexpr uint64_t kBytes = 65536;
  static uint64_t memory = 0;
  if (memory == 0) memory = AllocatePages(kBytes);
  return memory;
}

void CheckHostileNet(const CommandLine& command_line, std::string_view name) {
  const std::span<VirtioNet> networks = Networks();
  NetPeer peer;
  if (networks.empty()) return Say("FAIL hostile: expected a network got none");
  if (!ReadNetAddresses(command_line, peer) || !InitClock()) return;
  VirtioNet* const other = networks.size() > 1 ? &networks[1] : nullptr;
  for (VirtioNet& net : networks) {
    if (!net.Start({}) || !Serve(net, peer)) return;
  }
  bool found = false;
  for (const auto& behaviours : {NetFrameBehaviours(), NetRingBehaviours()}) {
    for (const NetBehaviour& behaviour : behaviours) {
      if (name != "all" && name != behaviour.name) continue;
      found = true;
      Run(behaviour, HostileNet(networks[0], other, peer, behaviour.name));
    }
  }
  if (!found) Say("FAIL hostile: expected a name it knows got ", name);
}

}  // namespace guest
