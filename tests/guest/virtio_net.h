// A network: virtio-net over either transport, with one pair of queues or several, and its control
// queue. No offloads: every frame is whole, with its checksums, but for what a check asks for.
//
// Source: VIRTIO 1.2, section 5.1.

#ifndef RINGSIDE_TESTS_GUEST_VIRTIO_NET_H_
#define RINGSIDE_TESTS_GUEST_VIRTIO_NET_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "net_frame.h"
#include "net_pair.h"
#include "virtio_mmio.h"
#include "virtio_pci.h"

namespace guest {

// Feature bits.
constexpr uint64_t kNetFeatureChecksum = uint64_t{1} << 0;
constexpr uint64_t kNetFeatureMtu = uint64_t{1} << 3;
constexpr uint64_t kNetFeatureMac = uint64_t{1} << 5;
constexpr uint64_t kNetFeatureMergeable = uint64_t{1} << 15;
constexpr uint64_t kNetFeatureStatus = uint64_t{1} << 16;
constexpr uint64_t kNetFeatureControl = uint64_t{1} << 17;
constexpr uint64_t kNetFeatureControlReceive = uint64_t{1} << 18;
constexpr uint64_t kNetFeatureMultiQueue = uint64_t{1} << 22;
constexpr uint64_t kNetFeatureControlMac = uint64_t{1} << 23;

// Offsets in the device configuration.
namespace net_config {
constexpr uint64_t kMac = 0;
constexpr uint64_t kStatus = 6;
constexpr uint64_t kMaxPairs = 8;
constexpr uint64_t kMtu = 10;
}  // namespace net_config

// Commands of the control queue: class and command (section 5.1.6.5).
struct NetCommand {
  uint8_t kind;
  uint8_t command;
};
constexpr NetCommand kNetPromiscuous = {0, 0};
constexpr NetCommand kNetSetMacTable = {1, 0};
constexpr NetCommand kNetSetMac = {1, 1};
constexpr NetCommand kNetSetPairs = {4, 0};

enum class NetAnswer : uint8_t {
  kOk = 0,
  kError = 1,
  kNone = 0xff,  // ours
};

class VirtioNet {
 public:
  static constexpr uint16_t kMaxPairs = 8;

  bool Open(const PciFunction& function, int index);
  bool Open(const MmioDevice& device, int index);
  // Resets the device and makes it ready; false after a FAIL line.
  bool Start(const NetOptions& options);

  // In the order in which they were found.
  int index() const { return index_; }
  bool Offers(uint64_t feature) const { return (offered_ & feature) != 0; }
  // The device's, or one of ours if it has none.
  const MacAddress& mac() const { return mac_; }
  // 1500 if it does not say.
  uint64_t mtu() const { return mtu_; }
  bool link_is_up() const;
  uint16_t max_pairs() const { return max_pairs_; }

  VirtioTransport& transport() { return *transport_; }
  bool on_pci() const { return transport_ == &pci_; }
  // Of a network on PCI only.
  VirtioPci& pci() { return pci_; }

  // Those that have been started.
  std::span<NetPair> pairs() { return {pairs_.data(), started_}; }
  NetPair& pair() { return pairs_[0]; }

  // Of a network that was started with it.
  Virtqueue& control() { return control_; }
  void KickControl() const { control_notify_.Kick(); }
  NetAnswer Command(NetCommand command, std::initializer_list<uint8_t> data);

 private:
  void ReadConfig();
  bool StartControl();

  int index_ = 0;
  VirtioTransport* transport_ = nullptr;  // one of these two
  VirtioPci pci_;
  VirtioMmio mmio_;
  std::array<NetPair, kMaxPairs> pairs_;
  size_t started_ = 0;
  Virtqueue control_;
  NotifyRegister control_notify_;
  uint8_t* command_ = nullptr;  // a page: command, data, answer
  uint64_t offered_ = 0;
  MacAddress mac_ = {};
  uint64_t mtu_ = 0;
  uint16_t max_pairs_ = 1;
};

// All networks, opened, in the order of virtio_search.h; the first call looks for them.
std::span<VirtioNet> Networks();

}  // namespace guest

#endif  // RINGSIDE_TESTS_GUEST_VIRTIO_NET_H_
