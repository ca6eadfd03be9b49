// See virtio_net.h.

#include "virtio_net.h"

#include <algorithm>
#include <cstring>

#include "allocator.h"
#include "console.h"
#include "deadline.h"
#include "processors.h"
#include "virtio_search.h"

namespace guest {
namespace {

constexpr size_t kMaxNetworks = 2;
constexpr uint8_t kLinkUp = 1;
constexpr uint16_t kControlSize = 64;

constinit std::array<VirtioNet, kMaxNetworks> networks;

}  // namespace

bool VirtioNet::Open(const PciFunction& function, int index) {
  index_ = index;
  transport_ = &pci_;
  return pci_.Open(function);
}

bool VirtioNet::Open(const MmioDevice& device, int index) {
  index_ = index;
  transport_ = &mmio_;
  return mmio_.Open(device);
}

void VirtioNet::ReadConfig() {
  mac_ = {0x52, 0x54, 0, 0, 0, static_cast<uint8_t>(index_ + 1)};
  for (size_t i = 0; i < mac_.size() && Offers(kNetFeatureMac); ++i) {
    mac_[i] = transport_->Config<uint8_t>(net_config::kMac + i);
  }
  mtu_ = Offers(kNetFeatureMtu) ? transport_->Config<uint16_t>(net_config::kMtu) : 1500;
  max_pairs_ = Offers(kNetFeatureMultiQueue) ? transport_->Config<uint16_t>(net_config::kMaxPairs)
                                             : uint16_t{1};
}

bool VirtioNet::link_is_up() const {
  return !Offers(kNetFeatureStatus) ||
         (transport_->Config<uint16_t>(net_config::kStatus) & kLinkUp) != 0;
}

bool VirtioNet::Start(const NetOptions& options) {
  started_ = 0;
  VirtioTransport& transport = *transport_;
  if (!transport.Reset()) return false;
  offered_ = transport.OfferedFeatures();
  const bool control = options.control || options.pairs > 1;
  uint64_t wanted = kNetFeatureChecksum | kNetFeatureMtu | kNetFeatureMac | kNetFeatureMergeable |
                    kNetFeatureStatus;
  if (options.event_idx) wanted |= kFeatureEventIdx;
  if (control) wanted |= kNetFeatureControl | kNetFeatureControlReceive | kNetFeatureControlMac;
  // With it frames may come on any of them.
  if (options.pairs > 1) wanted |= kNetFeatureMultiQueue;
  if (!transport.Negotiate(wanted)) return false;
  ReadConfig();
  if (options.pairs > std::min(max_pairs_, kMaxPairs)) {
    return Expect("net: pairs of queues it has", options.pairs, max_pairs_);
  }
  if (options.small_buffers && !Offers(kNetFeatureMergeable)) {
    return Expect("net: buffers can be merged", 1, 0);
  }
  if (control && !Offers(kNetFeatureControl)) return Expect("net: control queue", 1, 0);

  transport.EnableInterrupts();
  for (uint16_t i = 0; i < options.pairs; ++i) {
    if (!pairs_[i].Start(transport, i, ProcessorOf(i), options)) return false;
  }
  started_ = options.pairs;
  if (control && !StartControl()) return false;
  transport.SetDriverOk();
  for (NetPair& pair : pairs()) pair.Flush();
  if (options.pairs == 1) return true;
  return Expect("net: takes the number of pairs", static_cast<uint8_t>(NetAnswer::kOk),
                static_cast<uint8_t>(Command(kNetSetPairs, {uint8_t(options.pairs), 0})));
}

// Section 5.1.2: behind all pairs there are if they were negotiated, else behind the first.
bool VirtioNet::StartControl() {
  const bool all = (transport_->features() & kNetFeatureMultiQueue) != 0;
  const auto queue = static_cast<uint16_t>(2 * (all ? max_pairs_ : 1));
  const uint16_t size = std::min(kControlSize, transport_->MaxQueueSize(queue));
  if (size == 0) return Expect("net: the control queue is there", 1, 0);
  control_.Init(size, (transport_->features() & kFeatureEventIdx) != 0, /*indirect=*/false);
  if (command_ == nullptr) command_ = AllocateArray<uint8_t>(kPageSize);
  if (!transport_->EnableQueue(queue, control_, 0)) return false;
  control_notify_ = transport_->Notify(queue);
  return true;
}

NetAnswer VirtioNet::Command(NetCommand command, std::initializer_list<uint8_t> data) {
  const auto address = reinterpret_cast<uint64_t>(command_);
  const auto length = static_cast<uint32_t>(sizeof command + data.size());
  StoreTo(command_, command);
  std::memcpy(command_ + sizeof command, data.begin(), data.size());
  volatile uint8_t& answer = command_[length];
  answer = static_cast<uint8_t>(NetAnswer::kNone);
  const std::array<Buffer, 2> chain = {Buffer{address, length, Access::kDeviceReads},
                                       Buffer{address + length, 1, Access::kDeviceWrites}};
  if (control_.Add(chain) < 0) return NetAnswer::kNone;
  control_.Publish();
  if (control_.KickWanted()) KickControl();
  Virtqueue::Used used;
  if (!SpinUntil([&] { return control_.TakeUsed(used); })) return NetAnswer::kNone;
  return static_cast<NetAnswer>(answer);
}

std::span<VirtioNet> Networks() {
  static bool searched = false;
  static size_t count = 0;
  if (!searched) count = OpenAll<VirtioNet>(VirtioId::kNet, networks);
  searched = true;
  return {networks.data(), count};
}

}  // namespace guest
